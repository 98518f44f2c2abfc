"""The wire contract stays: no field is renumbered, and what is committed is what the contract says."""

from __future__ import annotations

import subprocess
from pathlib import Path

from google.protobuf import descriptor_pb2

from evermirror.edge.rpc.generated import fleet_pb2 as pb

ROOT = Path(__file__).parents[3]
FIELDS = Path(__file__).with_name("fields.txt")


def fields() -> list[str]:
    """One line for each field and each value of an enum: what may never change."""
    lines = [
        f"{message.name}.{f.name} = {f.number} {f.type}{' repeated' if f.is_repeated else ''}"
        for message in pb.DESCRIPTOR.message_types_by_name.values()
        for f in message.fields
    ]
    values = [
        f"{enum.name}.{value.name} = {value.number}"
        for enum in pb.DESCRIPTOR.enum_types_by_name.values()
        for value in enum.values
    ]
    return sorted(lines + values + _gone())


def _gone() -> list[str]:
    """Numbers and names that were used once, and never are again."""
    lines = []
    for name, message in pb.DESCRIPTOR.message_types_by_name.items():
        told = descriptor_pb2.DescriptorProto()
        message.CopyToProto(told)
        numbers = [n for gone in told.reserved_range for n in range(gone.start, gone.end)]
        lines += [f"{name} reserved {gone}" for gone in (*numbers, *told.reserved_name)]
    return lines


def test_no_field_ever_changes_its_number_or_type():
    """A new field adds its line to fields.txt; a line that is there never changes."""
    assert fields() == FIELDS.read_text("utf-8").splitlines()


def test_the_generated_code_is_what_the_contract_says():
    done = subprocess.run(["tools/proto", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

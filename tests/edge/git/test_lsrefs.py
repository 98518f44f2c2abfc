"""What git's own servers say is read as git reads it; what no git can say is refused as a whole."""

import contextlib
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evermirror.edge.git import lsrefs
from evermirror.edge.git.lsrefs import (
    Capabilities,
    Lying,
    NotUnderstood,
    Refused,
    parse_advertisement,
    parse_answer,
    request_body,
    valid_name,
)
from evermirror.edge.git.pktline import Sign, encode, packets
from evermirror.model.refs import PUBLIC_PREFIXES, RefSnapshot
from tests.support.gitrepo import UpstreamRepo, clean_git_env

A, B, C = "a" * 40, "b" * 40, "c" * 40
FLUSH = b"0000"


def listing(*lines, end=FLUSH):
    return b"".join(encode(line if isinstance(line, bytes) else f"{line}\n".encode()) for line in lines) + end


def upload_pack(repo, *args, stdin=b"", version=2):
    """The very program that a smart server runs."""
    env = {**clean_git_env(repo.path), "GIT_PROTOCOL": f"version={version}"}
    command = ["git", "upload-pack", "--stateless-rpc", *args, str(repo.path)]
    return subprocess.run(command, input=stdin, env=env, capture_output=True, check=False).stdout


@pytest.fixture(params=["sha1", "sha256"])
def repo(tmp_path, request):
    repo = UpstreamRepo.init(tmp_path / "r.git", "r", "", object_format=request.param)
    repo.commit()
    repo.branch("feature/ü")
    repo.tag("light")
    repo.tag("heavy", annotated=True)
    repo.hidden_ref("refs/pull/1/head")
    repo.object_format = request.param
    return repo


def expected(repo):
    return RefSnapshot(repo.public_refs(), repo.head())


def test_v2_listing_of_real_git(repo):
    body = request_body(PUBLIC_PREFIXES, "evermirror/test", repo.object_format)
    answer = upload_pack(repo, stdin=body)
    assert parse_answer(answer, object_format=repo.object_format) == expected(repo)


def test_v2_listing_holds_the_extra_prefixes_that_were_asked_for(repo):
    prefixes = (*PUBLIC_PREFIXES, "refs/pull/")
    answer = upload_pack(repo, stdin=request_body(prefixes, "x", repo.object_format))
    assert parse_answer(answer, prefixes, repo.object_format).refs == repo.refs()
    assert parse_answer(answer, object_format=repo.object_format).refs == repo.public_refs()


def test_v2_capabilities_of_real_git(repo):
    assert parse_advertisement(upload_pack(repo, "--http-backend-info-refs")) == Capabilities(
        repo.object_format
    )


@pytest.mark.parametrize("version", [0, 1])
def test_old_advertisement_of_real_git_gives_the_same_snapshot(repo, version):
    advertised = upload_pack(repo, "--http-backend-info-refs", version=version)
    assert parse_advertisement(advertised) == expected(repo)
    with_header = encode(b"# service=git-upload-pack\n") + FLUSH + advertised
    assert parse_advertisement(with_header) == expected(repo)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_empty_repository_is_an_empty_snapshot(tmp_path, version):
    repo = UpstreamRepo.init(tmp_path / "e.git", "e", "")
    if version == 2:
        found = parse_answer(upload_pack(repo, stdin=request_body(PUBLIC_PREFIXES, "x")))
    else:
        said = upload_pack(repo, "--http-backend-info-refs", version=version)
        found = parse_advertisement(listing("# service=git-upload-pack") + said)
    assert found == RefSnapshot({}, None)


def test_a_detached_head_points_to_no_branch():
    assert parse_answer(listing(f"{A} HEAD", f"{A} refs/heads/x")) == RefSnapshot({"refs/heads/x": A}, None)


def test_a_head_outside_the_branches_is_not_followed():
    assert parse_answer(listing(f"{A} HEAD symref-target:refs/meta/config")).head is None


def test_shallow_lines_are_passed_over():
    body = listing(f"{A} HEAD\0symref=HEAD:refs/heads/m agent=x", f"{A} refs/heads/m", f"shallow {A}")
    assert parse_advertisement(body) == RefSnapshot({"refs/heads/m": A}, "refs/heads/m")


def test_names_of_any_bytes_survive():
    body = listing(A.encode() + b" refs/heads/\xff\xfe")
    assert list(parse_answer(body).refs) == ["refs/heads/\udcff\udcfe"]


@pytest.mark.parametrize(
    "lines",
    [
        [f"{A[:-1]} refs/heads/x"],
        [f"{'g' * 40} refs/heads/x"],
        [f"{A.upper()} refs/heads/x"],
        [f"{'0' * 40} refs/heads/x"],
        [f"{'a' * 64} refs/heads/x"],
        [f"{A} refs/heads/x", f"{B} refs/heads/x"],
        [f"{A} HEAD", f"{A} HEAD"],
        [f"{A} refs/heads/../../x"],
        [f"{A} refs/heads/x..y"],
        [f"{A} refs/heads/.x"],
        [f"{A} refs/heads/x.lock"],
        [f"{A} refs/heads/a\x1b[31m"],
        [f"{A} refs/heads/a\x00b"],
        [f"{A} refs/heads/x/"],
        [f"{A} refs/heads//x"],
        [f"{A} refs/heads/x@{{1}}"],
        [f"{A} objects/info"],
        [f"{A} ../../etc/passwd"],
        [f"{A} refs/heads/{'x' * 5000}"],
        [f"{A} HEAD symref-target:refs/heads/../../x"],
        [f"{A}"],
        [""],
        ["unborn HEAD symref-target:refs/heads/main"],
    ],
)
def test_a_listing_that_no_git_can_have_is_lying(lines):
    with pytest.raises(Lying):
        parse_answer(listing(*lines))


def test_a_flood_of_refs_is_lying(monkeypatch):
    monkeypatch.setattr(lsrefs, "MAX_REFS", 3)
    with pytest.raises(Lying, match="more than 3 refs"):
        parse_answer(listing(*(f"{A} refs/pull/{i}" for i in range(4))))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        listing(f"{A} refs/heads/x", end=b""),
        listing(f"{A} refs/heads/x")[:-6],
        listing(f"{A} refs/heads/x") + FLUSH,
        listing(f"{A} refs/heads/x", end=b"0001"),
    ],
)
def test_a_listing_that_is_cut_or_goes_on_is_not_understood(body):
    with pytest.raises(NotUnderstood):
        parse_answer(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<!DOCTYPE html>",
        FLUSH,
        FLUSH + FLUSH,
        listing("version 2", "agent=x"),
        listing("version 2", "ls-refs", end=b""),
        listing("version 2", "ls-refs", "object-format=sha3"),
        listing("version 3"),
        listing("# service=git-upload-pack", end=b""),
        listing(f"{A} HEAD\0agent=x", end=b""),
        listing(f"{A} HEAD\0object-format=md5"),
    ],
)
def test_an_advertisement_that_is_cut_or_foreign_is_not_understood(body):
    with pytest.raises(NotUnderstood):
        parse_advertisement(body)


def test_an_err_line_is_passed_on_in_one_safe_line():
    with pytest.raises(Refused) as e:
        parse_answer(listing(b"ERR access\x1b[31m denied\nor so " + b"x" * 1000))
    assert str(e.value).startswith("access?[31m denied or so xxx")
    assert len(str(e.value)) == lsrefs.WORDS_MAX


def test_the_dumb_protocol_is_recognised():
    assert lsrefs.is_dumb("text/plain", f"{A}\trefs/heads/x\n{B}\trefs/tags/y\n".encode())
    assert lsrefs.is_dumb("", b"")
    assert not lsrefs.is_dumb("application/x-git-upload-pack-advertisement", b"")
    assert not lsrefs.is_dumb("text/plain", b"hello\n")


@given(st.binary(max_size=200))
@example(b"0000")
def test_any_bytes_end_in_a_snapshot_or_a_known_error(body):
    for parse in (parse_answer, parse_advertisement):
        with contextlib.suppress(NotUnderstood, Lying, Refused):
            parse(body)


@given(st.lists(st.binary(max_size=80), max_size=5), st.sampled_from([b"", b"0000", b"0001"]))
def test_any_frames_end_in_a_snapshot_or_a_known_error(lines, end):
    for parse in (parse_answer, parse_advertisement):
        with contextlib.suppress(NotUnderstood, Lying, Refused):
            parse(b"".join(map(encode, lines)) + end)


PIECES = st.sampled_from(
    [b"a", b"/", b".", b"..", b".lock", b"@", b"{", b"~", b" ", b"\\", b"*", b"\x7f", b"\xc3\xbc"]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=6))
def test_names_are_judged_as_git_judges_them(pieces):
    name = b"refs/" + b"".join(pieces)
    judged = (
        subprocess.run(["git", "check-ref-format", name], check=False, capture_output=True).returncode == 0
    )
    assert valid_name(name) is judged


def test_the_request_asks_for_head_branches_and_tags_and_nothing_else():
    assert list(packets(request_body(("refs/heads/", "refs/tags/"), "evermirror/0.1.0"))) == [
        b"command=ls-refs\n",
        b"agent=evermirror/0.1.0\n",
        Sign.DELIM,
        b"symrefs\n",
        b"ref-prefix HEAD\n",
        b"ref-prefix refs/heads/\n",
        b"ref-prefix refs/tags/\n",
        Sign.FLUSH,
    ]

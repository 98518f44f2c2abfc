"""Help that reads well: flags and arguments without the type that the parser has for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption


class Command(TyperCommand):
    """A command whose help shows ``KEY`` and ``--json``, not ``{KEY} <str>`` and ``--json <bool>``."""

    def get_params(self, ctx: typer.Context):  # type: ignore[no-untyped-def, override]
        return _plain(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]


class Group(TyperGroup):
    """The same for what stands before a command."""

    def get_params(self, ctx: typer.Context):  # type: ignore[no-untyped-def, override]
        return _plain(super().get_params(ctx))


Params = TypeVar("Params", bound=Iterable[object])


def _plain(params: Params) -> Params:
    for param in params:
        if isinstance(param, TyperArgument) or (isinstance(param, TyperOption) and param.is_flag):
            param.display_type_rich = _nothing  # type: ignore[method-assign]
    return params


def _nothing(ctx: object) -> None:
    return None

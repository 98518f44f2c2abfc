"""`config KEY` beside `config batch-set-priority`: what is none of a group's commands is a key."""

from __future__ import annotations

import typer

from evermirror.faces.cli.help import Command, Group

KEY = "KEY"  # the name, in a group's table, of the command that takes a key


class KeyedGroup(Group):
    """Its command named ``key`` gets everything that no other command's name stands before."""

    key = KEY

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        first = args[0] if args else None
        others = self.commands.keys() - {self.key}
        if first is not None and first not in others and first not in ctx.help_option_names:
            args = [self.key, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: typer.Context, incomplete: str):  # type: ignore[no-untyped-def, override]
        found = [item for item in super().shell_complete(ctx, incomplete) if item.value != self.key]
        known = {item.value for item in found}
        more = self.commands[self.key].shell_complete(ctx, incomplete)
        return [*found, *(item for item in more if item.value not in known)]


class KeyCommand(Command):
    """The command named so: usage shows its first argument once, where the command's name would be."""

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [piece for piece in super().collect_usage_pieces(ctx) if piece != self.name]

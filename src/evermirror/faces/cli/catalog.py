"""`evermirror catalog`: whether sources are clean, what the server made of them, what it holds back."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from evermirror.errors import ExitCode, UsageError
from evermirror.faces.cli.client import Fields, connect
from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import NOTHING, age, counted, print_json, print_table, say, warn

app = typer.Typer(cls=Group, no_args_is_help=True, help="Check the catalog, show it, confirm removals.")


@app.command(cls=Command)
def check(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            show_default=False,
            help="File, folder or git URL; default: catalog.sources of the settings.",
        ),
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Read a catalog without a server and list every problem; exit code 1 where there is one."""
    from evermirror.config import load_config
    from evermirror.edge.catalog.check import check_sources
    from evermirror.nodes.basics import credentials_of, git_settings, url_rules

    overrides = {"catalog.sources": list(sources)} if sources else None
    loaded = load_config(config, overrides=overrides)
    if not loaded.catalog.sources:
        raise UsageError("there is no catalog to check", hint="Name a file, folder or git URL")
    found = asyncio.run(
        check_sources(loaded.catalog.sources, url_rules(loaded), git_settings(loaded), credentials_of(loaded))
    )
    if as_json:
        told = [
            {"file": p.file, "line": p.line or None, "reason": p.reason, "text": p.text}
            for p in found.problems
        ]
        print_json(
            {
                "ok": not found.problems_total,
                "repos": found.repos,
                "files": found.files,
                "problems_total": found.problems_total,
                "problems": told,
            }
        )
    else:
        for problem in found.problems:
            say(str(problem))
        repos = counted(found.repos, "repository", "repositories")
        say(f"{repos} in {counted(found.files, 'file')}, {counted(found.problems_total, 'problem')}")
    if found.problems_total:
        raise typer.Exit(ExitCode.FAILED)


@app.command(cls=Command)
def show(
    server: Server = None, token_file: TokenFile = None, config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Show the server's sources, their problems and what is held back."""
    with connect(server, token_file, config) as client:
        answer = client.get("/api/catalog")
    if as_json:
        print_json(answer)
        return
    rows = [
        [s.get("place"), s.get("commit"), age(s.get("looked_at")), s.get("trouble") or NOTHING]
        for s in _list(answer, "sources")
    ]
    print_table(["source", "commit", "looked at", "trouble"], rows)
    for held in _list(answer, "held"):
        where = held.get("place") or "all sources"
        warn(
            f"held back: {where} lost {held.get('removed')} of {held.get('total')} repositories; "
            "`evermirror catalog confirm` does it"
        )
    for problem in _list(answer, "problems"):
        line = f":{problem.get('line')}" if problem.get("line") else ""
        say(f"{problem.get('file')}{line}: {problem.get('reason')}")
    total = answer.get("problems_total")
    if isinstance(total, int) and total:
        say(f"{counted(total, 'problem')}; `evermirror catalog check` lists all")


@app.command(cls=Command)
def confirm(
    server: Server = None, token_file: TokenFile = None, config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Do the removals that are held back."""
    with connect(server, token_file, config) as client:
        answer = client.post("/api/catalog/confirm", {})
    if as_json:
        print_json(answer)
    else:
        removed = answer.get("removed")
        say(f"removed {counted(removed if isinstance(removed, int) else 0, 'repository', 'repositories')}")


def _list(answer: Fields, key: str) -> list[Fields]:
    found = answer.get(key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []

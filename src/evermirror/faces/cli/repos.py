"""`add`, `remove`, `repos`: the catalog as seen through the API."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from evermirror.errors import EvermirrorError, ExitCode, UsageError
from evermirror.faces.cli.client import Client, Fields, connect, repo_path
from evermirror.faces.cli.keys import Key, Keys, by_name
from evermirror.faces.cli.listed import Wanted, read_list
from evermirror.faces.cli.options import (
    PRIORITIES,
    SORTS,
    STATUSES,
    AsJson,
    ConfigFile,
    Server,
    TokenFile,
    check_choice,
    priorities,
    statuses,
)
from evermirror.faces.cli.output import age, print_json, print_table, say, warn, without_passwords
from evermirror.model.failure import FailureKind


def add(
    urls: Annotated[list[str] | None, typer.Argument(metavar="URL", help="Repositories to mirror.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="LIST", show_default=False, help="List file, as of a catalog: URL key=value…"
        ),
    ] = None,
    priority: Annotated[
        str | None, typer.Option(metavar="CLASS", show_default=False, help="critical, high, normal or low.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option(metavar="DURATION", show_default=False, help="Fixed gap, such as 10m.")
    ] = None,
    alias: Annotated[
        str | None, typer.Option(metavar="NAME", show_default=False, help="Another name for one repository.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Not shown or served to the public.")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Add repositories to the catalog."""
    wanted = [*(Wanted(url, url) for url in urls or []), *(read_list(file) if file else [])]
    if not wanted:
        raise UsageError("no URL was given", hint="Name one or more, or a list with --file")
    if alias and len(wanted) > 1:
        raise UsageError("an alias names one repository, and several URLs were given")
    info: dict[str, object] = {
        "priority": priority,
        "interval": interval,
        "alias": alias,
        "private": private or None,
    }
    body = {name: value for name, value in info.items() if value is not None}

    def post(one: Wanted) -> Fields:
        said = {**body, **one.info}  # a line knows better than the flags that are meant for all
        return client.post(
            "/api/git_urls", {"git_url": one.url, **({"additional_info": said} if said else {})}
        )

    with connect(server, token_file, config) as client:
        _each(wanted, post, as_json=as_json, listed=file is not None)


def remove(
    keys: Keys,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Take repositories out of the catalog; `evermirror restore KEY` brings one back."""
    if not yes and not sys.stdin.isatty():
        raise UsageError("removing needs a yes, and there is no terminal to ask at", hint="Add --yes")
    with connect(server, token_file, config) as client:

        def delete(one: Wanted) -> Fields:
            return by_name(client, one.url, lambda key: client.delete(repo_path("/api/git_urls", key)))

        if not yes:
            _check_removable(client, keys)
            typer.confirm("Stop mirroring these?", abort=True, err=True)
        _each([Wanted(key, key) for key in keys], delete, as_json=as_json, undo="restore")


def _check_removable(client: Client, keys: Sequence[str]) -> None:
    """Names what would go; raises what would refuse it, before anybody is asked."""
    for key in keys:
        rehearsed = by_name(
            client, key, lambda name: client.delete(repo_path("/api/git_urls", name), {"dry_run": "true"})
        )
        warn(f"  {rehearsed.get('git_url', key)}")


def pause(
    keys: Keys,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Stop looking at repositories, and keep their mirrors, until `evermirror resume`."""
    _order(keys, "pause", server, token_file, config, as_json=as_json)


def resume(
    keys: Keys,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Mirror again what was paused."""
    _order(keys, "resume", server, token_file, config, as_json=as_json)


def _order(
    keys: list[str],
    action: str,
    server: str | None,
    token_file: Path | None,
    config: Path | None,
    *,
    as_json: bool,
) -> None:
    """``action`` on each, one after the other."""
    with connect(server, token_file, config) as client:
        _each(
            [Wanted(key, key) for key in keys],
            lambda one: by_name(
                client, one.url, lambda key: client.post(f"{repo_path('/api/repos', key)}/-/{action}", {})
            ),
            as_json=as_json,
        )


def allow(
    key: Key,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", show_default=False, help="Message ids, as the error names them."),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(metavar="WHY", show_default=False, help="Why these objects are known to be harmless."),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Allow nothing any more.")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Accept malformed objects of one repository; without ids: show which are accepted."""
    if none and (ids or reason):
        raise UsageError("--none goes with neither ids nor --reason")
    if bool(ids) != bool(reason):
        raise UsageError("ids and --reason go together", hint="allow KEY ID --reason WHY")
    with connect(server, token_file, config) as client:
        repo = by_name(client, key, lambda name: client.get(repo_path("/api/repos", name)))
        if ids or none:
            before = repo.get("fsck_allow") if ids else None
            together = [*(before if isinstance(before, list) else []), *(ids or [])]
            said = {"fsck_allow": together or None, "fsck_reason": reason}
            client.post("/api/git_urls", {"git_url": repo.get("git_url"), "additional_info": said})
            repo = client.get(repo_path("/api/repos", str(repo.get("key"))))
    allowed = repo.get("fsck_allow")
    if as_json:
        print_json({name: repo.get(name) for name in ("key", "fsck_allow", "fsck_reason")})
    elif isinstance(allowed, list) and allowed:
        say(f"{repo.get('key')}: {', '.join(map(str, allowed))} allowed: {repo.get('fsck_reason')}")
    else:
        say(f"{repo.get('key')}: nothing is allowed beyond what every repository may have")


def list_repos(
    search: Annotated[
        str, typer.Option(metavar="TEXT", show_default=False, help="Part of the key, alias or URL.")
    ] = "",
    status: Annotated[
        str,
        typer.Option(
            metavar="STATUS",
            show_default=False,
            autocompletion=statuses,
            help=f"One of {', '.join(STATUSES)}.",
        ),
    ] = "",
    host: Annotated[str, typer.Option(metavar="HOST", show_default=False, help="Upstream host.")] = "",
    priority: Annotated[
        str,
        typer.Option(
            metavar="CLASS",
            show_default=False,
            autocompletion=priorities,
            help="critical, high, normal or low.",
        ),
    ] = "",
    worker: Annotated[
        str, typer.Option(metavar="NAME", show_default=False, help="Held by this worker, or to be.")
    ] = "",
    failure: Annotated[
        str, typer.Option(metavar="KIND", show_default=False, help="Failing so, such as AUTH_FAILED.")
    ] = "",
    sort: Annotated[
        str,
        typer.Option(
            metavar="ORDER",
            show_default=False,
            help="key, verified, changed, size or failures; with a minus the greatest first.",
        ),
    ] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All of them, however many.")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List repositories."""
    check_choice("--status", status, STATUSES)
    check_choice("--priority", priority, PRIORITIES)
    check_choice("--failure", failure := failure.upper(), tuple(kind.value for kind in FailureKind))
    check_choice("--sort", sort.removeprefix("-"), SORTS)
    asked = {
        "search": search, "status": status, "host": host,
        "priority": priority, "worker": worker, "failure": failure, "sort": sort,
    }  # fmt: skip
    query: dict[str, str | int] = {name: value for name, value in asked.items() if value}
    measure = _MEASURES.get(sort.removeprefix("-"), ())
    with connect(server, token_file, config) as client:
        pages = client.pages("/api/git_urls", query, None if everything else limit)
        if as_json:
            stream_json(pages)
            return
        shown, more = 0, False
        for items, cursor in pages:
            shown, more = shown + len(items), bool(cursor)
            if items or shown == 0:
                headings = ["repository", "status", "priority", "verified", "changed"]
                print_table([*headings, *measure[:1], "last error"], _rows(items, *measure[1:]))
    if more and sys.stdout.isatty():
        warn(f"{shown} shown; --all shows the rest")


# Heading and field; shown where the list is in their order.
_MEASURES = {"size": ("bytes", "size_bytes"), "failures": ("failures", "consecutive_failures")}


def _rows(items: list[Fields], *measure: str) -> list[list[object]]:
    now = time.time()
    return [
        [
            item.get("key"),
            item.get("status"),
            item.get("priority"),
            age(item.get("verified_at"), now),
            age(item.get("changed_at"), now),
            *(item.get(field) for field in measure),
            error_words(item.get("last_error")),
        ]
        for item in items
    ]


def error_words(error: object) -> str:
    """``NETWORK_TIMEOUT: connection refused``, or nothing."""
    return f"{error.get('error_type')}: {error.get('error_message')}" if isinstance(error, dict) else ""


def stream_json(pages: Iterator[tuple[list[Fields], object]]) -> None:
    """One JSON object however many pages there are, without holding them all."""
    last: object = None
    before = '{"items": [\n  '
    for items, cursor in pages:  # the first page may be refused: nothing is printed before it
        last = cursor
        for item in items:
            print(before + json.dumps(item), end="")
            before = ",\n  "
    print(("" if before.startswith(",") else '{"items": [') + f'], "next_cursor": {json.dumps(last)}}}')


def _each(
    wanted: Sequence[Wanted],
    do: Callable[[Wanted], Fields],
    *,
    as_json: bool,
    listed: bool = False,
    undo: str = "",
) -> None:
    """One after the other; a refusal of one does not stop the rest, and shows in the exit code.

    ``listed``: they come from a list, so that a refusal is a part that failed, not wrong usage. ``undo`` is
    the command that takes it back."""
    answers: list[Fields] = []
    code = ExitCode.OK
    alone = len(wanted) == 1 and not listed
    for one in wanted:
        try:
            if one.refusal:
                raise UsageError(one.refusal)
            answer = do(one)
        except EvermirrorError as error:
            if alone or error.exit_code is ExitCode.UNREACHABLE:
                raise
            if error.exit_code is ExitCode.DENIED:  # the next ones would be as well
                raise type(error)(f"{one.name}: {error.message}", hint=error.hint) from error
            code = code or (ExitCode.FAILED if listed else error.exit_code)
            warn(f"{one.name}: {error}")
            answers.append(
                {"git_url": without_passwords(one.url), "status": "refused", "detail": error.message}
            )
            continue
        answers.append(answer)
        if not as_json:
            say(f"{answer.get('status', 'done')}  {answer.get('git_url', one.url)}")
            if undo:
                warn(f"  undo: `evermirror {undo} {answer.get('git_url', one.url)}`")
    if as_json:
        print_json(answers[0] if alone else answers)
    if code:
        raise typer.Exit(code)

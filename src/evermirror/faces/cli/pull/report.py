"""`pull report`: what happened in some days, as Markdown or as one HTML file with charts."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from evermirror.errors import EvermirrorError, UsageError
from evermirror.faces.cli.client import connect
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import print_json, warn
from evermirror.faces.cli.pull.common import whole
from evermirror.faces.cli.pull.labels import is_chinese
from evermirror.faces.cli.pull.report_data import Sheet, read_report
from evermirror.faces.cli.pull.report_html import html_report
from evermirror.faces.cli.pull.report_markdown import markdown_report
from evermirror.faces.cli.pull.report_words import LANGUAGES, Words
from evermirror.model.printable import one_line
from evermirror.model.report import DAYS_MAX

FORMS: Mapping[str, Callable[[Sheet, Words, float], str]] = {
    "markdown": markdown_report,
    "html": html_report,
}
_ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}


def report(
    days: Annotated[
        int,
        typer.Option("--days", parser=whole(1, DAYS_MAX), metavar="N", help="Whole days before today."),
    ] = 7,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            show_default=False,
            help="markdown or html; default: by the name of --output, else markdown.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", show_default=False, help="Write it there."),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language", metavar="LANGUAGE", show_default=False, help="en or zh; default: your locale's."
        ),
    ] = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Report on some days: syncs, lag by class, errors, pressure on the source; with charts."""
    form = _chosen("--format", form, tuple(FORMS)) or _form_of(output)
    words = Words(_chosen("--language", language, LANGUAGES) or ("zh" if is_chinese() else "en"))
    with connect(server, token_file, config) as client:
        answer = client.get("/api/pull/report", {"days": days})
    if as_json:
        print_json(answer)
        return
    text = FORMS[form](read_report(answer), words, time.time())
    if output is None:
        sys.stdout.write(text)
    else:
        _write(output, text)
        warn(f"{output}: written")


def _chosen(option: str, given: str | None, known: tuple[str, ...]) -> str | None:
    if given is not None and given not in known:
        raise UsageError(f"{option} {one_line(given)!r} is not one of {', '.join(known)}")
    return given


def _form_of(output: Path | None) -> str:
    return _ENDINGS.get(output.suffix.lower(), "markdown") if output is not None else "markdown"


def _write(file: Path, text: str) -> None:
    """Whole or not at all."""
    if not file.name:
        raise UsageError(f"--output {file} is no file")
    made = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with made.open("xb") as opened:
            opened.write(text.encode())
        made.replace(file)
    except OSError as error:
        with suppress(OSError):
            made.unlink()
        raise EvermirrorError(
            f"{file} cannot be written: {error.strerror}", hint="Choose another --output"
        ) from error

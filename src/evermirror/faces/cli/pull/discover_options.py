"""What `pull discover` and `pull discover change` take, and how it is read. No error repeats a secret."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import SplitResult, urlsplit

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli.pull.common import minutes_of, whole
from evermirror.model.printable import one_line

FORGES = ("gitlab", "gitea", "github")
VISIBILITIES = ("private", "internal", "public")
EVERY_MIN = 1.0  # minutes, as the API has it
EVERY_MAX = 30 * 24 * 60.0
_EXAMPLE = "Write it like https://gitlab.example.com"


def text_option(*names: str, metavar: str, help: str) -> object:
    """An option with a text, whose default needs no mention."""
    return typer.Option(*names, metavar=metavar, show_default=False, help=help)


Number = Annotated[
    int, typer.Argument(metavar="ID", parser=whole(1, 10**18), help="As `discover list` shows it.")
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until the run has ended.")]
Include = Annotated[
    list[str] | None, text_option("--include", metavar="GLOB", help="Only such paths; repeatable.")
]
Exclude = Annotated[
    list[str] | None, text_option("--exclude", metavar="GLOB", help="No such paths; repeatable, wins.")
]
CredentialName = Annotated[
    str | None,
    text_option("--credential", metavar="NAME", help="A credential of the settings, for the source."),
]
TargetUrl = Annotated[
    str | None, text_option("--target", metavar="URL", help="Instance and group where mirrors are made.")
]
TargetCredential = Annotated[
    str | None, text_option("--target-credential", metavar="NAME", help="A credential for the target.")
]
TargetForge = Annotated[str | None, text_option("--target-forge", metavar="KIND", help="Of the target.")]
Every = Annotated[
    str | None, text_option("--every", metavar="TIME", help="Looked at again: 1m to 30d; at first 1h.")
]
Once = Annotated[bool, typer.Option("--once", help="Not looked at again by itself.")]
Prefix = Annotated[str | None, text_option("--prefix", metavar="TEXT", help="Before the project keys.")]
Visible = Annotated[
    str | None,
    text_option(
        "--visibility", metavar="V", help="Of what is made: private, internal, public; default: as there."
    ),
]


def one_of(option: str, text: str | None, known: tuple[str, ...]) -> str | None:
    """``text``, if it is known; raises UsageError."""
    if text is not None and text not in known:
        raise UsageError(f"{option} {one_line(text)!r} is not one of {', '.join(known)}")
    return text


def every_of(text: str | None, *, once: bool) -> dict[str, object]:
    """``every`` in minutes, as the API takes it, where either was given."""
    if once and text is not None:
        raise UsageError("--once and --every are both given", hint="Keep one")
    if once:
        return {"every": None}
    minutes = minutes_of("--every", text)
    if minutes is None:
        return {}
    if not EVERY_MIN <= minutes <= EVERY_MAX:
        raise UsageError(
            f"--every {one_line(text or '')!r} is not from 1 minute to 30 days", hint="Such as 1h; or --once"
        )
    return {"every": minutes}


def source_of(source: str, group: str | None) -> tuple[str, str]:
    """The instance and the group; a group may also stand in the address."""
    parts = _address("SOURCE", source)
    if group is not None:
        return source, group
    path = parts.path.strip("/")
    if not path:
        raise UsageError("--group is missing", hint="Such as --group devops")
    return f"{parts.scheme}://{parts.netloc}", path


def target_of(url: str | None) -> str | None:
    """Raises UsageError where it is no address, or more than one."""
    if url is not None:
        _address("--target", url)
    return url


def forge_of(option: str, kind: str | None, url: str | None) -> str | None:
    """github.com is known; everything else is a GitLab unless it is said."""
    if kind is not None or url is None:
        return one_of(option, kind, FORGES)
    return "github" if urlsplit(url).hostname == "github.com" else None


def _address(option: str, text: str) -> SplitResult:
    if any(mark in text for mark in "@?#"):
        raise UsageError(
            f"{option} has a user, a password, or something after ? or #: it must be an address alone",
            hint=f"{_EXAMPLE}; a token goes into the settings and is named by its credential",
        )
    try:
        parts = urlsplit(text)
        fine = bool(parts.scheme and parts.hostname) and (parts.port or 0) >= 0
    except ValueError:
        fine = False
    if not fine:
        raise UsageError(f"{option} {one_line(text)!r} is not an address", hint=_EXAMPLE)
    return parts

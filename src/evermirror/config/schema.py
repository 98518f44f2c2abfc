"""The settings as a list: path, kind and explanation of each, read off the model so that none goes stale."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from pydantic.fields import FieldInfo

from evermirror.config.alerts_section import Channel
from evermirror.config.credential_section import Credential
from evermirror.config.events_section import EventHook
from evermirror.config.section import Section
from evermirror.config.settings import Config
from evermirror.config.values import Kind

KeyPath = tuple[str, ...]
CREDENTIALS = "credentials"
CHANNELS = "channels"
EVENT_HOOKS = "event_hooks"
ANY_NAME = "NAME"  # stands for the name that the user chose
NAMED: Mapping[str, type[Section]] = {  # one table each
    CREDENTIALS: Credential,
    CHANNELS: Channel,
    EVENT_HOOKS: EventHook,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of the file. ``path`` of what the user named holds ANY_NAME."""

    path: KeyPath
    kind: Kind
    optional: bool
    choices: tuple[str, ...]
    default: object
    description: str
    bounds: str

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def may_come_from_file(self) -> bool:
        """Whether ``<key>_file`` is accepted in its place: everything that may hold a secret."""
        return self.kind in (Kind.SECRET, Kind.URL)

    @property
    def accepted(self) -> str:
        """What may be written, in words."""
        words = f"one of {', '.join(self.choices)}" if self.kind is Kind.CHOICE else self.kind.value
        words += self.bounds
        return words + ' or "none"' if self.optional and self.kind is not Kind.SECRET else words


@cache
def all_settings() -> tuple[Setting, ...]:
    """Every setting, in the order of the model."""
    return tuple(_walk())


@cache
def section_notes() -> tuple[tuple[str, str], ...]:
    """Name and first line of explanation of every section."""
    return tuple(
        (name, (_section_class(name).__doc__ or "").partition("\n")[0]) for name in Config.model_fields
    )


def subsection_note(path: KeyPath) -> str:
    """First line of explanation of a table within a section."""
    section = _section_class(path[0])
    for key in path[1:]:
        section = _annotated(section.model_fields[key], key)
    return (section.__doc__ or "").partition("\n")[0]


def find_setting(path: KeyPath) -> Setting | None:
    """The setting at ``path``, with the name that the user chose in it."""
    return _by_path().get(_generic(path))


def is_section(path: KeyPath) -> bool:
    """Whether ``path`` is a table of settings and not a setting."""
    generic = _generic(path)
    return any(s.path[: len(generic)] == generic and len(s.path) > len(generic) for s in all_settings())


def _generic(path: KeyPath) -> KeyPath:
    return (path[0], ANY_NAME, *path[2:]) if len(path) > 1 and path[0] in NAMED else path


@cache
def _by_path() -> dict[KeyPath, Setting]:
    return {s.path: s for s in all_settings()}


def _section_class(name: str) -> type[Section]:
    if name in NAMED:
        return NAMED[name]
    return _annotated(Config.model_fields[name], name)


def _annotated(field: FieldInfo, name: str) -> type[Section]:
    annotation = field.annotation
    if not (isinstance(annotation, type) and issubclass(annotation, Section)):
        raise TypeError(f"{name} is not a section")
    return annotation


def _walk() -> Iterator[Setting]:
    for section in Config.model_fields:
        prefix = (section, ANY_NAME) if section in NAMED else (section,)
        yield from _of_section(prefix, _section_class(section))


def _of_section(prefix: KeyPath, section: type[Section]) -> Iterator[Setting]:
    for key, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from _of_section((*prefix, key), inner)
        else:
            yield _setting((*prefix, key), field)


def _setting(path: KeyPath, field: FieldInfo) -> Setting:
    return Setting(
        path=path,
        kind=next(m for m in field.metadata if isinstance(m, Kind)),
        optional=types.NoneType in typing.get_args(field.annotation),
        choices=_choices(field.annotation),
        default=field.default,
        description=field.description or "",
        bounds=_bounds(field),
    )


def _choices(annotation: object) -> tuple[str, ...]:
    if typing.get_origin(annotation) is typing.Literal:
        return tuple(str(a) for a in typing.get_args(annotation))
    if annotation is bool:
        return ("true", "false")
    return tuple(c for a in typing.get_args(annotation) for c in _choices(a))


_BOUND_WORDS = (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most"))


def _bounds(field: FieldInfo) -> str:
    """`` (above 0, at most 1)``, or nothing."""
    found = [
        f"{word} {getattr(m, bound)}"
        for m in field.metadata
        for bound, word in _BOUND_WORDS
        if hasattr(m, bound)
    ]
    found = [f for f in found if f != "at least 0"]  # nobody writes less
    return f" ({', '.join(found)})" if found else ""

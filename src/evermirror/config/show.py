"""Settings written out for people: with secrets masked, where each came from, and as a commented file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from evermirror.config.alerts_section import Channel
from evermirror.config.load import LoadedConfig, Origin
from evermirror.config.schema import (
    CHANNELS,
    CREDENTIALS,
    EVENT_HOOKS,
    NAMED,
    KeyPath,
    Setting,
    all_settings,
    section_notes,
    subsection_note,
)
from evermirror.config.settings import Config
from evermirror.config.values import Kind
from evermirror.model.duration import format_duration, format_size, parse_size

MASK = "********"


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """One setting as it may be printed: ``value`` never holds a secret."""

    name: str
    value: object
    origin: Origin


def shown_settings(loaded: LoadedConfig) -> Iterator[ShownSetting]:
    """Every setting in force, in the order of the model; of what users name those that are there, and of a
    channel what means something to its type."""
    for section, settings in groupby(all_settings(), key=lambda setting: setting.path[0]):
        yield from (
            ShownSetting(".".join(path), _plain(setting, _value_at(loaded.config, path)), loaded.origin(path))
            for path, setting in _instances(section, tuple(settings), loaded.config)
        )


def as_toml(value: object) -> str:
    """A plain value as it is written in the file."""
    match value:
        case None:
            return '"none"'
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{', '.join(as_toml(v) for v in value)}]"
        case Mapping():
            return f"{{{', '.join(f'{as_toml(k)} = {as_toml(v)}' for k, v in value.items())}}}"
        case _:
            return str(value)


def template() -> str:
    """A settings file with everything in it, commented out: taking a `#` away changes nothing yet."""
    parts = [_TEMPLATE_HEAD]
    for section, note in section_notes():
        if section == CREDENTIALS:
            parts.append(_CREDENTIALS_EXAMPLE)
            continue
        if section in _EXAMPLES:
            parts.append(_example(section))
            continue
        settings = (setting for setting in all_settings() if setting.path[0] == section)
        for table, inside in groupby(settings, key=lambda setting: setting.path[:-1]):
            lines = [f"# {note if len(table) == 1 else subsection_note(table)}", f"[{'.'.join(table)}]"]
            for setting in inside:
                lines += [f"# {setting.description}", *_template_lines(setting)]
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


_TEMPLATE_HEAD = """\
# Settings of evermirror. Every setting is here with its default; take the # away to change one.
# The same from the environment: EVERMIRROR_SECTION__KEY, lists as JSON. Flags come before both.
# Secrets may be kept in files: KEY_file = "path" here, EVERMIRROR_SECTION__KEY__FILE=path there.
# "none" unsets what may be unset. See also `evermirror config check` and `config show`."""

_CREDENTIALS_EXAMPLE = """\
# Ways to sign in; repositories and targets refer to them by name. Also: username, password, ssh_key_file,
# forge = "gitlab", "gitea", "github" or "gitee" (a target's default branch then follows the source's; also
# for `pull discover`, and hooks), forge_url = "https://example.org/gitlab" (where that forge is asked about
# hooks, if not at the repositories' host), expires = "2027-06-30" (its last day, where the forge does not
# tell), and hosts = ["gitlab.example.org"]: it is sent nowhere else, and hooks are registered there with it.
# [credentials.example]
# token_file = "/run/secrets/example-token\""""


_EXAMPLES = {
    CHANNELS: "Where people are told of alerts; one section for each channel. Try: `evermirror alerts test`.",
    EVENT_HOOKS: "Servers that are told of events; one section for each. Try: `evermirror events test NAME`.",
}


def _example(section: str) -> str:
    lines = [f"# {_EXAMPLES[section]}", f"# [{section}.example]"]
    for setting in all_settings():
        if setting.path[0] == section:
            lines += [f"# # {setting.description}", f"# {_example_of(setting)}"]
    return "\n".join(lines)


def _example_of(setting: Setting) -> str:
    key = setting.path[-1]
    if setting.kind is Kind.SECRET:
        return f'{key} = "…", or {key}_file = "path"'
    default = setting.choices[0] if setting.default is PydanticUndefined else setting.default
    return f"{key} = {as_toml(_plain(setting, default))}"


def _template_lines(setting: Setting) -> list[str]:
    key = setting.path[-1]
    if setting.kind is Kind.SECRET:
        return [f'# {key} = "…", or {key}_file = "path"']
    return [f"#{key} = {as_toml(_plain(setting, setting.default))}"]


def _instances(
    section: str, settings: Sequence[Setting], config: Config
) -> Iterator[tuple[KeyPath, Setting]]:
    """Each setting where it is; one table after the other where the user named them."""
    if section not in NAMED:
        yield from ((setting.path, setting) for setting in settings)
        return
    for name, table in getattr(config, section).items():
        for setting in settings:
            if not isinstance(table, Channel) or setting.path[2] in table.meaningful:
                yield (section, name, *setting.path[2:]), setting


def _value_at(config: Config, path: KeyPath) -> object:
    node: object = config
    for key in path:
        node = node[key] if isinstance(node, Mapping) else getattr(node, key)
    return node


def _plain(setting: Setting, value: object) -> object:
    """Text, numbers and lists only, as a user would write them."""
    match setting.kind, value:
        case _, None:
            return None
        case Kind.SECRET, _:
            return MASK
        case Kind.SECRETS, Mapping():
            return dict.fromkeys(value, MASK)
        case Kind.URL, str():
            return without_password(value)
        case Kind.DURATION, float() | int():
            return format_duration(value)
        case Kind.SIZE, int():
            return _exact_size(value)
        case Kind.RATE, float() | int():
            return f"{value:g}/s"
        case _, Path() | date():
            return str(value)
        case _, SecretStr():
            return MASK
        case Kind.SOURCES, tuple():
            return [source.as_written() for source in value]
        case _, tuple():
            return list(value)
        case _:
            return value


def _exact_size(size_bytes: int) -> str:
    """People's units where they lose nothing."""
    short = format_size(size_bytes)
    return short if parse_size(short) == size_bytes else f"{size_bytes}B"


def without_password(url: str) -> str:
    """The URL with its password masked; what cannot be parsed is masked whole."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    netloc = f"{name}:{MASK}@{host}" if colon else f"{user}{at}{host}"
    query = MASK if "password" in parts.query.lower() else parts.query
    return urlunsplit(parts._replace(netloc=netloc, query=query))

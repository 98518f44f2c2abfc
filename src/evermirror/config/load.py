"""Puts the settings together: defaults < file < environment < flags; every problem is told, with its place.

file ──flatten──┐
environment ────┼─► {path: (value, origin)} ──► Config.model_validate ──► Config
flags ──────────┘            later layers win        each error is told at its origin
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from pydantic import ValidationError

from evermirror.config.explain import explain, suggest
from evermirror.config.schema import KeyPath, all_settings, find_setting, is_section
from evermirror.config.settings import Config
from evermirror.config.toml_lines import key_lines
from evermirror.config.values import Kind
from evermirror.errors import ConfigError

FILE_NAME = "evermirror.toml"
SYSTEM_FILE = Path("/etc/evermirror") / FILE_NAME
ENV_PREFIX = "EVERMIRROR_"
SECRET_FILE_SUFFIX = "_file"  # noqa: S105 (a suffix of key names)
FILE_BYTES_MAX = 1_000_000  # a settings file is kilobytes; more is some other file
SECRET_BYTES_MAX = 64_000  # a key or token is kilobytes


class OriginKind(Enum):
    """Which layer a value came from."""

    DEFAULT = "default"
    FILE = "file"
    ENV = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written: ``evermirror.toml:3``, ``EVERMIRROR_FLEET__GRACE``, ``command line``."""

    kind: OriginKind
    where: str

    def __str__(self) -> str:
        return self.where


DEFAULT = Origin(OriginKind.DEFAULT, "default")


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The settings, and where each of them came from."""

    config: Config
    file: Path | None
    origins: Mapping[KeyPath, Origin]

    def origin(self, path: KeyPath) -> Origin:
        return self.origins.get(path, DEFAULT)


def load_config(
    file: Path | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    """The settings of this process; raises ConfigError with all problems together.

    ``file`` None: the usual places; ``env`` None: the process's own; ``overrides``: flags, by setting."""
    return load(file, env, overrides).config


def load(
    file: Path | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> LoadedConfig:
    """As ``load_config``, with where each value came from."""
    env = os.environ if env is None else env
    file = find_config_file(env) if file is None else file
    layers = _Layers()
    if file is not None:
        layers.add_file(file)
    layers.add_env(env)
    for name, value in (overrides or {}).items():
        path = tuple(name.split("."))
        layers.add(
            path, list(value) if isinstance(value, tuple) else value, Origin(OriginKind.FLAG, "command line")
        )
    return layers.finish(file)


def find_config_file(env: Mapping[str, str]) -> Path | None:
    """``./evermirror.toml``, else the user's, else the system's; None where there is none."""
    home = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    places = [Path(FILE_NAME), *([Path(home) / "evermirror" / FILE_NAME] if home else []), SYSTEM_FILE]
    return next((p for p in places if p.is_file()), None)


@dataclass(slots=True)
class _Layers:
    values: dict[KeyPath, tuple[object, Origin]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def problem(self, origin: Origin, text: str) -> None:
        self.problems.append(f"{origin}: {text}")

    def add(self, path: KeyPath, value: object, origin: Origin) -> None:
        """Later calls win. A ``…_file`` key is replaced by what its file holds."""
        if secret := _secret_of_file_key(path):
            path = secret
            value = self._read_secret(secret, value, origin)
            if value is None:
                return
        self.values[path] = (value, origin)

    def add_file(self, file: Path) -> None:
        origin = Origin(OriginKind.FILE, str(file))
        try:
            with file.open("rb") as opened:
                raw = opened.read(FILE_BYTES_MAX + 1)
            if len(raw) > FILE_BYTES_MAX:
                raise ValueError(f"is larger than {FILE_BYTES_MAX} bytes: not a settings file")
            text = raw.decode("utf-8")
            tree = tomllib.loads(text)
        except OSError as error:
            self.problem(origin, f"cannot be read: {error.strerror}")
        except UnicodeDecodeError:
            self.problem(origin, "is not UTF-8 text")
        except tomllib.TOMLDecodeError as error:
            self.problems.append(_syntax_problem(file, text, error))
        except ValueError as error:
            self.problem(origin, str(error))
        else:
            lines = key_lines(text)
            for path, value in _leaves(tree):
                where = next((lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in lines), 0)
                self._add_from_file(path, value, Origin(OriginKind.FILE, f"{file}:{where}"))

    def _add_from_file(self, path: KeyPath, value: object, origin: Origin) -> None:
        secret = _secret_of_file_key(path)
        if (secret or path) in self.values:
            self.problem(origin, f"{'.'.join(path)}: given twice, as itself and as a file: keep one")
        elif is_section(path):
            self.problem(
                origin, f"{'.'.join(path)}: is a section: write [{'.'.join(path)}] and its settings below"
            )
        else:
            self.add(path, value, origin)

    def add_env(self, env: Mapping[str, str]) -> None:
        seen: set[KeyPath] = set()
        for name, text in sorted(env.items()):
            if not name.startswith(ENV_PREFIX) or not text:  # empty: as good as not set
                continue
            origin = Origin(OriginKind.ENV, f"environment {name}")
            if "__" not in name:
                if meant := _forgotten_underscore().get(name):
                    self.problem(origin, f"is not read; did you mean {meant}?")
                continue
            path = _env_path(name)
            target = _secret_of_file_key(path) or path
            if target in seen:
                self.problem(origin, f"{'.'.join(target)}: given twice, as itself and as a file: keep one")
            elif is_section(path):
                self.problem(origin, f"{'.'.join(path)}: is a section, not a setting")
            else:
                seen.add(target)
                self.add(path, _env_value(path, text), origin)

    def _read_secret(self, secret: KeyPath, value: object, origin: Origin) -> str | None:
        name = ".".join(secret) + SECRET_FILE_SUFFIX
        if not isinstance(value, str) or not value:
            self.problem(origin, f"{name}: is not a path; accepted: a path in a string")
            return None
        try:
            with Path(value).expanduser().open("rb") as opened:
                raw = opened.read(SECRET_BYTES_MAX + 1)
            text = raw.decode("utf-8").rstrip("\r\n")
        except OSError as error:
            self.problem(origin, f"{name}: {value!r} cannot be read: {error.strerror}")
        except UnicodeDecodeError:
            self.problem(origin, f"{name}: {value!r} is not UTF-8 text")
        else:
            if text and len(raw) <= SECRET_BYTES_MAX:
                return text
            self.problem(origin, f"{name}: {value!r} is {'too large for a secret' if text else 'empty'}")
        return None

    def finish(self, file: Path | None) -> LoadedConfig:
        config = self._validated()
        if config is None or self.problems:
            raise ConfigError(self.problems)
        return LoadedConfig(config, file, {path: origin for path, (_, origin) in self.values.items()})

    def _validated(self) -> Config | None:
        tree: dict[str, object] = {}
        for path, (value, origin) in self.values.items():
            if find_setting(path) is None:
                self.problem(origin, f"{'.'.join(path)}: is not a setting{suggest(path)}")
            else:
                _put(tree, path, value)
        try:
            return Config.model_validate(tree)
        except ValidationError as error:
            for path, text in explain(error, tree):
                _, origin = self.values.get(path) or self._near(path)
                self.problem(origin, f"{'.'.join(path)}: {text}")
            return None

    def _near(self, path: KeyPath) -> tuple[object, Origin]:
        """A missing setting is told at a neighbour: below it, else beside it."""
        for length in (len(path), len(path) - 1):
            for other, found in self.values.items():
                if other[:length] == path[:length]:
                    return found
        return None, DEFAULT


def _secret_of_file_key(path: KeyPath) -> KeyPath | None:
    """``worker.token_file`` or ``worker.token.file`` → ``worker.token``."""
    if find_setting(path) is not None:
        return None
    if path[-1] == "file":
        base = path[:-1]
    elif path[-1].endswith(SECRET_FILE_SUFFIX):
        base = (*path[:-1], path[-1].removesuffix(SECRET_FILE_SUFFIX))
    else:
        return None
    setting = find_setting(base)
    return base if setting is not None and setting.may_come_from_file else None


def _leaves(tree: Mapping[str, object], prefix: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Settings, and whatever stands where none is known; empty tables say nothing."""
    for key, value in tree.items():
        path = (*prefix, key)
        if isinstance(value, dict) and find_setting(path) is None and (value or is_section(path)):
            yield from _leaves(value, path)
        else:
            yield path, value


def _put(tree: dict[str, object], path: KeyPath, value: object) -> None:
    node = tree
    for key in path[:-1]:
        below = node.setdefault(key, {})
        assert isinstance(below, dict)  # noqa: S101 (no setting lies below another: see find_setting)
        node = below
    node[path[-1]] = value


def _env_path(name: str) -> KeyPath:
    return tuple(name.removeprefix(ENV_PREFIX).lower().split("__"))


def _env_value(path: KeyPath, text: str) -> object:
    """Text stays text; the rest is JSON where it can be read as such."""
    setting = find_setting(path)
    if setting is None or setting.kind not in (
        Kind.COUNT,
        Kind.NUMBER,
        Kind.FLAG,
        Kind.CHOICE,
        Kind.LIST,
        Kind.SOURCES,
        Kind.SECRETS,
    ):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _forgotten_underscore() -> dict[str, str]:
    """EVERMIRROR_FLEET_GRACE is easily written for EVERMIRROR_FLEET__GRACE, and would do nothing."""
    names = (ENV_PREFIX + "__".join(s.path).upper() for s in all_settings())
    return {name.replace("__", "_"): name for name in names}


_AT_LINE = re.compile(r"^(?P<what>.*) \(at (line (?P<line>\d+), column \d+|end of document)\)$", re.DOTALL)


def _syntax_problem(file: Path, text: str, error: tomllib.TOMLDecodeError) -> str:
    found = _AT_LINE.match(str(error))
    if found is None:
        return f"{file}: is not TOML: {error}"
    line = found["line"] or len(text.splitlines())
    return f"{file}:{line}: is not TOML: {found['what']}"

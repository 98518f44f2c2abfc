"""What people may set of the strategy and of projects: each value with its bounds. Errors name the field as
people write it, and nothing is changed by what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from evermirror.core.pull.layers import ProjectChange, Setting
from evermirror.errors import Conflict, InvalidUrl, UsageError
from evermirror.model.pull import (
    CONCURRENT_MAX,
    INTERVAL_MAX_S,
    MINUTE,
    RETRIES_MAX,
    RETRY_DELAY_MAX_S,
    TARGETS_MAX,
    Project,
    Strategy,
    TargetSpec,
)
from evermirror.model.repo import RepoKey
from evermirror.model.url import UrlRules, parse_url

NAME_MAX_CHARS = 100


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of the strategy: its name for people, and what it takes."""

    name: str
    check: Callable[[str, object], object]


def new_strategy(known: Strategy, values: Mapping[str, object]) -> Strategy:
    """``known`` with these values, by the model's names."""
    checked: dict[str, object] = {}
    for key, value in values.items():
        field = _STRATEGY.get(key)
        if field is None:
            raise UsageError(
                f"{key} is not part of the strategy", hint=f"Known are: {', '.join(FIELD_NAMES)}"
            )
        checked[key] = field.check(field.name, value)
    strategy = replace(known, **checked)  # type: ignore[arg-type]
    night = (strategy.night_start, strategy.night_end, strategy.night_max_concurrent)
    if None in night and any(value is not None for value in night):
        raise UsageError(
            "night_hours_start, night_hours_end and night_max_concurrent belong together",
            hint="Give all three, or none",
        )
    return strategy


def checked_change(
    change: ProjectChange, rules: UrlRules, credentials: frozenset[str], source: RepoKey
) -> ProjectChange:
    """The change with its targets' URLs as git gets them."""
    if change.interval_s is not None and not MINUTE <= change.interval_s <= INTERVAL_MAX_S:
        most = INTERVAL_MAX_S / MINUTE
        raise UsageError(
            f"{Setting.INTERVAL.value} must be from 1 to {most:.0f} minutes", hint="For example 30"
        )
    if change.max_retries is not None and not 0 <= change.max_retries <= RETRIES_MAX:
        raise UsageError(f"{Setting.RETRIES.value} must be from 0 to {RETRIES_MAX}")
    if change.retry_delay_s is not None and not 0 < change.retry_delay_s <= RETRY_DELAY_MAX_S:
        most = RETRY_DELAY_MAX_S / MINUTE
        raise UsageError(f"{Setting.RETRY_DELAY.value} must be more than 0, up to {most:.0f} minutes")
    if change.targets is None:
        return change
    return replace(change, targets=checked_targets(change.targets, rules, credentials, source))


def checked_targets(
    targets: tuple[TargetSpec, ...], rules: UrlRules, credentials: frozenset[str], source: RepoKey
) -> tuple[TargetSpec, ...]:
    if len(targets) > TARGETS_MAX:
        raise UsageError(f"targets: {len(targets)} are given, and at most {TARGETS_MAX} can be")
    found: list[TargetSpec] = []
    keys = {source: "the source itself"}
    for number, target in enumerate(targets):
        where = f"targets.{number}.url"
        try:
            url = parse_url(target.url, rules)
        except InvalidUrl as error:
            raise InvalidUrl(f"{where}: {error.reason}", hint=error.hint) from None
        if url.key in keys:
            raise UsageError(f"{where}: {target.url} is {keys[url.key]}", hint="Name every target once")
        keys[url.key] = f"the same as targets.{number}"
        check_credential(f"targets.{number}.credential", target.credential, credentials)
        found.append(TargetSpec(url.text, target.credential))
    return tuple(found)


def check_enabled(project: Project) -> None:
    """Raises ``Conflict`` for a project that nobody may sync now."""
    if not project.config.enabled:
        why = f" by itself: {project.paused}" if project.paused else ""
        raise Conflict(
            f"{project.name} is disabled{why}",
            hint=f"Enable it: `evermirror pull errors reset {project.name}`",
        )


def check_credential(where: str, name: str | None, known: frozenset[str]) -> None:
    if name is not None and name not in known:
        raise UsageError(
            f"{where}: there is no credential named {name!r}",
            hint="Credentials are settings: credentials.NAME",
        )


def _whole(least: int, most: int, *, optional: bool = False) -> Callable[[str, object], object]:
    def check(name: str, value: object) -> object:
        if value is None and optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise UsageError(f"{name} must be a whole number from {least} to {most}, not {_shown(value)}")
        return value

    return check


def _hour(most: int, *, optional: bool = False) -> Callable[[str, object], object]:
    def check(name: str, value: object) -> object:
        if value is None and optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise UsageError(
                f"{name} must be an hour of the day from 0 to {most}, not {_shown(value)}",
                hint="A window may cross midnight: 22 to 6",
            )
        return value

    return check


def _flag(name: str, value: object) -> object:
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false, not {_shown(value)}")
    return value


def _title(name: str, value: object) -> object:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= NAME_MAX_CHARS:
        raise UsageError(f"{name} must be a text of 1 to {NAME_MAX_CHARS} printable characters")
    return value


def _shown(value: object) -> str:
    return repr(value)[:50]


_STRATEGY = {
    "name": _Field("strategy_name", _title),
    "max_concurrent": _Field("max_concurrent_pulls", _whole(1, CONCURRENT_MAX)),
    "peak_avoidance": _Field("enable_peak_avoidance", _flag),
    "peak_start": _Field("peak_hours_start", _hour(23)),
    "peak_end": _Field("peak_hours_end", _hour(24)),
    "peak_max_concurrent": _Field("peak_max_concurrent", _whole(1, CONCURRENT_MAX)),
    "off_peak_max_concurrent": _Field("off_peak_max_concurrent", _whole(1, CONCURRENT_MAX)),
    "night_start": _Field("night_hours_start", _hour(23, optional=True)),
    "night_end": _Field("night_hours_end", _hour(24, optional=True)),
    "night_max_concurrent": _Field("night_max_concurrent", _whole(1, CONCURRENT_MAX, optional=True)),
    "adaptive": _Field("enable_adaptive", _flag),
    "enabled": _Field("enabled", _flag),
}
FIELD_NAMES = tuple(field.name for field in _STRATEGY.values())

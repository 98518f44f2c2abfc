"""Which of a group's projects are wanted: by the patterns that a person gave, and whether they are archived.

Patterns are globs over the whole path at the source: ``devops/*`` is everything in devops, at any depth (a
``*`` goes over slashes). Letters' case does not count, as it does not at a forge. ``exclude`` wins.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from evermirror.errors import InvalidValue
from evermirror.model.discovery import DiscoverySpec
from evermirror.model.forge import FoundProject

PATTERNS_MAX = 100
PATTERN_MAX_CHARS = 255


def is_chosen(spec: DiscoverySpec, project: FoundProject) -> bool:
    if project.archived and not spec.archived:
        return False
    if _matches(spec.exclude, project.path):
        return False
    return not spec.include or _matches(spec.include, project.path)


def check_patterns(name: str, patterns: tuple[str, ...]) -> None:
    """Raises InvalidValue that names the field."""
    if len(patterns) > PATTERNS_MAX:
        raise InvalidValue(f"{name}: {len(patterns)} patterns are given, and at most {PATTERNS_MAX} can be")
    for pattern in patterns:
        if not 0 < len(pattern) <= PATTERN_MAX_CHARS or not pattern.isprintable():
            raise InvalidValue(
                f"{name}: a pattern has 1 to {PATTERN_MAX_CHARS} printable characters",
                hint="Such as devops/tools/*",
            )


def _matches(patterns: tuple[str, ...], path: str) -> bool:
    folded = path.casefold()
    return any(fnmatchcase(folded, pattern.casefold()) for pattern in patterns)

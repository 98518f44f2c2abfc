"""Which paths GitLab takes for groups and projects, in its own words where it does not."""

from __future__ import annotations

import re

_PATH = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")
_PATH_WORDS = (
    "can only include non-accented letters, digits, '_', '-' and '.'. "
    "It must not start with '-', '_', or '.', nor end with '-', '_', '.', '.git', or '.atom'."
)
_TWICE = re.compile(r"[_.-]{2}")
_NAME = re.compile(r"[\w\U0001f300-\U0001faff][\w\U0001f300-\U0001faff .+'()-]*")
_NAME_WORDS = (
    "can contain only letters, digits, emoji, '_', '.', '+', dashes, or spaces. "
    "It must start with a letter, digit, emoji, or '_'."
)
PATH_MAX = 255
_TOP = (
    "admin api assets dashboard explore files groups help import login oauth profile projects public s search"
)
RESERVED_AT_THE_TOP = frozenset({"-", *_TOP.split(), "snippets", "unsubscribes", "uploads", "users", "v2"})
_PAGES = "badges blame blob builds commits create edit files find_file new preview raw refs tree update wikis"
RESERVED_PROJECTS = frozenset({"-", *_PAGES.split()})


def path_refusal(path: str) -> str:
    """Why a project or group cannot have this last part of a path; "": it can."""
    if not _PATH.fullmatch(path) or path[-1] in "-_." or path[0] in "-_." or path.endswith((".git", ".atom")):
        return _PATH_WORDS
    if _TWICE.search(path):
        return "must not contain consecutive special characters."
    if len(path) > PATH_MAX:
        return f"is too long (maximum is {PATH_MAX} characters)"
    return ""


def project_refusal(path: str) -> str:
    return path_refusal(path) or (f"{path} is a reserved name" if path.lower() in RESERVED_PROJECTS else "")


def group_refusal(path: str, *, top: bool) -> str:
    reserved = RESERVED_AT_THE_TOP if top else RESERVED_PROJECTS
    return path_refusal(path) or (f"{path} is a reserved name" if path.lower() in reserved else "")


def name_refusal(name: str) -> str:
    if not _NAME.fullmatch(name):
        return _NAME_WORDS
    return f"is too long (maximum is {PATH_MAX} characters)" if len(name) > PATH_MAX else ""

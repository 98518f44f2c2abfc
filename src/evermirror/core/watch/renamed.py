"""What people should know of a repo that has another name at its forge now."""

from __future__ import annotations

from evermirror.model.alert import Alert
from evermirror.model.repo import RepoKey

URL_MAX_CHARS = 200


def renamed_alert(key: RepoKey, url: str, *, over: bool = False) -> Alert:
    """``url``: where a hook says it is now."""
    shown = url[:URL_MAX_CHARS]
    text = f"{key} was renamed at its forge: add {shown}, and remove the old name once it is mirrored"
    return Alert("repo-renamed", key, text, over, facts={"to": shown})

"""What people should know of a repo that a guard holds back."""

from __future__ import annotations

from evermirror.model.alert import Alert
from evermirror.model.repo import RepoRecord

REASON_MAX_CHARS = 200


def held_alert(repo: RepoRecord) -> Alert:
    """Its last failure says what upstream did."""
    facts = {}
    text = f"a guard holds back what upstream did to {repo.key}"
    if repo.last_failure is not None:
        facts["reason"] = " ".join(repo.last_failure.message.split())[:REASON_MAX_CHARS]
        text += f": {facts['reason']}"
    return Alert("repo-held", repo.key, text, facts=facts)

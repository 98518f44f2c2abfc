"""Gitea's hooks of a repository. A push makes a branch known by ``create`` too, and deletes it by ``delete``
only. It tells nobody that a repository was renamed, and its API nothing about deliveries. A Gitea before 1.20
leaves the secret of a hook that is changed as it was: a person removes the hook, and registers again."""

from __future__ import annotations

from collections.abc import Mapping

from evermirror.edge.forge.hooks_rest import RestHooks, id_in, names_in, url_in
from evermirror.edge.forge.words import Row
from evermirror.model.forge import Forge
from evermirror.model.hook import ForgeHook, WantedHook

_FILTERED = frozenset({"push", "create", "delete"})  # that a branch filter is about
_ALL_BRANCHES = ("", "*", "**", None)
_SPEAKS = ("gitea", "forgejo")  # types of hooks with Gitea's own bodies


class GiteaHooks(RestHooks):
    """See ``ForgeHooks``."""

    forge = Forge.GITEA
    events = frozenset({"push", "create", "delete"})
    rights = (
        "The token needs the scope write:repository, and its owner must be an administrator of the repository"
    )
    page_size = 50  # Gitea's usual bound
    page_word = "limit"

    def _body(self, wanted: WantedHook) -> Mapping[str, object]:
        config = {"url": wanted.url, "content_type": "json", "secret": wanted.secret}
        return {
            "type": "gitea",
            "active": True,
            "events": sorted(wanted.events),
            "branch_filter": "",
            "config": config,
        }

    def _read(self, row: Row) -> ForgeHook:
        told = row.get("config")
        config = told if isinstance(told, dict) else {}
        events = names_in(row, "events")
        if row.get("branch_filter") not in _ALL_BRANCHES:
            events -= _FILTERED
        return ForgeHook(
            id=id_in(row),
            url=url_in(config),
            active=row.get("active") is True,
            events=events,
            json=config.get("content_type") == "json" and row.get("type", "gitea") in _SPEAKS,
        )

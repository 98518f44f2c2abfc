"""Gitee's hooks of a repository (API v5). They cannot be switched off, and are registered with a signing key
(``encryption_type`` 1): the other kind sends its password as it is. Gitee shows the key to whoever may list
the hooks; it is not read here."""

from __future__ import annotations

from collections.abc import Mapping

from evermirror.edge.forge.hooks_rest import RestHooks, id_in, url_in
from evermirror.edge.forge.words import Row
from evermirror.model.forge import Forge
from evermirror.model.hook import ForgeHook, WantedHook

_EVENTS = ("push_events", "tag_push_events", "issues_events", "note_events", "merge_requests_events")
_SIGNED = 1


class GiteeHooks(RestHooks):
    """See ``ForgeHooks``."""

    forge = Forge.GITEE
    events = frozenset({"push_events", "tag_push_events"})
    rights = "The token needs the permission hook, and its owner must be an administrator of the repository"

    def _body(self, wanted: WantedHook) -> Mapping[str, object]:
        return {
            "url": wanted.url,
            "encryption_type": _SIGNED,
            "password": wanted.secret,
            **{event: event in wanted.events for event in _EVENTS},
        }

    def _read(self, row: Row) -> ForgeHook:
        return ForgeHook(
            id=id_in(row),
            url=url_in(row),
            active=True,
            events=frozenset(event for event in _EVENTS if row.get(event) is True),
            trouble=self._trouble(row),
        )

    def _trouble(self, row: Row) -> str:
        """``result_code`` is 0 or null before the first delivery."""
        code = row.get("result_code")
        if not isinstance(code, int) or code == 0 or 200 <= code < 300:
            return ""
        return self._words(f"{code}: {row.get('result') or 'not delivered'}")

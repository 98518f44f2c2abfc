"""GitHub's hooks of a repository. It tells a push of more than three tags by no event at all: polls find
those."""

from __future__ import annotations

from collections.abc import Mapping

from evermirror.edge.forge.hooks_rest import RestHooks, id_in, names_in, url_in
from evermirror.edge.forge.words import Row
from evermirror.model.forge import Forge
from evermirror.model.hook import ForgeHook, WantedHook

_SURE = ("0", 0, None)  # of insecure_ssl; False is 0


class GitHubHooks(RestHooks):
    """See ``ForgeHooks``."""

    forge = Forge.GITHUB
    events = frozenset({"push", "create", "delete", "repository"})
    rights = (
        "The token needs the scope admin:repo_hook (a fine-grained one: the repository permission Webhooks, "
        "read and write), and its owner the admin role there; without, GitHub says that there is nothing"
    )

    def _body(self, wanted: WantedHook) -> Mapping[str, object]:
        config = {
            "url": wanted.url,
            "content_type": "json",
            "secret": wanted.secret,
            "insecure_ssl": "0",
        }
        return {"name": "web", "active": True, "events": sorted(wanted.events), "config": config}

    def _read(self, row: Row) -> ForgeHook:
        told = row.get("config")
        config = told if isinstance(told, dict) else {}
        return ForgeHook(
            id=id_in(row),
            url=url_in(config),
            active=row.get("active") is True,
            events=names_in(row, "events"),
            json=config.get("content_type") == "json",
            checks_tls=config.get("insecure_ssl") in _SURE,
            trouble=self._trouble(row.get("last_response")),
        )

    def _trouble(self, last: object) -> str:
        """``code`` is null before the first delivery."""
        if not isinstance(last, dict):
            return ""
        code = last.get("code")
        if not isinstance(code, int) or 200 <= code < 300:
            return ""
        return self._words(f"{code}: {last.get('message') or last.get('status') or 'not delivered'}")

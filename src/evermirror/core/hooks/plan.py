"""What is to be done about our hook at one repo of a forge. Others' hooks are never touched.

A hook is ours where its address begins as ``webhooks.url`` does, or once did, goes on with our path for that
forge, and names this very repo, or another one of its host: that is a name which it had before, since the
hook is at this repo. Only the scheme may differ. What is at the same host below another path is another
server's: the hook of a trial must not be taken for the real one's.

| hooks of ours there      | what is done                    | what a check says |
|--------------------------|---------------------------------|-------------------|
| none                     | make                            | missing           |
| one, as it should be     | nothing                         | ok                |
| one, otherwise           | mend                            | drifted           |
| several                  | the best is kept, others go     | drifted           |

Applied, a plan gives hooks whose plan is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from evermirror.model.forge import Forge
from evermirror.model.hook import ForgeHook, RegistrationState, WantedHook
from evermirror.model.repo import RepoKey
from evermirror.model.url import DEFAULT_PORTS

QUERY_FIELDS_MAX = 20  # of an address that a forge shows; ours has one


@dataclass(frozen=True, slots=True)
class Make:
    """There is none of ours."""


@dataclass(frozen=True, slots=True)
class Mend:
    """Written again, whole."""

    id: str


@dataclass(frozen=True, slots=True)
class Remove:
    id: str


Step = Make | Mend | Remove


@dataclass(frozen=True, slots=True)
class Plan:
    """``why`` says what is not as it should be; ``hook_id`` is that of the hook that is kept, if any.
    ``trouble``: what the forge says of its deliveries, which no step mends."""

    state: RegistrationState
    steps: tuple[Step, ...]
    hook_id: str = ""
    why: tuple[str, ...] = ()
    trouble: str = ""
    renamed: bool = False  # a hook of ours has a name that the repo had before


@dataclass(frozen=True, slots=True)
class Ours:
    """How our hooks are known. ``bases``: our public addresses, the present one and earlier ones."""

    forge: Forge
    key: RepoKey
    bases: tuple[str, ...]

    def is_ours(self, hook: ForgeHook) -> bool:
        parts = _split(hook.url)
        if parts is None or (_place(parts), parts.path.rstrip("/")) not in self._addresses():
            return False
        named = _named(hook)
        return named == self.key or (named != "" and self.is_former(named))

    def is_former(self, named: str) -> bool:
        """Another host's is the same repo under another address, and its own."""
        host, _, path = named.partition("/")
        own_host, _, own_path = self.key.partition("/")
        return host == own_host and path.casefold() != own_path.casefold()

    def _addresses(self) -> set[tuple[str, str]]:
        known = [parts for base in self.bases if (parts := _split(base)) is not None]
        return {(_place(parts), parts.path.rstrip("/") + _path(self.forge)) for parts in known}


def hook_url(base: str, forge: Forge, key: RepoKey) -> str:
    """Where a repo's hooks are to be sent."""
    return f"{base.rstrip('/')}{_path(forge)}?repo={quote(key, safe='')}"


def plan(wanted: WantedHook, there: Sequence[ForgeHook], ours: Ours, *, renew: bool = False) -> Plan:
    """``renew``: a hook that looks right is written again, for its secret, which nobody can read back."""
    found = [hook for hook in there if ours.is_ours(hook)]
    if not found:
        return Plan(RegistrationState.MISSING, (Make(),), why=("there is no hook of ours",))
    kept = min(found, key=lambda hook: len(_drift(hook, wanted)))
    why = _drift(kept, wanted)
    doubles = [hook for hook in found if hook is not kept]
    mend = (Mend(kept.id),) if why or renew else ()
    former = [name for hook in found if ours.is_former(name := _named(hook))]
    if former:
        why += (f"it names {former[0]:.300}, which the repository was called before",)
    if doubles:
        why += (f"it is there {len(found)} times",)
    state = RegistrationState.DRIFTED if why else RegistrationState.OK
    steps = (*mend, *(Remove(hook.id) for hook in doubles))
    return Plan(state, steps, kept.id, why, kept.trouble, bool(former))


def removal(there: Sequence[ForgeHook], ours: Ours) -> tuple[Remove, ...]:
    return tuple(Remove(hook.id) for hook in there if ours.is_ours(hook))


def _drift(hook: ForgeHook, wanted: WantedHook) -> tuple[str, ...]:
    missing = ", ".join(sorted(wanted.events - hook.events))
    too_many = ", ".join(sorted(hook.events - wanted.events))
    wrong = (
        (not _same_address(hook.url, wanted.url), f"it is sent to {_shown(hook.url)}"),
        (not hook.active, "it is switched off"),
        (bool(missing), f"events are missing: {missing}"),
        (bool(too_many), f"events are too many: {too_many}"),
        (not hook.json, "its bodies are not JSON"),
        (wanted.url.startswith("https:") and not hook.checks_tls, "it does not check our certificate"),
    )
    return tuple(words for is_so, words in wrong if is_so)


def _named(hook: ForgeHook) -> str:
    """The repo in its address; empty: none, or several."""
    parts = _split(hook.url)
    try:
        told = parse_qs(parts.query, max_num_fields=QUERY_FIELDS_MAX).get("repo", []) if parts else []
    except ValueError:
        return ""
    return told[0] if len(told) == 1 else ""


def _same_address(one: str, other: str) -> bool:
    """However a forge writes its signs."""
    mine, theirs = _split(one), _split(other)
    if mine is None or theirs is None:
        return one == other
    return (mine.scheme, _place(mine), mine.path, unquote(mine.query)) == (
        theirs.scheme,
        _place(theirs),
        theirs.path,
        unquote(theirs.query),
    )


def _shown(url: str) -> str:
    parts = _split(url)
    return "an address that is none" if parts is None else f"{parts.scheme}://{_place(parts)}{parts.path}"


def _path(forge: Forge) -> str:
    return f"/api/webhooks/{forge.value}"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts if parts.hostname else None


def _place(parts: SplitResult) -> str:
    """The host, with its port where that is not the scheme's own."""
    host, port = parts.hostname or "", parts.port
    return host if port is None or port == DEFAULT_PORTS.get(parts.scheme) else f"{host}:{port}"

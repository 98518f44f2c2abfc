"""Who may tell us something: a hook is read, and believed only where it is signed for the repo it names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from evermirror.core.hooks.body import UnreadableHook, is_form, parts_of
from evermirror.core.hooks.reading import LARGE, read
from evermirror.core.hooks.secrets import Secrets
from evermirror.core.hooks.signatures import is_signed
from evermirror.errors import HookRefused, InvalidUrl, Unavailable, UsageError
from evermirror.model.forge import Forge
from evermirror.model.hook import Hook, HookKind
from evermirror.model.repo import RepoKey
from evermirror.model.url import URL_MAX_BYTES, UrlRules, parse_url

URLS_MAX = 8  # that one hook may name; forges give three or four
KEYS_MAX = 10_000  # addresses whose keys are remembered: of the repos that hooks tell of again and again
KEPT_CHARS = 200  # of one; longer ones are read anew
# A body of this size is read only where it is signed with some secret of ours: reading holds up everybody.
UNSIGNED_BYTES_MAX = 32 * 1024
OWN_SECRETS_MAX = 64  # of single repos, tried one after the other where nothing says which repo it is
UNSURE_PARTS_MAX = 50_000  # of a body that is read though it is not known who sent it: some 20 ms
SCHEMES = frozenset({"https", "http", "ssh"})  # that a repo may be named by, whichever is fetched

_NONE = ""  # no secret is empty
_LATER_HINT = "It is sent again by the forge, or found by the next poll"


@dataclass(frozen=True, slots=True)
class Vouched:
    """A hook that is signed for each of ``keys``, best first. ``asked``: the one in its own address."""

    hook: Hook
    keys: tuple[RepoKey, ...]
    asked: RepoKey | None = None

    @property
    def about(self) -> RepoKey | None:
        """What people are told that it is about, where none of ``keys`` is known here."""
        return self.asked if self.asked is not None else next(iter(self.keys), None)

    @property
    def twin(self) -> RepoKey | None:
        """The same repository under another host, in the catalog beside it: its address says so. A name with
        another path is one that the repository had before."""
        if self.asked is None:
            return None
        path = _path(self.asked)
        return self.asked if any(_path(key) == path for key in self.keys if key != self.asked) else None


class _Signed:
    """Whether one hook is signed with one of some secrets; each is tried once."""

    def __init__(self, forge: Forge, headers: Mapping[str, str], body: bytes, now: float) -> None:
        self.forge = forge
        self._headers = headers
        self._body = body
        self._now = now
        self._tried: dict[str, bool] = {}

    def by(self, secrets: Sequence[str]) -> bool:
        """None takes as long as one: nobody learns which repos have any."""
        for secret in secrets or (_NONE,):
            if secret not in self._tried:
                some = (secret,) if secret != _NONE else ()
                self._tried[secret] = is_signed(self.forge, self._headers, self._body, some, self._now)
        found = [self._tried[secret] for secret in secrets]
        return any(found)

    def is_modest(self) -> bool:
        """Quickly read, whoever sent it."""
        if len(self._body) <= LARGE:
            return True
        return not is_form(self._headers) and parts_of(self._body) <= UNSURE_PARTS_MAX


class HookChecking:
    """``configure`` it first."""

    def __init__(self, rules: UrlRules, clock: Callable[[], float]) -> None:
        self._rules = replace(rules, schemes=SCHEMES)
        self._clock = clock
        self._secrets = Secrets()
        self._kept_key = lru_cache(KEYS_MAX)(self._read_key)

    def configure(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def opened(
        self, forge: Forge, headers: Mapping[str, str], body: bytes, repo: str | None
    ) -> Vouched:
        """``HookRefused``, in the same words whether or not there is such a repo. ``UsageError``: about bytes
        that are no JSON everybody is told, about JSON that is no hook only who signed it."""
        if len(body) <= LARGE:
            return self._opened(forge, headers, body, repo)
        loop = asyncio.get_running_loop()
        try:
            opening = loop.run_in_executor(None, self._opened, forge, headers, body, repo)
        except RuntimeError as error:  # no thread can be had, or the process ends
            raise Unavailable("hooks as large as this one cannot be read now", hint=_LATER_HINT) from error
        return await opening

    def _opened(self, forge: Forge, headers: Mapping[str, str], body: bytes, repo: str | None) -> Vouched:
        if not self._secrets.any_for(forge):
            raise _refused()
        signed = _Signed(forge, headers, body, self._clock())
        asked = _asked(repo) if repo is not None else None
        if len(body) > UNSIGNED_BYTES_MAX:
            self._check_first(signed, asked)
        try:
            hook = read(forge, headers, body)
        except UnreadableHook:
            raise
        except UsageError:
            if not signed.by(self._secrets_for(forge, asked)):
                raise _refused() from None
            raise
        named = list(self._named(hook))
        if asked is not None:  # last: a repository that was renamed says its own name
            named = [*(key for key in named if key != asked), asked]
        keys = tuple(key for key in named if signed.by(self._secrets_for(forge, key)))
        if asked is not None and asked not in keys:
            raise _refused()
        if not keys and (named or not signed.by(self._secrets_for(forge, None))):
            raise _refused()
        return Vouched(hook, keys, asked)

    def _secrets_for(self, forge: Forge, key: RepoKey | None) -> tuple[str, ...]:
        """A hook that names no repo leads to nothing: whoever may speak for a forge or a host may send it."""
        if key is None:
            return self._secrets.general(forge)
        return self._secrets.of(forge, key, key.partition("/")[0])

    def _check_first(self, signed: _Signed, asked: RepoKey | None) -> None:
        """Refuses what nobody signed, before it is read."""
        if signed.by(self._secrets_for(signed.forge, asked)):
            return
        own = self._secrets.own() if asked is None else ()
        if not (signed.by(own) if len(own) <= OWN_SECRETS_MAX else signed.is_modest()):
            raise _refused()

    def _named(self, hook: Hook) -> Iterator[RepoKey]:
        """What it says it is about: of a renamed one what it was first. Forges spell names as their owners
        do, and answer to small letters too: a catalog often has those."""
        urls = (*hook.old_urls[:URLS_MAX], *hook.urls[:URLS_MAX])
        keys = [key for url in urls if (key := self.key_of(url)) is not None]
        yield from dict.fromkeys([*keys, *(RepoKey(key.lower()) for key in keys)])

    def key_of(self, url: str) -> RepoKey | None:
        return self._kept_key(url) if len(url) <= KEPT_CHARS else self._read_key(url)

    def _read_key(self, url: str) -> RepoKey | None:
        try:
            return parse_url(url, self._rules).key
        except InvalidUrl:
            return None

    def moved_to(self, hook: Hook, key: RepoKey) -> str | None:
        """The address that a renamed repository has now, where that is another: a host by another name is
        none."""
        if hook.kind is not HookKind.RENAMED:
            return None
        for url in hook.urls[:URLS_MAX]:
            if (now := self.key_of(url)) is not None:
                is_here = now.partition("/")[2] == key.partition("/")[2]
                return None if is_here else parse_url(url, self._rules).text
        return None


def _refused() -> HookRefused:
    return HookRefused(
        "the hook is not signed with a secret that is set for it",
        hint="Set the same secret at the forge and in webhooks.*_secret or webhooks.secrets",
    )


def _path(key: RepoKey) -> str:
    return key.partition("/")[2].casefold()


def _asked(repo: str) -> RepoKey:
    return RepoKey(repo[:URL_MAX_BYTES].strip("/").removesuffix(".git"))

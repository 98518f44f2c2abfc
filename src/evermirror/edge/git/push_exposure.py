"""Before a push: may the target be seen by more people than its source?

    the source has no credential, is not ``private``, and is no host of the operator's own network that is
    pushed out of it ──▶ anybody may read it: nothing is asked
    the target's visibility, then the source's:
        its credential has a ``forge``  ──▶ the forge's API; trouble there: nothing is pushed now
        else, over http(s), and where
        the API is closed to the token  ──▶ is it read without a credential? public, or not
    the target is more visible ──▶ HOLD: nothing is pushed, and people are told
                                   FOLLOW: the target is made as visible as the source, through its API
                                   ``public_targets`` names those that are meant to be so

It is asked before every push that would change something: a source may have become private since the last
one, and a target public.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import structlog

from evermirror.edge.forge.http import status_of, was_moved
from evermirror.edge.forge.visibility import Visibilities
from evermirror.edge.git.credentials import Credentials
from evermirror.edge.git.probe import Prober
from evermirror.model.address import forbidden_reason
from evermirror.model.failure import VISIBILITY, Failure, FailureError, FailureKind
from evermirror.model.forge import Visibility
from evermirror.model.push import VisibilityRule
from evermirror.model.repo import RepoSpec

log = structlog.get_logger(__name__)

_CLOSED = frozenset({401, 403, 404})  # an API to this token; all else is trouble that passes
_NOT_FOR_ANYBODY = frozenset({FailureKind.AUTH_FAILED, FailureKind.NOT_FOUND, FailureKind.PERMISSION_DENIED})
_HINT = (
    'make the target as private as its source, or have that done (pull.visibility = "follow"); '
    "where it is meant to be so, name the target in pull.public_targets"
)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Who may see a repository, as far as it is known: from ``least`` to ``most``."""

    least: Visibility
    most: Visibility

    @property
    def words(self) -> str:
        return self.least.value if self.least is self.most else "not public"


_NOT_PUBLIC = _Seen(Visibility.PRIVATE, Visibility.INTERNAL)


@dataclass(frozen=True, slots=True)
class Exposure:
    """``public_targets``: globs over keys (host/path) of targets that may be more visible."""

    prober: Prober
    credentials: Credentials
    forges: Visibilities
    rule: VisibilityRule
    public_targets: tuple[str, ...]

    async def check(self, source: RepoSpec, target: RepoSpec) -> Failure | None:
        """Why nothing may be pushed; None: it may. Raises FailureError where nobody can tell now. Nothing is
        held for want of the difference between internal and private."""
        if self.rule is VisibilityRule.IGNORE or self._is_meant(target):
            return None
        leaves = await self._is_inside(source) and not await self._is_inside(target)
        if source.credential is None and not (source.private or leaves):
            return None
        seen = await self._seen(target)
        there = seen.least if seen is not None else Visibility.PRIVATE
        if there is Visibility.PRIVATE:
            return None
        here = await self._seen_source(source, leaves=leaves)
        if here is None or there.rank <= here.most.rank:
            return None
        why = ""
        if self.rule is VisibilityRule.FOLLOW:
            there, why = await self._followed(target, here.least, there)
            if there.rank <= here.least.rank:
                return None
        return _held(here, there, why)

    def _is_meant(self, target: RepoSpec) -> bool:
        key = target.key.casefold()
        return any(fnmatchcase(key, pattern.casefold()) for pattern in self.public_targets)

    async def _is_inside(self, spec: RepoSpec) -> bool:
        """It is not on the public internet: what anybody can read there, is read by those inside."""
        addresses = await self.prober.addresses(spec)
        return not addresses or any(forbidden_reason(address) is not None for address in addresses)

    async def _seen_source(self, source: RepoSpec, *, leaves: bool) -> _Seen | None:
        """``private`` is a person's word only where there is no credential: with one, it is set for all."""
        if source.private and source.credential is None:
            return _NOT_PUBLIC
        seen = await self._seen(source)
        if leaves and (seen is None or seen.most is Visibility.PUBLIC):
            return _NOT_PUBLIC
        return seen

    async def _seen(self, spec: RepoSpec) -> _Seen | None:
        """None: nobody can tell, over ssh and without a forge's API."""
        credential = self.credentials.find(spec)
        if credential is not None and credential.forge and credential.secret:
            try:
                exact = await self.forges.of(spec.url, credential)
                return _Seen(exact, exact)
            except FailureError as error:
                if status_of(error) not in _CLOSED and not was_moved(error):
                    raise
                log.info("visibility not told", repo=spec.key, reason=error.failure.message)
        if not spec.url.startswith(("https://", "http://")):
            return None
        try:
            await self.prober.probe(replace(spec, credential=None), None)
        except FailureError as error:
            if error.failure.kind in _NOT_FOR_ANYBODY:
                return _NOT_PUBLIC
            raise
        return _Seen(Visibility.PUBLIC, Visibility.PUBLIC)

    async def _followed(
        self, target: RepoSpec, wanted: Visibility, there: Visibility
    ) -> tuple[Visibility, str]:
        """The target's visibility now; and why it could not be changed."""
        credential = self.credentials.find(target)
        if credential is None or not (credential.forge and credential.secret):
            return there, "its credential has no forge whose API could change it"
        try:
            now = await self.forges.lower(target.url, credential, wanted)
        except FailureError as error:
            return there, error.failure.message
        log.warning("target made less visible", target=target.key, was=there.value, now=now.value)
        return now, "" if now.rank <= wanted.rank else "its forge did not change it"


def _held(here: _Seen, there: Visibility, why: str) -> Failure:
    words = f"not pushed: the target is {there.value}, and its source is {here.words}"
    return Failure(
        FailureKind.CONFLICT,
        f"{words}; it could not be changed: {why}" if why else words,
        hint=_HINT,
        context={VISIBILITY: f"{here.words} to {there.value}"},
    )

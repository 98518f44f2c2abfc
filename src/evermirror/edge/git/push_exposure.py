"""Before a push: may the target be seen by more people than its source?

    the source has no credential ──▶ anybody may read it: nothing is asked
    the target's visibility, then the source's:
        its credential has a ``forge``  ──▶ the forge's API
        else, over http(s)              ──▶ is it read without a credential? public, or not
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

from evermirror.edge.forge.visibility import Visibilities
from evermirror.edge.git.credentials import Credentials
from evermirror.edge.git.probe import Prober
from evermirror.model.failure import VISIBILITY, Failure, FailureError, FailureKind
from evermirror.model.forge import Visibility
from evermirror.model.push import VisibilityRule
from evermirror.model.repo import RepoSpec

log = structlog.get_logger(__name__)

_NOT_FOR_ANYBODY = frozenset({FailureKind.AUTH_FAILED, FailureKind.NOT_FOUND, FailureKind.PERMISSION_DENIED})
_HINT = (
    'make the target as private as its source, or have that done (pull.visibility = "follow"); '
    "where it is meant to be so, name the target in pull.public_targets"
)


@dataclass(frozen=True, slots=True)
class Exposure:
    """``public_targets``: globs over keys (host/path) of targets that may be more visible."""

    prober: Prober
    credentials: Credentials
    forges: Visibilities
    rule: VisibilityRule
    public_targets: tuple[str, ...]

    async def check(self, source: RepoSpec, target: RepoSpec) -> Failure | None:
        """Why nothing may be pushed; None: it may. Raises FailureError where nobody can tell now."""
        if self.rule is VisibilityRule.IGNORE or source.credential is None or self._is_meant(target):
            return None
        there = await self._seen(target, else_=Visibility.PRIVATE)
        if there is None or there is Visibility.PRIVATE:
            return None
        here = await self._seen(source, else_=Visibility.INTERNAL)
        if here is None or there.rank <= here.rank:
            return None
        why = ""
        if self.rule is VisibilityRule.FOLLOW:
            there, why = await self._followed(target, here, there)
            if there.rank <= here.rank:
                return None
        return _held(here, there, why)

    def _is_meant(self, target: RepoSpec) -> bool:
        key = target.key.casefold()
        return any(fnmatchcase(key, pattern.casefold()) for pattern in self.public_targets)

    async def _seen(self, spec: RepoSpec, else_: Visibility) -> Visibility | None:
        """None: nobody can tell, over ssh and without a forge's API. ``else_``: what stands for a repository
        that is only known not to be public; nothing is held for want of the difference."""
        credential = self.credentials.find(spec)
        if credential is not None and credential.forge and credential.secret:
            try:
                return await self.forges.of(spec.url, credential)
            except FailureError as error:  # an API that is closed to this token
                log.info("visibility not told", repo=spec.key, reason=error.failure.message)
        if not spec.url.startswith(("https://", "http://")):
            return None
        try:
            await self.prober.probe(replace(spec, credential=None), None)
        except FailureError as error:
            if error.failure.kind in _NOT_FOR_ANYBODY:
                return else_
            raise
        return Visibility.PUBLIC

    async def _followed(
        self, target: RepoSpec, here: Visibility, there: Visibility
    ) -> tuple[Visibility, str]:
        """The target's visibility now; and why it could not be changed."""
        credential = self.credentials.find(target)
        if credential is None or not (credential.forge and credential.secret):
            return there, "its credential has no forge whose API could change it"
        try:
            now = await self.forges.lower(target.url, credential, here)
        except FailureError as error:
            return there, error.failure.message
        log.warning("target made less visible", target=target.key, was=there.value, now=now.value)
        return now, "" if now.rank <= here.rank else "its forge did not change it"


def _held(here: Visibility, there: Visibility, why: str) -> Failure:
    source = "not public" if here is Visibility.INTERNAL and there is Visibility.PUBLIC else here.value
    words = f"not pushed: the target is {there.value}, and its source is {source}"
    return Failure(
        FailureKind.CONFLICT,
        f"{words}; it could not be changed: {why}" if why else words,
        hint=_HINT,
        context={VISIBILITY: f"{here.value} to {there.value}"},
    )

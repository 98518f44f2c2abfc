"""git's fsck as we use it: told only the message ids that it knows, its complaints read, its refusals kept.

    fetch ─▶ index-pack ─┬─ error: refused by git ─────────────────────┐
                         ├─ warning: the object is read ─▶ harmful ────┴─▶ explained ─▶ remembered
                         └─ nothing, or harmless ─▶ taken

A refused pack is not transferred again before something that matters has changed: upstream's refs, what is
allowed for the repo, the git that is installed, or our own verdicts (core/fsck.py).
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from evermirror.core.fsck import BY_ID, POLICY_VERSION, Verdict, harm_of_url, severities, tells_damage
from evermirror.edge.git import folder
from evermirror.edge.git.classify import CAUSE, MALFORMED, MEMORY, OBJECT_TOO_LARGE
from evermirror.edge.git.command import Git
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.printable import one_line
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoKey

FSCK_ID = "fsck_id"  # keys in Failure.context
OBJECT = "object"
URLS = "gitmodulesUrl"  # the one id that is judged by content
MODULES_MAX = 1000  # .gitmodules read after one fetch; a history with more that are malformed is refused
LINE_BYTES_MAX = 8192  # git cuts its messages at 4,096
REFUSAL_AGE_S_MAX = 90 * 86_400.0  # of one that nobody asked about: its repo is gone
MEMORY_REFUSAL_S = 86_400.0  # then it is tried again: maybe it was the machine that had none left
FORCED_EVERY_S = 3600.0  # a refused pack that somebody forces comes once in this time

_ERROR, _URLS = b"error: object ", URLS.encode()
_UNJUDGED = "evermirror-unjudged"
_COMPLAINT = re.compile(rb"object ([0-9a-f]{40}|[0-9a-f]{64})(?: \([^)\n]{0,300}\))?: (\w+): ")


async def fetch_config(git: Git, allowed: Iterable[str] = ()) -> tuple[tuple[str, str], ...]:
    """For ``git fetch``: which defects it lets through, and which it names."""
    known = (await git.installed()).fsck_ids
    return tuple((f"fetch.fsck.{name}", level) for name, level in severities(known, allowed).items())


async def fsck_config(git: Git) -> tuple[tuple[str, str], ...]:
    """For ``git fsck``, which looks for damage: silent about objects that upstream made so. Whether these
    are accepted was decided when they came."""
    known = (await git.installed()).fsck_ids
    return tuple((f"fsck.{name}", "ignore") for name in sorted(known) if not tells_damage(name))


async def strict_option(git: Git, allowed: Iterable[str] = ()) -> str:
    """The same for ``git index-pack``."""
    told = severities((await git.installed()).fsck_ids, allowed)
    return "--strict=" + ",".join(f"{name.lower()}={level}" for name, level in told.items())


# What git names, for us to read


class Complaints:
    """Feed it git's stderr as it comes: it gathers the .gitmodules whose URLs git does not like.

    Upstream's own words are in there as well, and another process writes them: git's complaint is in one
    piece that ends its line, but any words may stand before it on that line. They can add to what is read,
    and hide nothing. From the first complaint until all is judged, or removed, a file in the repository
    tells so: git may have stored the pack by then, and what a crash left there must not be taken for
    checked."""

    def __init__(self, repo: Path) -> None:
        self._mark = repo / _UNJUDGED
        self._repo = repo
        self._rest = b""
        self._heard = False
        self.modules: set[str] = set()
        self.unclear = False  # a complaint that was not understood, or one too many

    def feed(self, data: bytes) -> None:
        *lines, rest = re.split(rb"[\r\n]", self._rest + data)
        self._rest = rest[-LINE_BYTES_MAX:]  # where a complaint is, whose line has not ended
        for line in lines:
            if _ERROR in line or _URLS in line:
                self._hear()
                self._note(line)

    def _hear(self) -> None:
        if not self._heard:
            self._heard = True
            self._mark.touch()
            folder.fsync(self._mark)
            folder.fsync(self._repo)

    def _note(self, line: bytes) -> None:
        if self.unclear:
            return
        named = [m[1].decode("ascii") for m in _COMPLAINT.finditer(line) if m[2] == _URLS]
        self.modules.update(named)
        if line.count(_URLS) > len(named) or len(self.modules) > MODULES_MAX:
            self.unclear = True

    async def judge(self, git: Git) -> Failure | None:
        """Why what came must not stay, if so. Whoever is told removes it, and then calls ``over``."""
        self.feed(b"\n")
        if self.unclear:
            more = f"more than {MODULES_MAX} files have one, or git's words were not understood"
            return _malformed(URLS, "", more)
        for oid in sorted(self.modules):
            words = ["config", "--blob", oid, "-z", "--get-regexp", r"^submodule\..*\.url$"]
            if harm := await _harm_of_modules(git, self._repo, words):
                return replace(_malformed(URLS, oid, harm), git_command=shlex.join(["git", *words]))
        self.over()
        return None

    def over(self) -> None:
        """Nothing that is here waits for a judgement."""
        if self._heard:
            self._mark.unlink(missing_ok=True)


def is_unjudged(repo: Path) -> bool:
    """A crash came between git's complaint and our judgement: what is here must be fetched anew."""
    return (repo / _UNJUDGED).exists()


async def _harm_of_modules(git: Git, repo: Path, words: Sequence[str]) -> str:
    """By git's own reading of the file."""
    try:
        found = await git.run(words, repo=repo)
    except FailureError as error:
        return f"it cannot be read: {error.failure.message}"
    for entry in found.stdout.split(b"\0"):
        url = entry.partition(b"\n")[2].decode("utf-8", "surrogateescape")
        if harm := harm_of_url(url):
            return f"{one_line(url)[:100]!r} {harm}"
    return ""


# Refusals


def _malformed(name: str, oid: str, more: str = "") -> Failure:
    defect = BY_ID.get(name)
    what = defect.what if defect is not None else "a defect that this version of evermirror does not know"
    parts = [f"upstream sends a malformed object: {name}: {what}", more, f"object {oid}" if oid else ""]
    context = {CAUSE: MALFORMED, FSCK_ID: name, **({OBJECT: oid} if oid else {})}
    return Failure(FailureKind.UNKNOWN, "; ".join(filter(None, parts)), context=context)


def is_refusal(failure: Failure) -> bool:
    """git, or we, did not take what upstream sent, for what it is."""
    return failure.context.get(CAUSE) in (MALFORMED, MEMORY, OBJECT_TOO_LARGE)


def may_be_allowed(failure: Failure) -> bool:
    """Another node, or another git, may have taken the same object honestly."""
    name = failure.context.get(FSCK_ID)
    return name is not None and (name not in BY_ID or BY_ID[name].verdict is not Verdict.UNREADABLE)


def explained(failure: Failure, key: RepoKey) -> Failure:
    """A refusal with the object, what is wrong with it, and what a person can do."""
    malformed = failure.context.get(CAUSE) == MALFORMED and FSCK_ID not in failure.context
    if malformed and (found := _COMPLAINT.search(_last_words(failure))) is not None:
        told = _malformed(found[2].decode("ascii", "replace"), found[1].decode("ascii"))
        failure = replace(failure, message=told.message, context={**failure.context, **told.context})
    passing = " or a day has passed" if failure.context.get(CAUSE) == MEMORY else ""
    again = f"It is not fetched again before upstream's refs change{passing}"
    again += f", unless by: evermirror sync {key} --force"
    if failure.context.get(CAUSE) != MALFORMED:
        hint = f"{failure.hint}. {again}"
    elif may_be_allowed(failure):
        name = failure.context[FSCK_ID]
        hint = f"If it is known to be harmless: evermirror allow {key} {name} --reason WHY. {again}"
    else:
        hint = f"git itself cannot read it, so it cannot be allowed. {again}"
    return replace(failure, hint=hint)


def _last_words(failure: Failure) -> bytes:
    """Upstream's lines are left out: what they name is nobody's finding."""
    lines = [line for line in re.split(r"[\r\n]", failure.stderr) if not line.startswith("remote: ")]
    errors = [line for line in lines if line.startswith("error: object ")]
    return "\n".join(errors).encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Refusals:
    """What was refused, one file a repo; the holder of the repo's lock reads and writes it."""

    folder: Path

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def recall(
        self, name: str, seen: RefSnapshot, policy: str, now: float, forced_at: float | None = None
    ) -> Failure | None:
        """The failure of the last try, where the next would end the same; a lack of memory may pass. Who
        forces it has one try an hour: whoever may ask for a sync may ask for it again and again."""
        file = self.folder / name
        try:
            known = json.loads(file.read_bytes())
            if (known["digest"], known["policy"]) != (seen.digest(), policy):
                return None
            last = known.get("forced_at")
            if forced_at is not None and (last is None or abs(forced_at - last) >= FORCED_EVERY_S):
                return None
            failure = Failure(**{**known["failure"], "kind": FailureKind(known["failure"]["kind"])})
            if failure.context.get(CAUSE) == MEMORY and abs(now - known["at"]) >= MEMORY_REFUSAL_S:
                return None
            os.utime(file)
            return failure
        except (OSError, ValueError, KeyError, TypeError):  # none, or not ours: it is tried
            return None

    def remember(
        self,
        name: str,
        seen: RefSnapshot,
        policy: str,
        failure: Failure,
        now: float,
        forced_at: float | None = None,
    ) -> None:
        """Where it cannot be written the same comes once more, and is refused once more."""
        told = {
            "kind": failure.kind.value,
            "message": failure.message,
            "hint": failure.hint,
            "git_command": failure.git_command,
            "stderr": failure.stderr,
            "context": dict(failure.context),
        }
        known = {"digest": seen.digest(), "policy": policy, "at": now, "forced_at": forced_at}
        text = json.dumps({**known, "failure": told})
        with suppress(OSError):
            self.folder.mkdir(exist_ok=True)
            fresh = self.folder / f"{name}.new"
            fresh.write_text(text)
            fresh.replace(self.folder / name)

    def forget(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def tidy(self, now: float) -> None:
        """Forget those of repos that are no longer looked at."""
        with suppress(FileNotFoundError):
            for entry in os.scandir(self.folder):
                if entry.stat().st_mtime < now - REFUSAL_AGE_S_MAX:
                    os.unlink(entry.path)


async def policy_of(git: Git, allowed: Iterable[str]) -> str:
    """By what a pack is judged: another makes a new try worth its transfer."""
    version = (await git.installed()).version
    bounds = f"{git.settings.memory_bytes} {git.settings.object_bytes}"
    return f"{POLICY_VERSION}; git {version}; {','.join(sorted(allowed))}; {bounds}"

"""From git's exit code and words to one ``FailureKind``: a table, read from the top.

What upstream itself says (``remote: …`` and all that follows ``fatal: remote error:``) is kept apart from
what our own git says, so that no upstream can talk us into a full disk or a damaged mirror. Rules about this
machine look at our git's words only, and not at those that our git repeats because it does not understand.
Where git read nothing at all, everything else is ssh's words, or those of the server behind it (wordings.py).
"""

from __future__ import annotations

import re
from dataclasses import replace

from evermirror.edge.git.wordings import CAUSE as CAUSE
from evermirror.edge.git.wordings import MESSAGE_CHARS_MAX as MESSAGE_CHARS_MAX
from evermirror.edge.git.wordings import (
    NETWORK,
    OF_SSH,
    REFUSED,
    UNREAD,
    UPSTREAM_DIED,
    died,
    unread,
    with_names,
    without_names,
)
from evermirror.edge.git.wordings import Says as _Says
from evermirror.edge.git.wordings import bare as _bare
from evermirror.edge.git.wordings import by_rule as _by_rule
from evermirror.edge.git.wordings import failure as _failure
from evermirror.edge.git.wordings import first as _first
from evermirror.edge.git.wordings import make_rule as _rule
from evermirror.model.failure import Failure, FailureKind

UPSTREAM_MOVED = "upstream-moved"
INCOMPLETE_PACK = "incomplete-pack"
BROKEN_PACK = "broken-pack"
MALFORMED = "malformed-object"
MEMORY = "memory"
OBJECT_TOO_LARGE = "object-too-large"
SHORTAGE = "shortage"
LACKING = frozenset({MEMORY, SHORTAGE})  # say nothing about the mirror that git read


# Our git could not write: its complaint begins with what it did and ends in the system's words. Other
# complaints end in a text that upstream sent ("invalid ls-refs response: …"), which may be these very words.
_WRITING = (
    r"^(?:(?:fatal|error|warning): )*"
    r"(?=(?:[^:\n]|:(?! ))*?"
    r"(?:writ|creat|mkdir|stor|sync|renam|append|copy|clos|open|flush|lock|link|tempor))"
    r"(?:[^:\n]|:(?! ))*: (?:[^\n]*: )?"
)
_HTTP_STATUS = re.compile(r"(?:returned error:|RPC failed; HTTP|HTTP code = ) ?(\d{3})")
_RATE_LIMIT = re.compile(r"rate.?limit|too many requests|abuse detection", re.IGNORECASE)
_PRIVATE_HINT = "upstream is gone or private; give the repo a credential if it is private"
_WRITE_HINT = "give the target a credential that may push there"
_TARGET_HINT = "create it at the target, or correct the target's URL"
_ANSWERED = re.compile(r"HTTP (\d{3})\b")  # how answers.py begins

# Before what follows from it: a peer that was left in the midst of its pack complains as well.
_BEFORE_HTTP = (
    _rule(
        OBJECT_TOO_LARGE,
        FailureKind.UNKNOWN,
        r"^fatal: attempting to allocate \d+ over limit \d+$",
        message="an object is larger than limits.git_object, or the pack has too many",
        hint="if the repository is honest, raise limits.git_object",
    ),
    _rule(  # says nothing about the pack: nothing of it was read by then
        SHORTAGE,
        FailureKind.UNKNOWN,
        r"^(?:fatal|error): (?:.* )?cannot fork\(\) for [^\n]*"
        r"(?:Cannot allocate memory|Resource temporarily unavailable)$",
        r"^(?:fatal|error): (?:unable to create|cannot create async) thread: "
        r"(?:Cannot allocate memory|Resource temporarily unavailable)$",
        message="this machine has no room for another process or thread",
        hint="see its memory and the bound on processes of our user (ulimit -u, TasksMax)",
    ),
    _rule(
        MEMORY,
        FailureKind.UNKNOWN,
        r"^(?:fatal|error): (?:.*: )?out of memory\b",
        r"^(?:fatal|error): .*Cannot allocate memory$",
        message="git needs more memory than it may have",
        hint="if the repository is honest, raise limits.git_memory; or the machine itself has too little",
    ),
    _rule(
        "disk-full",
        FailureKind.DISK_FULL,
        _WRITING + r"(?:No space left on device|Disk quota exceeded)$"
        r"|^fatal: sha1 file '.*' write error\. Out of diskspace$",
        hint="free some space in the data folder, or give it a larger disk",
    ),
    _rule(
        "read-only",
        FailureKind.DISK_FULL,
        _WRITING + r"Read-only file system$",
        message="the disk here is read-only",
        hint="check the disk, and mount it writable",
    ),
)

_AFTER_HTTP = (
    _rule(
        "certificate",
        FailureKind.UNKNOWN,
        r"certificate (?:problem|verification failed|verify failed)",
        r"server certificate",
        r"certificate subject name",
        r"unable to get local issuer certificate",
        hint="upstreams.ca_file names the certificates that are trusted",
    ),
    _rule(
        MALFORMED,
        FailureKind.UNKNOWN,
        r"fsck error in (?:packed|pack) object",
        r"^error: object [0-9a-f]{40,64}(?: \([^)]*\))?: \w+: ",
        r"^error: (?:bogus commit object|bad (?:parents|tree pointer) in commit) [0-9a-f]{40,64}",
        r"^fatal: (?:invalid (?:commit|tag|tree|blob)|fsck failed)$",
        r"^fatal: Not all child objects of [0-9a-f]{40,64} are reachable",
        message="upstream sends a malformed object",
    ),
    _rule(
        INCOMPLETE_PACK,
        FailureKind.UNKNOWN,
        r"did not receive expected object",
        message="upstream sends less than its refs need",
    ),
    _rule(
        UPSTREAM_MOVED,
        FailureKind.UNKNOWN,
        r"couldn't find remote ref",
        r"not our ref",
        r"Server does not allow request for unadvertised object",
        r"remote did not send .*(?:object|ref)",
        r"want [0-9a-f]{40,64} not valid",
        says=_Says.ANY,
        message="upstream changed while it was fetched",
    ),
    *OF_SSH,
    _rule(
        "not-git",
        FailureKind.UNKNOWN,
        r"protocol error: bad line length",
        message="something else than git answers",
        hint="the server's shell prints text of its own, or lets nobody in: `ssh HOST` shows it",
    ),
    _rule(
        "locked",
        FailureKind.UNKNOWN,
        r"Unable to create '.*\.lock': File exists",
        hint="another program works in the mirror's folder",
    ),
    _rule(
        "not-found",
        FailureKind.NOT_FOUND,
        r"repository .*not found",
        r"does not appear to be a git repository",
        r"repository .*does not exist",
        r"project you were looking for could not be found",
        says=_Says.ANY,
        hint=_PRIVATE_HINT,
    ),
    _rule(
        "transport-refused", FailureKind.UNKNOWN, r"transport '.*' not allowed", hint="see upstreams.schemes"
    ),
    _rule("credentials-in-url", FailureKind.UNKNOWN, r"uses plaintext credentials"),
    _rule(
        BROKEN_PACK,
        FailureKind.UNKNOWN,
        r"did not send all necessary objects",
        r"unresolved deltas",
        r"pack has bad object at offset \d+: inflate",
        r"pack is corrupted \(",
        message="the mirror here seems damaged, or what was sent is",
        corrupt=True,
    ),
    _rule(
        "corrupt",
        FailureKind.UNKNOWN,
        r"loose object .* is corrupt",
        r"packed object .* is corrupt",
        r"object file .* is empty",
        r"unable to unpack [0-9a-f]{40,64} header",
        r"inflate: data stream error",
        r"error: inflate",
        r"bad (?:tree )?object [0-9a-f]{40,64}",
        r"bad object refs/",
        r"unable to read (?:tree|sha1 file of|object)? ?\(?[0-9a-f]{40,64}",
        r"unable to find [0-9a-f]{40,64}",
        r"could not (?:read|parse) (?:object|commit|tree)",
        r"could not read [0-9a-f]{40,64}",
        r"failed to read object",
        r"missing (?:blob|tree|commit|tag) (?:object ')?[0-9a-f]{40,64}",
        r"(?:pack|packfile) .*(?:index|checksum|SHA1|trailer).*mismatch",
        r"packfile .* (?:cannot be accessed|claims to have|is far too short|does not match index)",
        r"file .*\.pack is (?:far too short|not a GIT packfile)",
        r"index file .* is too small",
        r"non-monotonic index",
        r"wrong index v\d file size",
        r"bad offset for revindex",
        r"not a git repository",
        r"reference broken",
        r"ignoring broken ref",
        r"bad ref for HEAD",
        r"unexpected line in .*packed-refs",
        r"unterminated line in .*packed-refs",
        r"bad config (?:line|file)",
        r"bad numeric config value",
        message="the mirror here seems damaged",
        corrupt=True,
    ),
    NETWORK,
)

# Words that name a branch or tag are about that ref, and not about the whole target.
_OF_THE_WHOLE = r"^(?!.*(?:protected|\bbranch|\btags?\b|refs/)).*"

# Of a push, before the rules above. A push writes nothing here, so whoever lacks room is the target: its
# trouble, which mostly ends without us, as an outage does. No person here can do anything about it.
_OF_PUSHES = (
    _rule(
        "target-full",
        FailureKind.NETWORK_TIMEOUT,
        r"No space left on device",
        r"Disk quota exceeded",
        r"Out of diskspace",
        says=_Says.ANY,
        message="the target has no room",
    ),
    _rule(
        "target-refuses",
        FailureKind.PERMISSION_DENIED,
        _OF_THE_WHOLE + r"not allowed to push",
        r"Permission to .* denied",
        r"write access to repository not granted",
        r"marked as read.only",
        r"(?:repository|project|which|it) (?:is|was) (?:archived|read.only)",
        r"Read-only file system",
        _OF_THE_WHOLE + r"(?:does not|doesn't|don't) have (?:write|push)",
        r"permission denied for writing",
        r"insufficient permission for adding an object",
        says=_Says.ANY,
        hint=_WRITE_HINT,
    ),
    _rule(
        "target-checks",
        FailureKind.PERMISSION_DENIED,
        r"error: object [0-9a-f]{40,64}(?: \([^)]*\))?: \w+: ",
        r"fsck error in (?:packed|pack) object",
        says=_Says.ANY,
        message="the target refuses an object of the history that is accepted here",
        hint="at the target, receive.fsck.ID=ignore lets it in, with the id named here; in GitLab that is a "
        "git setting of Gitaly. docs/objects.md says which ids are harmless",
    ),
    _rule(
        "object-format",
        FailureKind.PERMISSION_DENIED,
        r"does not support this repository's hash algorithm",
        r"mismatched algorithms",
        r"protocol error: unexpected capabilities\^\{\}",
        hint="the source and the target use different hashes: make the target anew, with the source's",
    ),
)


def classify(returncode: int, stderr: str, *, authenticated: bool = False, url: str = "") -> Failure:
    """What a failed git means. ``authenticated``: a credential was offered, so a refusal is about that.
    ``url``: of the other side; what is a name in it is no finding."""
    text, signs = without_names(stderr, url)
    return with_names(_classify(returncode, text, authenticated), signs)


def _classify(returncode: int, stderr: str, authenticated: bool) -> Failure:
    ours, theirs = _split(stderr)
    if UNREAD in ours:
        return unread(ours, theirs)
    if (rule := _first(_BEFORE_HTTP, ours, theirs)) is not None:
        return _by_rule(rule, ours, theirs)
    if (match := _HTTP_STATUS.search(ours)) is not None:
        return _by_status(int(match[1]), ours, theirs, authenticated)
    if re.search(r"could not read (?:Username|Password)|Authentication failed for", ours):
        return _by_status(401, ours, theirs, authenticated)
    if (dead := died(ours, theirs)) is not None:
        return dead
    if (rule := _first(_AFTER_HTTP, ours, theirs)) is not None:
        return _by_rule(rule, ours, theirs)
    if returncode < 0:
        return _failure("killed", FailureKind.UNKNOWN, f"git was ended by signal {-returncode}")
    return _failure("unknown", FailureKind.UNKNOWN, _words(ours, theirs) or f"git ended with {returncode}")


def classify_push(returncode: int, stderr: str, *, url: str = "") -> Failure:
    """What a failed push means."""
    text, signs = without_names(stderr, url)
    return with_names(_classify_push(returncode, text), signs)


def _classify_push(returncode: int, stderr: str) -> Failure:
    ours, theirs = _split(stderr)
    if (match := _HTTP_STATUS.search(ours)) is not None:
        return at_target(_by_status(int(match[1]), ours, theirs, authenticated=True))
    if (rule := _first(_OF_PUSHES, ours, theirs)) is not None:
        return _by_rule(rule, ours, theirs)
    return at_target(_classify(returncode, stderr, authenticated=True))


def at_target(failure: Failure) -> Failure:
    """The same failure where it is a target that says so: who may not push there, may not read, or does not
    sign in, is told by the same words as a reader, and means something else."""
    answered = _ANSWERED.match(failure.message)
    cause = f"http-{answered[1]}" if answered is not None else failure.context.get(CAUSE, "")
    kind, hint = failure.kind, failure.hint
    if kind in (FailureKind.AUTH_FAILED, FailureKind.NOT_FOUND) and cause == "http-401":
        kind, hint = FailureKind.AUTH_FAILED, _WRITE_HINT
    elif kind is FailureKind.AUTH_FAILED and cause in ("http-403", REFUSED):
        kind, hint = FailureKind.PERMISSION_DENIED, _WRITE_HINT
    elif cause == "http-413":
        kind, hint = FailureKind.PERMISSION_DENIED, "the target takes no pack so large: see its limits"
    elif kind is FailureKind.NOT_FOUND:
        hint = _TARGET_HINT
    message = failure.message
    if cause == UPSTREAM_DIED:
        message, hint = message.replace("upstream's git", "the target's git", 1), "tell the target's operator"
    return replace(failure, kind=kind, message=message, hint=hint)


def _split(stderr: str) -> tuple[str, str]:
    """Our git's own lines, and upstream's."""
    ours: list[str] = []
    theirs: list[str] = []
    foreign = False
    for line in re.split(r"[\r\n]+", stderr):
        foreign = foreign or "remote error: " in line  # its text may have further lines
        (theirs if foreign or line.startswith("remote: ") else ours).append(line.strip())
    return "\n".join(filter(None, ours)), "\n".join(filter(None, theirs))


def _by_status(status: int, ours: str, theirs: str, authenticated: bool) -> Failure:
    words = _words(ours, theirs)
    cause = f"http-{status}"
    match status:
        case 429:
            return _failure(cause, FailureKind.RATE_LIMITED, words)
        case 403 if _RATE_LIMIT.search(theirs):
            return _failure(cause, FailureKind.RATE_LIMITED, words)
        case 401 if not authenticated:
            return _failure(cause, FailureKind.NOT_FOUND, words, hint=_PRIVATE_HINT)
        case 401 | 403:
            return _failure(cause, FailureKind.AUTH_FAILED, words, hint="check the repo's credential")
        case 404 | 410:
            return _failure(cause, FailureKind.NOT_FOUND, words, hint=_PRIVATE_HINT)
        case 408:
            return _failure(cause, FailureKind.NETWORK_TIMEOUT, words)
        case _ if status >= 500:
            return _failure(cause, FailureKind.NETWORK_TIMEOUT, words)
        case _ if 300 <= status < 400:
            return _failure(
                cause, FailureKind.UNKNOWN, words, hint="upstream moved; give the repo its new URL"
            )
        case _:
            return _failure(cause, FailureKind.UNKNOWN, words)


def _words(ours: str, theirs: str) -> str:
    """The line that says most: git's fatal one, else its last, else upstream's last."""
    lines = ours.split("\n") if ours else []
    fatal = [line for line in lines if line.startswith("fatal: ")]
    return _bare((fatal or lines or theirs.split("\n"))[-1])

"""Which defective objects are accepted: one verdict for each message id of git's fsck, and why.

    ACCEPTED     old tools wrote it into honest histories, and it endangers nobody
    JUDGED       git's complaint says too little: the object is read, and its content decides
    REFUSED      could hurt whoever checks it out; a person may allow it for one repo, with a reason
    UNREADABLE   git itself cannot read the object, or does not let its complaint be turned off

An id that is not in the table is refused, and can be allowed: a newer git may know more than we do. Ids about
refs (badRefName, …) are about files of ours, never about what upstream sends. docs/objects.md has the table.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote_to_bytes

from evermirror.errors import InvalidValue

POLICY_VERSION = 2  # counted up when a verdict changes: what was refused before is tried again
ALLOWED_MAX = 16  # ids of one repo
REASON_CHARS_MAX = 500
_ID = re.compile(r"[a-z][A-Za-z0-9]{2,59}", re.ASCII)
_LIKENESS = 0.85  # of difflib: a slip in a long word, not another word


class Verdict(Enum):
    """What becomes of an object with a defect."""

    ACCEPTED = "accepted"
    JUDGED = "read, then decided"
    REFUSED = "refused"
    UNREADABLE = "refused always"


@dataclass(frozen=True, slots=True)
class Defect:
    """One of git's message ids."""

    id: str
    verdict: Verdict
    what: str  # as told in an error
    why: str  # this verdict


def _of(verdict: Verdict, why: str, **what: str) -> list[Defect]:
    return [Defect(name, verdict, words, why) for name, words in what.items()]


_TEXT = "text that git shows or skips: nothing is done with it"
_IGNORED = "git warns and accepts it, and so does every server"
_LOST = "git cannot read the object, so no mirror could serve it"
_ESCAPE = "a checkout could write outside of its folder, or into .git"
_MODULES = "an older git, or another client, runs or writes what it says (CVE-2018-11235, CVE-2018-17456)"
_UNSEEN = "what cannot be read cannot be judged, and no honest tool writes it"

DEFECTS: tuple[Defect, ...] = (
    *_of(
        Verdict.ACCEPTED,
        _TEXT,
        badDate="the date of a commit or tag is no number",
        badDateOverflow="the date of a commit or tag is too large",
        badEmail="the e-mail address of an author or committer is malformed",
        badGpgsig="a signature in a tag ends too early",
        badHeaderContinuation="a header in a tag ends too early",
        badName="the name of an author or committer has a >",
        badTimezone="the time zone of a commit or tag is malformed",
        missingAuthor="a commit has no author",
        missingCommitter="a commit has no committer",
        missingEmail="an author or committer has no e-mail address",
        missingNameBeforeEmail="an author or committer has no name",
        missingSpaceBeforeDate="a space lacks before the date of a commit or tag",
        missingSpaceBeforeEmail="a space lacks before an e-mail address",
        multipleAuthors="a commit has several authors",
        nulInCommit="a commit's message has a NUL byte",
        zeroPaddedDate="the date of a commit or tag begins with a zero",
    ),
    *_of(
        Verdict.ACCEPTED,
        "git takes one of the entries, and never writes through a symbolic link",
        duplicateEntries="a folder has two entries of the same name",
    ),
    *_of(
        Verdict.ACCEPTED,
        "old tools sorted otherwise: every entry is checked all the same",
        treeNotSorted="the entries of a folder are out of order",
    ),
    *_of(
        Verdict.ACCEPTED,
        "the same mode, written otherwise",
        zeroPaddedFilemode="a file's mode begins with a zero",
    ),
    *_of(
        Verdict.ACCEPTED,
        "only a submodule can be so: a missing file or folder fails the check for completeness",
        nullSha1="a submodule points at no commit",
    ),
    *_of(
        Verdict.ACCEPTED,
        "git skips such a line; to overflow an unpatched git it takes a file beyond gitattributesLarge",
        gitattributesLineLength="a .gitattributes has a line of 2,048 bytes or more",
    ),
    *_of(
        Verdict.ACCEPTED,
        "git reads attributes from files only: it is skipped",
        gitattributesBlob="a .gitattributes is no file",
        gitattributesMissing="a .gitattributes is a submodule",
    ),
    *_of(
        Verdict.ACCEPTED,
        "a fetch of git's own lets it through: a submodule of this name is not read as a file",
        gitmodulesMissing="a .gitmodules is a submodule",
    ),
    *_of(
        Verdict.ACCEPTED,
        _IGNORED,
        badFilemode="a file has an unusual mode",
        badTagName="a tag object's name could be no ref's",
        extraHeaderEntry="a tag has a header that git does not know",
        gitattributesSymlink="a .gitattributes is a symbolic link, which git does not follow",
        gitignoreSymlink="a .gitignore is a symbolic link, which git does not follow",
        gitmodulesParse="a .gitmodules cannot be parsed, so nobody follows it",
        mailmapSymlink="a .mailmap is a symbolic link, which git does not follow",
        missingTaggerEntry="a tag has no tagger, as the oldest ones have not",
    ),
    *_of(
        Verdict.ACCEPTED,
        "git 2.39.4 and 2.45.1 alone complain; git took the check back, for git-annex and others need it",
        symlinkPointsToGitDir="a symbolic link points into .git",
        symlinkTargetLength="the target of a symbolic link is very long",
    ),
    *_of(
        Verdict.JUDGED,
        "most are slips (https:://, a colon for a slash) by which only the submodule fails. Refused is one "
        "that begins with -, holds a control character, names no host, or climbs above its root",
        gitmodulesUrl="a .gitmodules has a malformed URL",
    ),
    *_of(
        Verdict.REFUSED,
        _ESCAPE,
        fullPathname="a folder has an entry whose name holds a /",
        hasDot="a folder has an entry named .",
        hasDotdot="a folder has an entry named ..",
        hasDotgit="a folder has an entry named .git, or what Windows or macOS take for it",
    ),
    *_of(
        Verdict.REFUSED,
        "no file system takes such a name, and older gits count its length wrongly",
        largePathname="a name in a folder is longer than 4,096 bytes",
    ),
    *_of(
        Verdict.REFUSED,
        _MODULES,
        gitmodulesName="a .gitmodules names a submodule by a path with .., or by nothing",
        gitmodulesPath="a .gitmodules has a path that begins with -",
        gitmodulesSymlink="a .gitmodules is a symbolic link",
        gitmodulesUpdate="a .gitmodules has a command to run at an update",
    ),
    *_of(
        Verdict.REFUSED,
        _UNSEEN,
        gitmodulesBlob="a .gitmodules is no file",
        gitmodulesLarge="a .gitmodules is too large to be read",
        symlinkTargetBlob="a symbolic link is no file",
        symlinkTargetMissing="the target of a symbolic link cannot be read",
        unknownType="an object is of a type that git does not know",
    ),
    *_of(
        Verdict.REFUSED,
        "an unpatched git overflows on it, and writes where it must not (CVE-2022-23521)",
        gitattributesLarge="a .gitattributes is larger than 100 MB",
    ),
    *_of(
        Verdict.UNREADABLE,
        "git calls it fatal: its own reading of the object is not safe beyond this point",
        nulInHeader="the head of a commit or tag has a NUL byte",
        unterminatedHeader="the head of a commit or tag does not end",
    ),
    *_of(
        Verdict.UNREADABLE,
        _LOST,
        badObjectSha1="a tag names no object",
        badParentSha1="a commit names a parent that is no object id",
        badTagObject="a tag names an object of another type",
        badTree="a folder cannot be parsed",
        badTreeSha1="a commit names a folder that is no object id",
        badType="a tag is of an object type that does not exist",
        emptyName="a folder has an entry without a name",
        missingObject="a tag has no object",
        missingTag="a tag ends before its name",
        missingTagEntry="a tag has no name",
        missingTree="a commit has no folder",
        missingTreeObject="a commit's folder is not there",
        missingType="a tag ends before the type of its object",
        missingTypeEntry="a tag does not tell the type of its object",
    ),
)
BY_ID: Mapping[str, Defect] = {defect.id: defect for defect in DEFECTS}
_BY_FOLDED = {defect.id.lower(): defect.id for defect in DEFECTS}
# Of git's own check of a repository's refs. They come up in no transfer.
REF_IDS = frozenset({
    "badHeadTarget", "badPackedRefEntry", "badPackedRefHeader", "badRefContent", "badRefFiletype",
    "badRefName", "badRefOid", "badReferentName", "badReftableTableName", "emptyPackedRefsFile",
    "packedRefEntryNotTerminated", "packedRefUnsorted", "refMissingNewline", "symlinkRef",
    "symrefTargetIsNotARef", "trailingRefContent",
})  # fmt: skip


def severities(known: Iterable[str], allowed: Iterable[str] = ()) -> dict[str, str]:
    """What git is told of each message id that it knows, where that differs from its own mind."""
    told = {}
    for name in sorted(known):
        defect = BY_ID.get(name)
        verdict = defect.verdict if defect is not None else Verdict.REFUSED
        if verdict is Verdict.ACCEPTED or (name in allowed and verdict is not Verdict.UNREADABLE):
            told[name] = "ignore"
        elif verdict is Verdict.JUDGED:
            told[name] = "warn"  # named in git's output, for us to read
    return told


def tells_damage(name: str) -> bool:
    """Whether git's check of a whole mirror may speak of it: no sound mirror has such an object or ref."""
    return name in REF_IDS or (name in BY_ID and BY_ID[name].verdict is Verdict.UNREADABLE)


def check_allowed(names: Iterable[str]) -> tuple[str, ...]:
    """Message ids that a person allows for a repo, as git spells them; raises InvalidValue."""
    checked: list[str] = []
    for given in names:
        name = _BY_FOLDED.get(given.lower(), given)
        if name not in BY_ID:
            near = difflib.get_close_matches(name.lower(), _BY_FOLDED, n=1, cutoff=_LIKENESS)
            if near or not _ID.fullmatch(name):
                hint = f"Did you mean {_BY_FOLDED[near[0]]}?" if near else "docs/objects.md lists them"
                raise InvalidValue(f"{given[:60]!r} is no message id of git fsck", hint=hint)
        elif BY_ID[name].verdict is Verdict.UNREADABLE:
            raise InvalidValue(f"{name} cannot be allowed: {BY_ID[name].why}")
        if name not in checked:
            checked.append(name)
    if len(checked) > ALLOWED_MAX:
        raise InvalidValue(f"more than {ALLOWED_MAX} message ids are given")
    return tuple(checked)


def check_reason(text: str) -> str:
    """Why something is allowed, in a person's words; raises InvalidValue."""
    text = text.strip()
    if not text or len(text) > REASON_CHARS_MAX or not text.isprintable():
        raise InvalidValue(
            f"must be 1 to {REASON_CHARS_MAX} printable characters",
            hint="Say why these objects are known to be harmless",
        )
    return text


# Submodule URLs that git's fsck complains of (CVE-2018-17456, CVE-2020-5260, CVE-2020-11008)

_CURL = re.compile(r"(?:(?:https?|ftps?)::|(?=(?:https?|ftps?)://))(.*)", re.DOTALL)
_AUTHORITY = re.compile(r"(?:[A-Za-z0-9+.-]*:)?//(?:[^/?#]*@)?(\[[^\]/]+\]|[^/?#:@]*)")
# A backslash separates as well: for git on every system, and for clients on Windows.
_CLIMBS = re.compile(r"(?:\.[/\\])*\.\.[/\\](?:\.{1,2}[/\\])*[:/\\]")


def harm_of_url(url: str) -> str:
    """Why a client must not be given this URL of a submodule; empty for one that at worst does not work.
    Bytes that are not UTF-8 come as Python escapes them."""
    if url.startswith("-"):
        return "begins with -, which a client may take for an option"
    if any(byte < 32 or byte == 127 for byte in unquote_to_bytes(url.encode("utf-8", "surrogateescape"))):
        return "holds a control character, by which a client asks for another host's password"
    if _CLIMBS.match(url):
        return "climbs above its root, and takes another host's place"
    if (curl := _CURL.match(url)) is not None:
        found = _AUTHORITY.match(curl[1])
        if found is None or not found[1]:
            return "names no host, so that a client may send it any host's password"
    return ""

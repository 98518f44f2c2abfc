"""One repository for each message id of git's fsck: objects that make git say it, and a tip above them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.gitrepo import UpstreamRepo, run_git
from tests.support.hostile import BLOB, COMMIT, TAG, TREE, as_object, pack_of

KINDS = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}
WHO = b"A <a@b.c> 1700000000 +0000"
NOWHERE = b"\1" * 20
LARGE = 101 * 2**20  # of a .gitattributes: git's bound is 100 MB


@dataclass(frozen=True, slots=True)
class Recipe:
    """Objects, the tip last."""

    objects: tuple[tuple[int, bytes], ...]

    @property
    def tip(self) -> str:
        kind, content = self.objects[-1]
        return as_object(KINDS[kind], content)

    @property
    def ref(self) -> str:
        return "refs/tags/v1" if self.objects[-1][0] == TAG else "refs/heads/odd"

    @property
    def pack(self) -> bytes:
        return pack_of(*self.objects)

    def put_into(self, repo: UpstreamRepo) -> None:
        """As its newest change. Only what git itself can read can be served by git."""
        run_git(repo.path, "index-pack", "--stdin", stdin=self.pack)
        file = repo.path / self.ref
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.tip + "\n")


def oid(kind: int, content: bytes) -> bytes:
    return bytes.fromhex(as_object(KINDS[kind], content))


def blob(content: bytes) -> tuple[int, bytes]:
    return BLOB, content


FILE = blob(b"hello\n")
FILE_OID = oid(*FILE)
FOLDER = (TREE, b"100644 file\0" + FILE_OID)
FOLDER_OID = oid(*FOLDER)


def commit_of(
    tree: bytes = FOLDER_OID,
    author: bytes = b"author " + WHO + b"\n",
    committer: bytes = b"committer " + WHO + b"\n",
    message: bytes = b"\nmessage\n",
    parents: bytes = b"",
) -> bytes:
    return b"tree " + tree.hex().encode() + b"\n" + parents + author + committer + message


def of_tree(content: bytes, *more: tuple[int, bytes]) -> Recipe:
    tree = (TREE, content)
    below = [one for one in (FILE, FOLDER, *more) if one != tree]
    return Recipe((*below, tree, (COMMIT, commit_of(oid(*tree)))))


def of_entry(mode: bytes, name: bytes, content: bytes) -> Recipe:
    """A folder with one file of this name."""
    return of_tree(mode + b" " + name + b"\0" + oid(*blob(content)), blob(content))


def of_commit(content: bytes) -> Recipe:
    return Recipe((FILE, FOLDER, (COMMIT, content)))


def by(author: bytes) -> Recipe:
    return of_commit(commit_of(author=b"author " + author + b"\n"))


def of_tag(content: bytes) -> Recipe:
    return Recipe((FILE, FOLDER, (COMMIT, commit_of()), (TAG, content)))


def modules(text: bytes) -> Recipe:
    return of_entry(b"100644", b".gitmodules", text)


def submodule(name: bytes = b"sub", url: bytes = b"https://h.example/x.git", more: bytes = b"") -> bytes:
    return b'[submodule "' + name + b'"]\n\tpath = sub\n\turl = ' + url + b"\n" + more


OBJECT = b"object " + oid(COMMIT, commit_of()).hex().encode() + b"\n"
NAMED = b"type commit\ntag v1\n"
TAGGED = OBJECT + NAMED + b"tagger " + WHO + b"\n\nmessage\n"

RECIPES: Mapping[str, Callable[[], Recipe]] = {
    "badDate": lambda: by(b"A <a@b.c> yesterday +0000"),
    "badDateOverflow": lambda: by(b"A <a@b.c> 18446744073709551617 +0000"),
    "badEmail": lambda: by(b"A <a@<b.c> 1700000000 +0000"),
    "badFilemode": lambda: of_tree(b"100664 file\0" + FILE_OID),
    "badName": lambda: by(b"A> <a@b.c> 1700000000 +0000"),
    "badObjectSha1": lambda: of_tag(b"object nothing\n" + NAMED + b"tagger " + WHO + b"\n\nmessage\n"),
    "badParentSha1": lambda: of_commit(commit_of(parents=b"parent nobody\n")),
    "badTagName": lambda: of_tag(TAGGED.replace(b"tag v1", b"tag v 1")),
    "badTimezone": lambda: by(b"A <a@b.c> 1700000000 UTC"),
    "badTree": lambda: of_tree(b"100644 file\0" + FILE_OID[:10]),
    "badTreeSha1": lambda: of_commit(b"tree none\n" + commit_of().partition(b"\n")[2]),
    "badType": lambda: of_tag(TAGGED.replace(b"type commit", b"type thing")),
    "duplicateEntries": lambda: of_tree((b"100644 file\0" + FILE_OID) * 2),
    "emptyName": lambda: of_tree(b"100644 \0" + FILE_OID),
    "extraHeaderEntry": lambda: of_tag(TAGGED.replace(b"\n\n", b"\nmore x\n\n")),
    "fullPathname": lambda: of_tree(b"100644 a/b\0" + FILE_OID),
    "gitattributesBlob": lambda: of_tree(b"40000 .gitattributes\0" + FOLDER_OID),
    "gitattributesLarge": lambda: of_entry(b"100644", b".gitattributes", b"# x\n" * (LARGE // 4)),
    "gitattributesLineLength": lambda: of_entry(b"100644", b".gitattributes", b"* " + b"a" * 3000 + b"\n"),
    "gitattributesMissing": lambda: of_tree(b"160000 .gitattributes\0" + NOWHERE),
    "gitattributesSymlink": lambda: of_entry(b"120000", b".gitattributes", b"file"),
    "gitignoreSymlink": lambda: of_entry(b"120000", b".gitignore", b"file"),
    "gitmodulesBlob": lambda: of_tree(b"40000 .gitmodules\0" + FOLDER_OID),
    "gitmodulesLarge": lambda: modules(b"# x\n" * 5000),  # with a small core.bigFileThreshold
    "gitmodulesMissing": lambda: of_tree(b"160000 .gitmodules\0" + NOWHERE),
    "gitmodulesName": lambda: modules(submodule(name=b"../../x")),
    "gitmodulesParse": lambda: modules(b"[broken"),
    "gitmodulesPath": lambda: modules(submodule(more=b"\tpath = -x\n")),
    "gitmodulesSymlink": lambda: of_entry(b"120000", b".gitmodules", b"file"),
    "gitmodulesUpdate": lambda: modules(submodule(more=b"\tupdate = !touch /tmp/x\n")),
    "gitmodulesUrl": lambda: modules(submodule(url=b"-u./payload")),
    "hasDot": lambda: of_tree(b"40000 .\0" + FOLDER_OID),
    "hasDotdot": lambda: of_tree(b"40000 ..\0" + FOLDER_OID),
    "hasDotgit": lambda: of_tree(b"40000 .git\0" + FOLDER_OID),
    "largePathname": lambda: of_tree(b"100644 " + b"a" * 5000 + b"\0" + FILE_OID),
    "mailmapSymlink": lambda: of_entry(b"120000", b".mailmap", b"file"),
    "missingAuthor": lambda: of_commit(commit_of(author=b"")),
    "missingCommitter": lambda: of_commit(commit_of(committer=b"")),
    "missingEmail": lambda: by(b"A 1700000000 +0000"),
    "missingNameBeforeEmail": lambda: by(b"<a@b.c> 1700000000 +0000"),
    "missingObject": lambda: of_tag(TAGGED.partition(b"\n")[2]),
    "missingSpaceBeforeDate": lambda: by(b"A <a@b.c>1700000000 +0000"),
    "missingSpaceBeforeEmail": lambda: by(b"A<a@b.c> 1700000000 +0000"),
    "missingTag": lambda: of_tag(OBJECT + b"type commit\ntag v1"),
    "missingTagEntry": lambda: of_tag(TAGGED.replace(b"tag v1\n", b"")),
    "missingTaggerEntry": lambda: of_tag(OBJECT + NAMED + b"\nmessage\n"),
    "missingTree": lambda: of_commit(commit_of().partition(b"\n")[2]),
    "missingType": lambda: of_tag(OBJECT + b"type commit"),
    "missingTypeEntry": lambda: of_tag(TAGGED.replace(b"type commit\n", b"")),
    "multipleAuthors": lambda: of_commit(commit_of(author=(b"author " + WHO + b"\n") * 2)),
    "nulInCommit": lambda: of_commit(commit_of(message=b"\na\0b\n")),
    "nulInHeader": lambda: by(b"A\0 <a@b.c> 1700000000 +0000"),
    "nullSha1": lambda: of_tree(b"160000 sub\0" + bytes(20)),
    "treeNotSorted": lambda: of_tree(b"100644 b\0" + FILE_OID + b"100644 a\0" + FILE_OID),
    "unterminatedHeader": lambda: of_commit(commit_of(message=b"")[:-1]),
    "zeroPaddedDate": lambda: by(b"A <a@b.c> 01700000000 +0000"),
    "zeroPaddedFilemode": lambda: of_tree(b"0100644 file\0" + FILE_OID),
    # Of 2.39.4 and 2.45.1 alone, and of 2.52 and newer.
    "symlinkPointsToGitDir": lambda: of_entry(b"120000", b"link", b".git/config"),
    "symlinkTargetLength": lambda: of_entry(b"120000", b"link", b"a/" * 3000),
    "badGpgsig": lambda: of_tag(OBJECT + NAMED + b"tagger " + WHO + b"\ngpgsig x"),
    "badHeaderContinuation": lambda: of_tag(OBJECT + NAMED + b"tagger " + WHO + b"\ngpgsig x\n y"),
}
# What git cannot be brought to say by objects in a pack.
NEVER_SAID = frozenset(
    {"badTagObject", "missingTreeObject", "symlinkTargetBlob", "symlinkTargetMissing", "unknownType"}
)


def make_big_files_small(mirror: Path) -> None:
    """From now on git takes files of 10 kB for too large to be held in memory."""
    run_git(mirror, "config", "core.bigFileThreshold", "10k")

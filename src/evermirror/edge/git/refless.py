"""A repository without refs that sees a mirror's objects: what is pushed from it is meant by its id alone.

git compares every refspec with every ref that is here, which takes minutes for some thousand; and a branch
whose name is the id of an object would be taken for that object.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from evermirror.edge.git.folder import exchange, failure_of, fsync_tree
from evermirror.edge.git.incoming import object_format
from evermirror.edge.git.put_file import FOLDER, fsync_folder
from evermirror.model.failure import FailureError

NAME = "refless"
_ALTERNATES = "../../../objects\n"  # from its own objects to the mirror's
_CONFIG = "[core]\n\trepositoryformatversion = {version}\n\tbare = true\n{extension}"


def refless(mirror: Path) -> Path:
    """Its path, below the mirror's folder; made where it is missing or damaged. Raises FailureError."""
    path = mirror / FOLDER / NAME
    try:
        files = _files(sha256=object_format(mirror) == "sha256")
        if not _is_whole(path, files):
            _publish(path, files)
    except OSError as error:
        raise FailureError(failure_of(error)) from error
    return path


def _files(*, sha256: bool) -> dict[str, str]:
    extension = "[extensions]\n\tobjectformat = sha256\n" if sha256 else ""
    return {
        "objects/info/alternates": _ALTERNATES,
        "config": _CONFIG.format(version=int(sha256), extension=extension),
        "HEAD": "ref: refs/heads/none\n",
    }


def _is_whole(path: Path, files: Mapping[str, str]) -> bool:
    try:
        same = all((path / name).read_bytes() == content.encode() for name, content in files.items())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    return same and (path / "refs").is_dir()


def _publish(path: Path, files: Mapping[str, str]) -> None:
    """Durable when this returns. Pushes to other targets may do the same meanwhile: one is as good as
    another."""
    path.parent.mkdir(exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=NAME, dir=path.parent))
    try:
        (fresh / "objects" / "info").mkdir(parents=True)
        (fresh / "refs").mkdir()
        for name, content in files.items():
            (fresh / name).write_text(content)
        fsync_tree(fresh)
        if path.exists():
            exchange(fresh, path)
        else:
            fresh.rename(path)
        fsync_folder(path.parent)
    except OSError:
        if not _is_whole(path, files):  # else another one was quicker
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)

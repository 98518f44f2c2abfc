"""Where a mirror lives on disk: a readable path that no two repositories share and none can leave.

``github.com/a/b`` is ``github.com/a/b.git`` below the mirrors folder. Rules, segment by segment:
    - everything outside ``A-Z a-z 0-9 . _ -`` becomes ``%XX`` (its UTF-8 bytes), the percent sign too;
    - dots at the start become ``%2E``: no ``.``, ``..`` or hidden name: ``.incoming``, ``.trash`` are ours;
    - ``.git`` at the end of a folder becomes ``%2Egit``: only mirrors end so, hence none lies inside another;
    - an empty segment is a lone ``%``;
    - a segment over 200 bytes keeps its first 100 and ends in ``%h`` and its SHA-256; a path over 1,000 bytes
      becomes ``host/%t<SHA-256 of the key>.git``. ``%h`` and ``%t`` are no escapes, so nothing collides.
``fold_case`` also writes capitals as ``%XX``, for disks that take ``A`` and ``a`` for one.
``key_of`` is the exact inverse, except for hashed paths, whose key cannot be read back (None).
"""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath

from evermirror.model.repo import RepoKey

SEGMENT_MAX_BYTES = 200  # file systems take 255; room for ".git", ".lock" and suffixes of our own
PATH_MAX_BYTES = 1000  # Linux takes 4,096 for the whole, macOS 1,024; git adds up to 80 inside
_KEPT_CHARS = 100  # of a hashed segment, so that a person still sees what it is

_ODD = re.compile(r"[^A-Za-z0-9._-]", re.ASCII)
_ODD_OR_CAPITAL = re.compile(r"[^a-z0-9._-]", re.ASCII)
_ENCODED = re.compile(r"(?:[A-Za-z0-9._-]|%[0-9A-F]{2})+", re.ASCII)
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")
_EMPTY = "%"


def mirror_path(key: RepoKey, *, fold_case: bool = False) -> PurePosixPath:
    """The bare repository's folder, relative to the mirrors folder."""
    odd = _ODD_OR_CAPITAL if fold_case else _ODD
    *folders, name = key.split("/")
    parts = [_folder(part, odd) for part in folders]
    parts.append(_segment(name, odd) + ".git")
    path = "/".join(parts)
    if len(path) > PATH_MAX_BYTES:
        host = [parts[0]] if folders else []
        path = "/".join([*host, f"%t{_digest(key)}.git"])
    return PurePosixPath(path)


def key_of(path: PurePosixPath | str, *, fold_case: bool = False) -> RepoKey | None:
    """The key that ``mirror_path`` gave this path for; None for any other path, and for hashed ones."""
    text = str(path)
    if not text.endswith(".git"):
        return None
    parts = [_decoded(part) for part in text[: -len(".git")].split("/")]
    names = [part for part in parts if part is not None]
    if len(names) < len(parts):
        return None
    key = RepoKey("/".join(names))
    return key if str(mirror_path(key, fold_case=fold_case)) == text else None


def _folder(text: str, odd: re.Pattern[str]) -> str:
    segment = _segment(text, odd)
    return segment[: -len(".git")] + "%2Egit" if segment.endswith(".git") else segment


def _segment(text: str, odd: re.Pattern[str]) -> str:
    if not text:
        return _EMPTY
    dots = len(text) - len(text.lstrip("."))
    encoded = "%2E" * dots + odd.sub(_escape, text[dots:])
    if len(encoded) <= SEGMENT_MAX_BYTES:
        return encoded
    return f"{encoded[:_KEPT_CHARS]}%h{_digest(text)}"


def _escape(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _decoded(segment: str) -> str | None:
    if segment == _EMPTY:
        return ""
    if not _ENCODED.fullmatch(segment):
        return None
    raw = _ESCAPE.sub(lambda m: bytes((int(m[1], 16),)), segment.encode("ascii"))
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None

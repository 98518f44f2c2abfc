"""An upstream that says what no git says: refs, packs and objects made by hand."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterator

from evermirror.edge.git.pktline import encode
from tests.support.backend import Reply, Request
from tests.support.upstream import UpstreamServer

RESULT = "application/x-git-upload-pack-result"
COMMIT, TREE, BLOB, TAG = 1, 2, 3, 4

Answer = Callable[[Request, bytes], "Reply | None"]


def twist(upstream: UpstreamServer, answer: Answer, name: str = "bad/x") -> None:
    """From now on ``answer`` speaks for the repo; None leaves a request to the real server."""
    real = type(upstream).answer.__get__(upstream)

    def twisted(request: Request, body: bytes) -> Reply:
        own = answer(request, body) if f"/{name}" in request.path else None
        return real(request, body) if own is None else own

    upstream.answer = twisted  # type: ignore[method-assign]


def git_says(body: bytes | Iterator[bytes], kind: str = RESULT, *more: tuple[str, str]) -> Reply:
    pieces = iter([body]) if isinstance(body, bytes) else body
    return Reply(200, [("Content-Type", kind), *more], pieces)


def ref_list(*lines: bytes) -> bytes:
    return b"".join(encode(line + b"\n") for line in lines) + b"0000"


def pack_of(*objects: tuple[int, bytes]) -> bytes:
    """A pack with whole objects of these types and contents."""
    data = b"PACK" + struct.pack(">II", 2, len(objects))
    for kind, content in objects:
        size, first = len(content) >> 4, kind << 4 | len(content) & 15
        head = bytearray([first])
        while size:
            head[-1] |= 0x80
            head.append(size & 0x7F)
            size >>= 7
        data += bytes(head) + zlib.compress(content)
    return data + hashlib.sha1(data, usedforsecurity=False).digest()


def sends_pack(tip: str, pack: bytes) -> Answer:
    """Poll and git both hear of ``tip``; git is given ``pack`` for it."""

    def answer(request: Request, body: bytes) -> Reply | None:
        if b"command=ls-refs" in body:
            return git_says(ref_list(tip.encode() + b" refs/heads/main"))
        if b"command=fetch" in body:
            pieces = [pack[i : i + 60_000] for i in range(0, len(pack), 60_000)]
            talk = b"" if b"done" in body else encode(b"acknowledgments\n") + encode(b"ready\n") + b"0001"
            packet = encode(b"packfile\n") + b"".join(encode(b"\1" + p) for p in pieces) + b"0000"
            return git_says(talk + packet)
        return None

    return answer


def as_object(kind: bytes, content: bytes) -> str:
    return hashlib.sha1(b"%b %d\0" % (kind, len(content)) + content, usedforsecurity=False).hexdigest()

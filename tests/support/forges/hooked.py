"""What every stand-in does about hooks: rows of them, and letters when its repositories are pushed to.

    lab.push("team/x", lambda repo: repo.commit())   # the change, then what the forge sends about it
    lab.wait_sent()                                  # [Delivery(...), ...]

A real ``git push`` over http sends the same. ``lab.hooks_of("team/x")`` are the rows, ``lab.ping(...)`` is a
test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tests.support.backend import Reply
from tests.support.forges.sending import ZERO, Delivery, HookRow, Letter, RefChange, Sender
from tests.support.gitrepo import UpstreamRepo, read_refs

_ADDRESS = re.compile(r"https?://[^\s/]+.*")
PUSHED = "pushed"  # in the repository's folder "forge": what post-receive was told


class Hooked:
    """Mixed into ``ApiServer``, which makes ``hook_rows`` and ``sender``."""

    hook_rows: dict[int, list[HookRow]]
    sender: Sender

    # Of the server

    def repo(self, path: str) -> UpstreamRepo:
        raise NotImplementedError

    def letters(self, path: str, hook: HookRow, changes: list[RefChange]) -> Iterable[Letter]:
        """What this forge sends to this hook about a push."""
        raise NotImplementedError

    def ping_letter(self, path: str, hook: HookRow) -> Letter:
        raise NotImplementedError

    # For tests

    def hooks_of(self, path: str) -> list[HookRow]:
        row = self.project_at(path)  # type: ignore[attr-defined]
        assert row is not None, f"no project {path}"
        return self.hook_rows.setdefault(row.id, [])

    def add_hook(self, path: str, url: str, **more: object) -> HookRow:
        """One that somebody else has made."""
        row = HookRow(self.new_id(), url, **more)  # type: ignore[attr-defined, arg-type]
        self.hooks_of(path).append(row)
        return row

    def push(self, path: str, change: Callable[[UpstreamRepo], object]) -> None:
        """The repository is changed as a push would, and its hooks are sent."""
        repo = self.repo(path)
        before = read_refs(repo.path)
        change(repo)
        self.tell(path, changes_between(before, read_refs(repo.path)))

    def tell(self, path: str, changes: list[RefChange]) -> None:
        for hook in list(self.hooks_of(path)):
            for letter in self.letters(path, hook, changes) if hook.active else ():
                self.send(letter)

    def send(self, letter: Letter) -> None:
        self.sender.send(letter, self.delivered)

    def ping(self, path: str, hook: HookRow) -> Delivery:
        """Sent at once, and waited for."""
        return self.sender.send_now(self.ping_letter(path, hook), self.delivered)

    def wait_sent(self, timeout_s: float = 20.0) -> list[Delivery]:
        return self.sender.wait(timeout_s)

    # Inside

    def delivered(self, delivery: Delivery) -> None:
        """What the forge remembers of it."""
        hook = delivery.letter.hook
        hook.status, hook.said = delivery.status, delivery.said
        hook.failures = 0 if 200 <= delivery.status < 300 else hook.failures + 1

    def telling(self, path: str, folder: Path, reply: Reply) -> Reply:
        """A push over http: its hooks are sent once git is done."""
        told = _Told(reply.body, lambda: self.tell(path, take_pushed(folder)))
        return Reply(reply.status, reply.headers, told)

    def find_hook(self, path: str, hook_id: str, error: Exception) -> HookRow:
        found = next((row for row in self.hooks_of(path) if str(row.id) == hook_id), None)
        if found is None:
            raise error
        return found


class _Told(Iterator[bytes]):
    """Git's answer; ``then`` is called before its end is told, or when it is given up."""

    def __init__(self, body: Iterator[bytes], then: Callable[[], None]) -> None:
        self._body = body
        self._then: Callable[[], None] | None = then

    def __next__(self) -> bytes:
        piece = next(self._body, None)
        if piece is None:
            self._end()
            raise StopIteration
        return piece

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            close()
        self._end()

    def _end(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            then()


def is_address(value: object) -> bool:
    return isinstance(value, str) and _ADDRESS.fullmatch(value) is not None


def as_flag(data: Mapping[str, object], name: str, otherwise: bool) -> bool:
    value = data.get(name, otherwise)
    return value in (True, "true", "1", 1)


def changes_between(before: Mapping[str, str], after: Mapping[str, str]) -> list[RefChange]:
    """Of branches and tags: of no other refs a forge tells."""
    names = [n for n in sorted({*before, *after}) if n.startswith(("refs/heads/", "refs/tags/"))]
    changes = [RefChange(n, before.get(n, ZERO), after.get(n, ZERO)) for n in names]
    return [change for change in changes if change.old != change.new]


def take_pushed(folder: Path) -> list[RefChange]:
    """What post-receive has written since the last time."""
    file, mine = folder / "forge" / PUSHED, folder / "forge" / f"{PUSHED}.taken"
    try:
        file.rename(mine)
    except FileNotFoundError:
        return []
    lines = [line.split(" ", 2) for line in mine.read_text().splitlines()]
    mine.unlink()
    return [
        RefChange(ref, old, new) for old, new, ref in lines if ref.startswith(("refs/heads/", "refs/tags/"))
    ]

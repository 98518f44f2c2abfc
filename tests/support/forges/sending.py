"""Hooks that a stand-in sends: real requests to the addresses that were registered, in threads of their own.

``deliveries`` has each with what was answered. A body is sent byte for byte as it was signed.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

ANSWER_S = 10.0  # GitHub's; GitLab's and Gitea's are alike
THREADS = 4
ZERO = "0" * 40


@dataclass(frozen=True, slots=True)
class RefChange:
    """A ref before and after; ``ZERO`` where it was not, or is not."""

    ref: str
    old: str
    new: str

    @property
    def created(self) -> bool:
        return not self.old.strip("0")

    @property
    def deleted(self) -> bool:
        return not self.new.strip("0")

    @property
    def is_tag(self) -> bool:
        return self.ref.startswith("refs/tags/")

    @property
    def short(self) -> str:
        return self.ref.removeprefix("refs/heads/").removeprefix("refs/tags/")


@dataclass
class HookRow:
    """A registered hook, with everything that any forge knows of one."""

    id: int
    url: str
    secret: str = ""
    signing: str = ""  # GitLab's signing token
    active: bool = True
    events: set[str] = field(default_factory=set)
    json: bool = True
    insecure: bool = False
    branch_filter: str = ""
    template: str = ""
    encryption_type: int = 0
    status: int | None = None  # of the latest delivery; 0: no answer
    said: str = ""
    failures: int = 0  # in a row
    disabled_until: str | None = None
    kind: str = "gitea"
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(frozen=True, slots=True)
class Letter:
    """What is sent: made once, sent again as it is."""

    hook: HookRow
    event: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Delivery:
    """``status`` 0: no answer; ``said`` has why, or the answer's body."""

    letter: Letter
    status: int
    said: str
    took_s: float


class Sender:
    """Sends in the background; ``closed`` ends what waits."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.ca_file: Path | None = None  # for receivers with TLS
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: set[Future[Delivery]] = set()
        self._lock = threading.Lock()

    def send(self, letter: Letter, then: Callable[[Delivery], None]) -> None:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="hooks")
            future = self._pool.submit(self.send_now, letter, then)
            self._under_way.add(future)
        future.add_done_callback(self._forget)

    def send_now(self, letter: Letter, then: Callable[[Delivery], None]) -> Delivery:
        begin = time.monotonic()
        try:
            status, said = self._post(letter)
        except (OSError, http.client.HTTPException) as error:
            status, said = 0, str(error) or type(error).__name__
        delivery = Delivery(letter, status, said, time.monotonic() - begin)
        then(delivery)
        with self._lock:
            self.deliveries.append(delivery)
        return delivery

    def wait(self, timeout_s: float = 20.0) -> list[Delivery]:
        """Until all that was to be sent is; returns all deliveries so far."""
        with self._lock:
            waiting = set(self._under_way)
        done = wait_for(waiting, timeout_s)
        assert not done.not_done, f"{len(done.not_done)} hooks are not answered after {timeout_s} s"
        for future in done.done:
            future.result()
        with self._lock:
            return list(self.deliveries)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _forget(self, future: Future[Delivery]) -> None:
        with self._lock:
            self._under_way.discard(future)

    def _post(self, letter: Letter) -> tuple[int, str]:
        parts = urlsplit(letter.hook.url)
        host, port = parts.hostname or "", parts.port
        connection = (
            http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=self._tls(letter.hook))
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=ANSWER_S)
        )
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, letter.body, dict(letter.headers))
            answer = connection.getresponse()
            return answer.status, answer.read(10_000).decode("utf-8", "replace")
        finally:
            connection.close()

    def _tls(self, hook: HookRow) -> ssl.SSLContext:
        if hook.insecure:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            return context
        return ssl.create_default_context(cafile=self.ca_file)

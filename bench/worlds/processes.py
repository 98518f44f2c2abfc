"""How many processes the one that measures started itself."""

from __future__ import annotations

import sys


class ProcessCount:
    """There is no way around an audit hook, nor back."""

    def __init__(self) -> None:
        self.total = 0
        sys.addaudithook(self._heard)

    def _heard(self, event: str, _: tuple[object, ...]) -> None:
        if event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"):
            self.total += 1

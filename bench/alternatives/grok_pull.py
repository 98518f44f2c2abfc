"""grokmirror's ``grok-pull``: upstream tells in one file, its manifest, which repositories changed.

So it needs no look at those that did not, but an upstream that keeps such a file: ``grok-manifest`` there
reads all of a repository's refs at each push. What that costs is upstream's, and in nobody's figures here.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.worlds.population import link_tree

TIMEOUT_S = 600
MANIFEST = "manifest.js.gz"
WRITTEN_AT = 100  # done ones its manifest is written; a run that has none left after that never ends (2.0.12)
WRITTEN_IN_PLACE = ("grokmirror.fingerprint", "info/web/last-modified", "config")


class GrokPull:
    """A mirror of the upstreams ``names`` below ``site``, whose folders are in ``upstream``. All that have no
    folder there are equal to ``names[0]``, as the server has it."""

    def __init__(
        self, folder: Path, upstream: Path, site: str, names: Sequence[str], env: dict[str, str], at_once: int
    ) -> None:
        self._upstream = upstream
        self._names = names
        ca_file = env.get("GIT_SSL_CAINFO", "")
        self._env = {**env, "REQUESTS_CA_BUNDLE": ca_file, "HOME": str(folder)}
        self._top = folder / "top"
        self._top.mkdir(parents=True)
        self._config = folder / "grokmirror.conf"
        self._config.write_text(
            f"[core]\ntoplevel = {self._top}\nmanifest = {folder / MANIFEST}\nlog = {folder / 'log'}\n"
            f"[remote]\nsite = {site}\nmanifest = {site}/{MANIFEST}\n"
            f"[pull]\npull_threads = {at_once}\n",
            "utf-8",
        )
        self._local = folder / MANIFEST
        self._log = folder / "log"
        self._told: dict[str, dict[str, object]] = {}
        self._settle_in(site)

    def path(self, name: str) -> Path:
        return self._top / f"{name}.git"

    def _settle_in(self, site: str) -> None:
        """It clones one upstream for real; the others are what it and its upkeep would have left of them."""
        first, *others = self._names
        self.tell([first])
        self.run()
        repack = ["git", "-C", str(self.path(first)), "repack", "-adq"]
        subprocess.run(repack, env=self._env, check=True)  # a few files to copy, and not two hundred
        told = json.loads(gzip.decompress(self._local.read_bytes()))
        config = (self.path(first) / "config").read_text("utf-8")
        for name in others:
            path = self.path(name)
            link_tree(self.path(first), path)
            for file in WRITTEN_IN_PLACE:
                content = (self.path(first) / file).read_text("utf-8")
                (path / file).unlink()
                (path / file).write_text(content, "utf-8")
            (path / "config").write_text(config.replace(f"{first}.git", f"{name}.git"), "utf-8")
            told[f"/{name}.git"] = told[f"/{first}.git"]
        self._local.write_bytes(gzip.compress(json.dumps(told).encode("utf-8")))
        self._told = {f"/{name}.git": self._told[f"/{first}.git"] for name in self._names}

    @staticmethod
    def bearable(changed: Sequence[str]) -> Sequence[str]:
        """As many of them as it comes to an end with: all, or all but one."""
        return changed[:-1] if len(changed) % WRITTEN_AT == 0 else changed

    def tell(self, changed: Iterable[str]) -> None:
        """As upstream's hook does after a push."""
        manifest = self._upstream / "own.js"
        folders = [str(self._upstream / f"{name}.git") for name in changed]
        self._tool("grok-manifest", "-m", str(manifest), "-t", str(self._upstream), "-n", *folders)
        fresh = json.loads(manifest.read_text("utf-8"))
        self._told |= {f"/{name}": fresh[f"/{name}"] for name in (f"{n}.git" for n in changed)}
        (self._upstream / MANIFEST).write_bytes(gzip.compress(json.dumps(self._told).encode("utf-8")))

    def run(self) -> None:
        """One round, as a timer starts it; the manifest's date is not asked, being of whole seconds."""
        self._tool("grok-pull", "-n", "-c", str(self._config))

    def _tool(self, name: str, *args: str) -> None:
        command = shutil.which(name, path=str(Path(sys.executable).parent))
        assert command is not None, f"{name} is not installed: make setup"
        done = subprocess.run(
            [command, *args], env=self._env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, f"{name}: {done.stderr or done.stdout}"

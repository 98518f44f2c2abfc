"""The guide "Mirror 200 projects from one GitLab to another", followed line by line: its commands and
settings are taken from the page, with the addresses of two stand-ins for GitLab in place of its examples."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.forges.gitlab import GitLabServer
from tests.support.http_sink import HttpSink, Reply, http_sink
from tests.support.ports import free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gitlab-to-gitlab.md"
CHINESE = ROOT / "docs" / "gitlab-to-gitlab.zh-CN.md"
WITHIN_S = 90.0
PROJECTS = ("devops/core", "devops/payment", "devops/tools/lint", "devops/tools/deploy/charts")
LEFT_OUT = "devops/sandbox/toy"


def blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[str]:
    return [line for block in blocks(page, "sh") for line in block.splitlines()]


@dataclass
class Follower:
    """A person with a shell, in a folder of their own."""

    folder: Path
    source: GitLabServer
    target: GitLabServer
    bot: HttpSink
    port: int

    def adapted(self, text: str) -> str:
        """With the addresses that are there, instead of the page's."""
        text = text.replace("https://gitlab.corp.example.org", self.source.base_url)
        return text.replace("https://gitlab.example.com", self.target.base_url)

    def settings(self) -> str:
        first = blocks(PAGE, "toml")[0]
        allow = 'allow = ["gitlab.corp.example.org"]'
        assert allow in first
        ca = self.folder / "ca.pem"
        ca.write_text(Path(self.source.ca_file).read_text() + Path(self.target.ca_file).read_text())
        there = f'allow = ["localhost", "127.0.0.1"]\nca_file = "{ca}"'
        return self.adapted(first.replace(allow, there))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "EVERMIRROR_SERVER__LISTEN": f"127.0.0.1:{self.port}",
            "EVERMIRROR_SERVER__GRPC_LISTEN": "127.0.0.1:0",
            "SOURCE_TOKEN": "glpat-source",
            "TARGET_TOKEN": "glpat-target",
            "DINGTALK_URL": f"{self.bot.base}/robot/send?access_token=ding-secret",
            "DINGTALK_SECRET": "SEC-of-the-bot",
        }

    def run(self, line: str) -> str:
        """One line of the page; it must succeed. Returns what it prints."""
        done = subprocess.run(
            ["sh", "-c", self.adapted(line)],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        for secret in ("glpat-source", "glpat-target", "ding-secret", "SEC-of-the-bot"):
            assert secret not in done.stdout + done.stderr
        return done.stdout

    def start(self, line: str) -> subprocess.Popen[bytes]:
        shell = ["sh", "-c", f"exec {line}"]
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(shell, cwd=self.folder, env=self.environment, stdout=log, stderr=log)


@pytest.fixture
def follower(tmp_path) -> Iterator[Follower]:
    taken = Reply(body=json.dumps({"errcode": 0, "errmsg": "ok"}).encode())
    with (
        GitLabServer(tmp_path / "source", tls=True) as source,
        GitLabServer(tmp_path / "target", tls=True) as target,
        http_sink(taken) as bot,
    ):
        source.add_token("glpat-source", scopes=frozenset({"read_api", "read_repository"}))
        target.add_token("glpat-target", scopes=frozenset({"api", "write_repository"}))
        for path in (*PROJECTS, LEFT_OUT):
            source.add_group(path.rpartition("/")[0])
            repo = source.add_project(path, commits=2)
            repo.branch("release")
            repo.tag("v1")
            repo.hidden_ref("refs/merge-requests/1/head")
        folder = tmp_path / "operator"
        folder.mkdir()
        yield Follower(folder, source, target, bot, free_port())


def test_both_languages_say_the_same_commands_and_settings():
    assert commands(PAGE) == commands(CHINESE)
    plain = [re.sub(r"\s*#.*", "", block) for block in blocks(PAGE, "toml")]
    chinese = [re.sub(r"\s*#.*", "", block) for block in blocks(CHINESE, "toml")]
    assert plain == [block.replace('language = "zh"', 'language = "en"') for block in chinese]


def test_the_guide_leads_from_nothing_to_equal_targets_with_alerts_and_a_report(follower: Follower):
    lines = [line for line in commands(PAGE) if not line.startswith(("make ", "export "))]
    secrets = [line for line in lines if "secrets" in line]
    for line in secrets:
        follower.run(line)
    (follower.folder / "evermirror.toml").write_text(follower.settings())
    follower.run("evermirror config check")
    up = follower.start("evermirror up")
    try:
        _until(lambda: _is_ready(follower), up, follower)
        for line in lines:
            if line in secrets or line in ("evermirror up", "evermirror config check"):
                continue
            if "--dry-run" in line:
                told = follower.run(line)
                assert all(path in told for path in PROJECTS)
                assert not follower.target.projects
                continue
            follower.run(line.removesuffix(" --watch"))
            if line == "evermirror alerts test":
                assert follower.bot.taken
            if " pull discover https://" in line:
                _until(lambda: _is_equal(follower), up, follower)
        assert follower.target.project_at(f"mirror/{LEFT_OUT}") is None
        assert "<svg" in (follower.folder / "week.html").read_text()
    finally:
        up.terminate()
        assert up.wait(30) == 0


def _is_ready(follower: Follower) -> bool:
    return (
        subprocess.run(
            ["curl", "-fsS", f"http://127.0.0.1:{follower.port}/readyz"], capture_output=True, check=False
        ).returncode
        == 0
    )


def _is_equal(follower: Follower) -> bool:
    """Whether every project is at the target, with the same branches, tags and default branch."""
    for path in PROJECTS:
        there = follower.target.project_at(_target_of(path))
        if there is None:
            return False
        target, source = follower.target.repo(_target_of(path)), follower.source.repo(path)
        if target.refs() != source.public_refs() or target.head() != source.head():
            return False
    return True


def _target_of(path: str) -> str:
    return f"mirror/{path.removeprefix('devops/')}"


def _until(holds, up: subprocess.Popen[bytes], follower: Follower) -> None:
    end = time.monotonic() + WITHIN_S
    while not holds():
        assert up.poll() is None, (follower.folder / "log").read_text()
        assert time.monotonic() < end, (follower.folder / "log").read_text()[-5000:]
        time.sleep(0.2)

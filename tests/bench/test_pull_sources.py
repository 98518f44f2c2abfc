"""The day that bench pull-day plays, and what its servers tell of their burden."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

from bench.figures.pull_day import ProcessCount
from bench.worlds.pull_sources import SHARES, Source, make_sources, push_times
from bench.worlds.server import GitServer, Served
from evermirror.model.repo import Priority
from tests.support.gitrepo import UpstreamRepo


def test_a_source_gets_its_pushes_in_time_and_can_begin_again(tmp_path):
    repo = UpstreamRepo.init(tmp_path / "x.git", "x", "https://x.example/x")
    tips = tuple(repo.commit() for _ in range(4))
    source = Source("x", Priority.HIGH, repo, (10.0, 20.0, 20.5), tips)
    for _ in range(3):
        assert repo.tip() == tips[0]
        assert source.come_to(9.9) is None
        assert source.come_to(10.0) == repo.tip() == tips[1]
        assert source.come_to(15.0) is None
        assert source.come_to(99.0) == repo.tip() == tips[3]
        source.begin_again()
        source.main.write_text(f"{tips[2]}\n")  # as the loop does
        source.begin_again()


def test_pushes_lie_within_a_day_and_the_busiest_projects_come_first():
    times, _ = push_times(200)
    assert len(times) == 200
    assert all(0 <= at < 86_400 for pushes in times for at in pushes)
    assert sum(map(len, times[:40])) > sum(map(len, times[40:140])) > 0


def test_projects_are_made_in_the_proportions_asked_for(tmp_path):
    with GitServer(tmp_path / "up", tls=False) as server:
        sources, _ = make_sources(server, 20)
    assert Counter(s.priority for s in sources) == {priority: share // 10 for priority, share in SHARES}
    pushed = [s for s in sources if s.pushes]
    assert pushed
    for source in sources:
        assert len(source.tips) == len(source.pushes) + 1 == len(set(source.tips))
        assert source.repo.tip() == source.tips[0]
    last = pushed[0].come_to(86_400)
    assert pushed[0].repo.git("rev-list", "--count", last) == str(50 + len(pushed[0].pushes))


def test_a_server_tells_what_it_was_asked_and_what_git_cost_it(tmp_path):
    with GitServer(tmp_path / "up", tls=False, remembers=False) as server:
        repo = server.create("x")
        before = server.served()
        env = server.git_env(tmp_path)
        told = [subprocess.check_output(["git", "ls-remote", repo.url], env=env) for _ in range(2)]
        spent = server.served() - before
    assert before == Served()
    assert told[0] == told[1]
    assert spent.requests == 4  # what can it do, which refs are there
    assert spent.sent_bytes > 2 * len(told[0])
    assert spent.git_cpu_s > 0.001


def test_processes_are_counted():
    count = ProcessCount()
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert count.total == 1

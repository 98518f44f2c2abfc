"""One repository for each message id of git's fsck, all in one list: the harmless are mirrored and cloned,
those that could hurt a client are refused with what to do, and neither stops the other."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.gitrepo import read_refs
from tests.support.up_process import up

WHY = "comes with the verdicts on malformed objects"
defects = pytest.importorskip("tests.support.defects", reason=WHY)
fsck = pytest.importorskip("evermirror.core.fsck", reason=WHY)

pytestmark = pytest.mark.timeout(600)

MIRRORED_S = 240.0
# Some only a server that is not git sends; of one, git itself accepts a first clone.
LEFT_OUT = {*defects.NEVER_SAID, "gitmodulesLarge"}


def known_ids() -> set[str]:
    told = subprocess.run(
        ["git", "help", "--config-for-completion"], capture_output=True, text=True, check=True
    ).stdout.split()
    return {word.removeprefix("fsck.") for word in told if word.startswith("fsck.")}


def test_every_message_id_is_mirrored_or_refused_as_its_verdict_says(upstream, tmp_path: Path):
    verdicts = {d.id: d.verdict for d in fsck.DEFECTS if d.id in known_ids() - LEFT_OUT}
    served = {name: v for name, v in verdicts.items() if v is not fsck.Verdict.UNREADABLE}
    assert len(served) > 40
    repos = {}
    for name in served:
        repos[name] = upstream.create(f"fsck/{name}", commits=1)
        defects.RECIPES[name]().put_into(repos[name])
    catalog = tmp_path / "urls.txt"
    catalog.write_text("".join(f"{repo.url}\n" for repo in repos.values()))
    settings = {
        "EVERMIRROR_UPSTREAMS__SCHEMES": '["http"]',
        "EVERMIRROR_UPSTREAMS__ALLOW": json.dumps([upstream.host]),
        "EVERMIRROR_LIMITS__HOST_RATE": "100/s",
    }
    accepted = {name for name, verdict in served.items() if verdict is fsck.Verdict.ACCEPTED}
    with up(tmp_path, settings, catalog) as node:
        keys = {name: f"{upstream.host}/fsck/{name}" for name in served}
        node.until(lambda: {keys[name] for name in accepted} <= node.mirrors(), MIRRORED_S, look_s=0.5)
        refused = set(served) - accepted
        node.until(lambda: all(node.repo(keys[name])["last_error"] for name in refused), MIRRORED_S, look_s=1)
        assert node.mirrors() == {keys[name] for name in accepted}
        for name in accepted:
            clone = tmp_path / f"{name}.git"
            node.git("clone", "--quiet", "--mirror", node.clone_url(keys[name]), str(clone))
            assert read_refs(clone) == repos[name].public_refs()
        for name in refused:
            error = node.repo(keys[name])["last_error"]
            assert name in error["error_message"]
            assert f"evermirror allow {keys[name]} {name}" in error["hint"]

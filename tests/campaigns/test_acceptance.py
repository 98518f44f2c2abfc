"""Repositories of every shape, from a list of which 30 % is dead: what is cloned from us is upstream's.

Then upstreams do what real ones do (rename, delete, rewrite, replace), and docs/guide.md says the outcome.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.campaigns.conftest import Acceptance
from tests.campaigns.shapes import SHAPES
from tests.support.gitrepo import UpstreamRepo, read_head, read_refs

pytestmark = pytest.mark.timeout(900)  # the first one also makes and mirrors all


@pytest.mark.parametrize("shape", SHAPES)
def test_a_clone_from_us_has_upstreams_refs_and_head_and_is_sound(accepted: Acceptance, shape):
    repo, clone = accepted.repos[shape], accepted.folder / f"clone-{shape}.git"
    accepted.node.git("clone", "--quiet", "--mirror", accepted.url(shape), str(clone))
    try:
        assert read_refs(clone) == repo.public_refs()
        if repo.public_refs():
            assert head_of(accepted, shape) == told_head(repo)
        accepted.node.git("fsck", "--strict", cwd=clone)
        assert not (accepted.folder / "pwned").exists()
    finally:
        shutil.rmtree(clone)


def told_head(repo: UpstreamRepo) -> str:
    """As upstream itself tells a client; nothing where HEAD's branch is not there."""
    return repo.head() if repo.head() in repo.public_refs() else ""


def head_of(accepted: Acceptance, name: str) -> str:
    lines = accepted.node.git("ls-remote", "--symref", accepted.url(name), "HEAD").splitlines()
    return next((line.split()[1] for line in lines if line.startswith("ref: ")), "")


def test_shallow_partial_and_single_branch_clones_work(accepted: Acceptance, tmp_path):
    url, node = accepted.url("many-tags"), accepted.node
    node.git("clone", "-q", "--depth=1", "--no-tags", url, str(tmp_path / "shallow"))
    assert node.git("rev-list", "--count", "HEAD", cwd=tmp_path / "shallow").strip() == "1"
    node.git("fetch", "-q", "--deepen=10", cwd=tmp_path / "shallow")
    assert node.git("rev-list", "--count", "HEAD", cwd=tmp_path / "shallow").strip() == "11"
    node.git("clone", "-q", "--filter=blob:none", "--no-checkout", url, str(tmp_path / "partial"))
    assert node.git("rev-list", "--count", "HEAD", cwd=tmp_path / "partial").strip() == "20000"
    node.git("checkout", "-q", "HEAD", cwd=tmp_path / "partial")
    assert (tmp_path / "partial/n").read_text() == "19999"
    big = accepted.url("large-blobs")
    node.git("clone", "-q", "--filter=blob:limit=1m", "--no-checkout", big, str(tmp_path / "small"))
    assert sum(f.stat().st_size for f in (tmp_path / "small").rglob("*") if f.is_file()) < 1_000_000


def test_the_dead_are_told_and_nothing_of_them_is_here(accepted: Acceptance):
    node = accepted.node
    dead = [url for url in accepted.others if not url.alive]
    assert {url.key for url in dead}.isdisjoint(node.mirrors())

    def all_told() -> bool:
        return all(node.repo(url.key)["last_error"] for url in dead)

    node.until(all_told, 180, look_s=1)


def test_the_server_stays_small_while_gigabytes_pass_through(accepted: Acceptance):
    status = Path(f"/proc/{accepted.node.pid}/status").read_text()
    peak_kb = int(status.split("VmHWM:")[1].split()[0])
    assert peak_kb < 600_000  # a gigabyte was fetched, and cloned; 120,000 refs were read and told


# What upstreams do


def synced(accepted: Acceptance, repo: UpstreamRepo) -> dict[str, object]:
    return accepted.node.sync(repo.url)


def history(accepted: Acceptance, name: str) -> list[dict[str, object]]:
    told = accepted.node.command("history", accepted.key(name), "--json")
    assert told.returncode == 0, told.stderr
    return list(json.loads(told.stdout)["items"])


def mirror_refs(accepted: Acceptance, name: str) -> dict[str, str]:
    lines = accepted.node.git("ls-remote", "--refs", accepted.url(name)).splitlines()
    return {ref: oid for oid, ref in (line.split("\t") for line in lines)}


def test_a_renamed_default_branch_is_followed_and_the_old_tip_kept(accepted: Acceptance):
    repo = accepted.create("change/renamed")
    old = repo.tip()
    repo.branch("trunk")
    repo.set_head("trunk")
    repo.delete_branch("main")
    new = repo.commit("trunk")
    assert synced(accepted, repo)["status"] == "success"
    assert mirror_refs(accepted, "change/renamed") == {"refs/heads/trunk": new}
    assert head_of(accepted, "change/renamed") == "refs/heads/trunk"
    kept = [(item["ref"], item["old"], item["why"]) for item in history(accepted, "change/renamed")]
    assert kept == [("refs/heads/main", old, "deleted")]


def test_a_few_deleted_branches_go_and_can_be_restored(accepted: Acceptance):
    repo = accepted.create("change/deleted")
    tips = {f"refs/heads/topic/{n}": repo.bulk_commits(1, f"topic/{n}") for n in range(8)}
    assert synced(accepted, repo)["status"] == "success"
    gone = [f"refs/heads/topic/{n}" for n in range(3)]
    for ref in gone:
        repo.git("update-ref", "-d", ref)
    assert synced(accepted, repo)["status"] == "success"
    assert mirror_refs(accepted, "change/deleted") == repo.public_refs()
    assert {item["ref"]: item["old"] for item in history(accepted, "change/deleted")} == {
        ref: tips[ref] for ref in gone
    }
    done = accepted.node.command("restore", accepted.key("change/deleted"), "topic/1", "--as", "again")
    assert done.returncode == 0, done.stderr
    assert mirror_refs(accepted, "change/deleted")["refs/restored/again"] == tips["refs/heads/topic/1"]


def test_a_force_push_and_a_moved_tag_are_followed_and_the_old_tips_kept(accepted: Acceptance):
    repo = accepted.create("change/rewritten")
    old_tag = repo.tag("latest", annotated=True)
    assert synced(accepted, repo)["status"] == "success"
    old = repo.tip()
    new = repo.force_push()
    new_tag = repo.tag("latest", annotated=True)
    assert synced(accepted, repo)["status"] == "success"
    assert mirror_refs(accepted, "change/rewritten") == {
        "refs/heads/main": new,
        "refs/tags/latest": new_tag,
    }
    kept = {item["ref"]: item["old"] for item in history(accepted, "change/rewritten")}
    assert kept == {"refs/heads/main": old, "refs/tags/latest": old_tag}


def test_a_branch_that_becomes_a_folder_and_back_is_followed(accepted: Acceptance):
    repo = accepted.create("change/folder")
    repo.branch("a")
    assert synced(accepted, repo)["status"] == "success"
    repo.delete_branch("a")
    repo.branch("a/b")
    assert synced(accepted, repo)["status"] == "success"
    assert mirror_refs(accepted, "change/folder") == repo.public_refs()
    repo.delete_branch("a/b")
    repo.branch("a")
    assert synced(accepted, repo)["status"] == "success"
    assert mirror_refs(accepted, "change/folder") == repo.public_refs()


def delete_most(repo: UpstreamRepo) -> None:
    for n in range(8):
        repo.delete_branch(f"topic/{n}")


def delete_all(repo: UpstreamRepo) -> None:
    for ref in repo.public_refs():
        repo.git("update-ref", "-d", ref)


def replace_history(repo: UpstreamRepo) -> None:
    repo.git("update-ref", "-d", "refs/heads/main")
    repo.bulk_commits(4)


@pytest.mark.parametrize(
    ("reason", "change"),
    [("shrunken", delete_most), ("emptied", delete_all), ("unrelated", replace_history)],
)
def test_what_looks_like_an_accident_is_held_back_told_and_followed_when_confirmed(
    accepted: Acceptance, reason: str, change: Callable[[UpstreamRepo], None]
):
    name = f"change/{reason}"
    repo = accepted.create(name)
    for n in range(10):
        repo.branch(f"topic/{n}")
    assert synced(accepted, repo)["status"] == "success"
    before = mirror_refs(accepted, name)
    change(repo)
    task = synced(accepted, repo)
    assert task["status"] == "failure"
    assert task["result"]["error_type"] == "CONFLICT", task
    assert mirror_refs(accepted, name) == before
    told = accepted.node.repo(accepted.key(name))
    assert (told["status"], told["held"]["reason"]) == ("held", reason)
    done = accepted.node.command("confirm", accepted.key(name))
    assert done.returncode == 0, done.stdout + done.stderr
    assert mirror_refs(accepted, name) == repo.public_refs()
    gone = {ref: oid for ref, oid in before.items() if repo.public_refs().get(ref) != oid}
    assert {item["ref"]: item["old"] for item in history(accepted, name)} == gone


def test_unrelated_histories_side_by_side_are_no_reason_to_hold_back(accepted: Acceptance):
    repo = accepted.repos["two-roots"]
    repo.bulk_commits(2, "another-root")
    assert synced(accepted, repo)["status"] == "success"
    assert mirror_refs(accepted, "two-roots") == repo.public_refs()
    assert read_head(repo.path) == "refs/heads/main"

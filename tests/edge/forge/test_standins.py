"""The stand-ins do what their forges do where git meets them: what is pushed, hidden, refused, moved."""

from __future__ import annotations

import pytest

from evermirror.model.forge import Forge
from tests.edge.forge.forge_world import TOKEN, start
from tests.support.forges.gitlab import GitLabServer
from tests.support.gitrepo import run_git
from tests.support.ssh import SshUpstream, find_sshd


@pytest.fixture
def lab(tmp_path):
    with start(Forge.GITLAB, tmp_path, tls=True) as made:
        yield made


def with_token(url, token=TOKEN):
    return url.replace("https://", f"https://oauth2:{token}@")


def git(lab, repo, *args):
    return run_git(repo.path, *args, env={"GIT_SSL_CAINFO": str(lab.ca_file)})


def test_git_needs_a_token_that_may(lab):
    repo, target = lab.add_project("team/x", commits=1), lab.add_project("team/t")
    lab.add_token("reader", scopes=("read_repository",))
    lab.add_token("old", expires="2020-01-01")
    for url in (repo.url, with_token(repo.url, "wrong"), with_token(repo.url, "old")):
        with pytest.raises(AssertionError, match=r"could not read Username|Authentication failed"):
            git(lab, repo, "ls-remote", url)
    assert "refs/heads/main" in git(lab, repo, "ls-remote", with_token(repo.url, "reader"))
    with pytest.raises(AssertionError, match="403"):
        git(lab, repo, "push", with_token(target.url, "reader"), "main")
    git(lab, repo, "push", with_token(target.url), "main")
    assert target.refs() == repo.refs()


def test_a_public_project_is_read_by_anybody_and_an_archived_one_written_by_nobody(lab):
    repo = lab.add_project("team/x", commits=1, visibility="public")
    assert "refs/heads/main" in git(lab, repo, "ls-remote", repo.url)
    lab.archive("team/x")
    with pytest.raises(AssertionError, match="403"):
        git(lab, repo, "push", with_token(repo.url), "main:other")


def test_merge_requests_are_hidden_and_cannot_be_pushed(lab):
    repo, target = lab.add_project("team/x", commits=1), lab.add_project("team/t")
    repo.hidden_ref("refs/merge-requests/1/head")
    assert "merge-requests" not in git(lab, repo, "ls-remote", with_token(repo.url))
    with pytest.raises(AssertionError, match="hidden ref"):
        git(lab, repo, "push", with_token(target.url), "refs/merge-requests/1/head")


def test_the_default_branch_is_protected_with_the_first_push_and_not_before(lab):
    repo, target = lab.add_project("team/x", commits=2), lab.add_project("team/t")
    repo.branch("other")
    assert lab.protected("team/t") == {}
    git(lab, repo, "push", with_token(target.url), "refs/heads/*:refs/heads/*")
    assert lab.protected("team/t") == {"main": False}
    repo.force_push("main")
    repo.force_push("other")
    git(lab, repo, "push", "--force", with_token(target.url), "other")
    with pytest.raises(AssertionError, match="not allowed to force push code to a protected branch"):
        git(lab, repo, "push", "--force", with_token(target.url), "main")
    lab.protect("team/t", "main", force=True)
    git(lab, repo, "push", "--force", with_token(target.url), "main")
    lab.protect("team/t", "oth*")
    with pytest.raises(AssertionError, match="can only delete protected branches using the web"):
        git(lab, repo, "push", with_token(target.url), ":other")
    with pytest.raises(AssertionError, match="default branch of a project cannot be deleted"):
        git(lab, repo, "push", with_token(target.url), ":main")


def test_a_refused_branch_refuses_the_whole_push(lab):
    repo, target = lab.add_project("team/x", commits=2), lab.add_project("team/t")
    git(lab, repo, "push", with_token(target.url), "main")
    repo.force_push("main")
    repo.branch("new")
    with pytest.raises(AssertionError, match="pre-receive hook declined"):
        git(lab, repo, "push", "--force", with_token(target.url), "refs/heads/*:refs/heads/*")
    assert "refs/heads/new" not in target.refs()


def test_a_former_path_leads_to_the_new_one(lab):
    repo = lab.add_project("team/x", commits=1)
    lab.add_group("crew")
    lab.rename_project("team/x", "crew/y")
    moved = lab.repo("crew/y")
    assert "refs/heads/main" in git(lab, moved, "ls-remote", with_token(repo.url))
    lab.add_project("team/x")
    assert git(lab, moved, "ls-remote", with_token(repo.url)) == "", "the path is another project's now"


@pytest.mark.skipif(find_sshd() is None, reason="sshd is not installed")
def test_the_same_repositories_over_ssh_with_the_same_protection(tmp_path):
    ssh = SshUpstream(tmp_path / "ssh", find_sshd())
    try:
        with GitLabServer(ssh.root, ssh=ssh) as lab:
            repo, target = lab.add_project("team/x", commits=2), lab.add_project("team/t")
            known = tmp_path / "known"
            known.write_text(ssh.known_hosts_line)
            env = {"GIT_SSH_COMMAND": f"ssh -i {ssh.key_file} -o UserKnownHostsFile={known}"}
            run_git(repo.path, "push", lab.ssh_url("team/t"), "main", env=env)
            assert target.refs() == repo.refs()
            assert lab.protected("team/t") == {"main": False}
            repo.force_push()
            with pytest.raises(AssertionError, match="protected branch"):
                run_git(repo.path, "push", "--force", lab.ssh_url("team/t"), "main", env=env)
    finally:
        ssh.close()

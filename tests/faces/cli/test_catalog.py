"""`evermirror catalog`: what is found without a server, and what a server is asked."""

from __future__ import annotations

import json

import pytest

from tests.support.gitrepo import UpstreamRepo


def test_a_clean_catalog_is_0(run, here):
    (here / "urls.txt").write_text("https://github.com/a/b\nhttps://github.com/a/c\n")
    result = run("catalog", "check", "urls.txt")
    assert (result.returncode, result.stdout) == (0, "2 repositories in 1 file, 0 problems\n")


def test_problems_are_listed_with_file_and_line_and_are_1(run, here):
    folder = here / "lists"
    folder.mkdir()
    (folder / "x").write_text("https://github.com/a/b\nbad\n")
    (folder / "y.yaml").write_text("- git_url: &a https://github.com/a/c\n- *a\n")
    result = run("catalog", "check", "lists")
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("lists/x:2: this is not a URL")
    assert lines[1].startswith("lists/y.yaml:2: aliases")
    assert lines[2] == "1 repository in 2 files, 2 problems"
    told = json.loads(run("catalog", "check", "lists", "--json").stdout)
    assert (told["ok"], told["repos"], told["files"], told["problems_total"]) == (False, 1, 2, 2)
    assert [(p["file"], p["line"]) for p in told["problems"]] == [("lists/x", 2), ("lists/y.yaml", 2)]


def test_a_repository_is_read_at_its_head_and_the_settings_name_it(run, here):
    repo = UpstreamRepo.init(here / "c.git", "c", "c")
    repo.commit(files={"m/mongo/mongo": "url: https://github.com/mongodb/mongo.git\n"})
    assert run("catalog", "check", "c.git").stdout == "1 repository in 1 file, 0 problems\n"
    env = {"EVERMIRROR_CATALOG__SOURCES": json.dumps([{"url": "c.git", "path": "m"}])}
    assert run("catalog", "check", env=env).returncode == 0
    assert not (here / "data").exists(), "nothing is left"


@pytest.mark.parametrize(
    ("args", "words"),
    [([], "there is no catalog to check"), (["nowhere"], "nowhere cannot be read"), (["ext::x"], "helpers")],
)
def test_what_cannot_be_read_at_all_is_2(run, args, words):
    result = run("catalog", "check", *args)
    assert result.returncode == 2
    assert words in result.stderr


CATALOG = {
    "sources": [{"place": "https://h/c.git", "commit": "a" * 40, "looked_at": None, "trouble": "503"}],
    "held": [{"place": "https://h/c.git", "commit": "b" * 40, "removed": 11, "total": 12}],
    "problems_total": 3,
    "problems": [{"file": "x", "line": 2, "reason": "bad", "text": "\x1b[31m"}],
    "notes": [],
}


def test_the_servers_view_is_shown(run, api):
    api.on("GET", "/api/catalog", (200, CATALOG))
    result = run("catalog", "show", "--server", api.url)
    assert result.returncode == 0
    assert "503" in result.stdout
    assert "x:2: bad" in result.stdout
    assert "3 problems" in result.stdout
    assert "held back: https://h/c.git lost 11 of 12" in result.stderr
    assert json.loads(run("catalog", "show", "--json", "--server", api.url).stdout) == CATALOG


def test_what_is_held_back_is_confirmed(run, api):
    api.on("POST", "/api/catalog/confirm", (200, {"removed": 11}))
    assert run("catalog", "confirm", "--server", api.url).stdout == "removed 11 repositories\n"
    problem = {"type": "/problems/conflict", "title": "x", "status": 409, "detail": "nothing is held back"}
    api.on("POST", "/api/catalog/confirm", (409, problem))
    result = run("catalog", "confirm", "--server", api.url)
    assert result.returncode == 1
    assert "nothing is held back" in result.stderr

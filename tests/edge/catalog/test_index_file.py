"""The file that a restart goes on from: what was written for the same commits and rules, or nothing."""

import pytest

from evermirror.core.catalog.catalog import Catalog, FileName
from evermirror.core.catalog.formats import Defaults, parse_file
from evermirror.edge.catalog import index_file
from evermirror.edge.catalog.index_file import IndexFile
from evermirror.model.url import UrlRules

COMMITS = ["1" * 40, "2" * 40]
FILES = {
    "urls/1.txt": b"https://h.example/a\nhttps://h.example/b\nbad line\n",
    "urls/\udcff.txt": b"https://h.example/b\nhttps://h.example/c privat=true\n",  # no UTF-8 in its name
}


def catalog_of(files=FILES):
    made = Catalog()
    for path, data in sorted(files.items()):
        made.load(FileName(0, path), parse_file(path, data, "", UrlRules(), Defaults()))
    return made


@pytest.fixture
def index(tmp_path):
    return IndexFile(tmp_path / "index", "rules")


def test_what_was_written_comes_back(index):
    before = catalog_of()
    index.write(COMMITS, before.snapshot())
    after = Catalog.of(index.read(COMMITS))
    assert after.snapshot().files == before.snapshot().files
    assert after.problems() == before.problems() != []
    assert after.total == before.total == 3
    assert after.unmentioned(["h.example/c", "h.example/d"]) == ["h.example/d"]


def test_an_empty_catalog_comes_back_empty(index):
    index.write(COMMITS, Catalog().snapshot())
    assert Catalog.of(index.read(COMMITS)).total == 0


def test_other_commits_and_other_rules_know_nothing_of_it(index, tmp_path):
    index.write(COMMITS, catalog_of().snapshot())
    assert index.read(COMMITS[::-1]) is None
    assert index.read(COMMITS[:1]) is None
    assert IndexFile(tmp_path / "index", "other rules").read(COMMITS) is None
    assert IndexFile(tmp_path / "elsewhere", "rules").read(COMMITS) is None


def test_a_damaged_file_is_as_none(index, tmp_path):
    index.write(COMMITS, catalog_of().snapshot())
    whole = (tmp_path / "index").read_bytes()
    for cut in range(0, len(whole), 7):
        (tmp_path / "index").write_bytes(whole[:cut])
        assert index.read(COMMITS) is None
    for at in range(0, len(whole), 7):
        (tmp_path / "index").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert index.read(COMMITS) is None
    (tmp_path / "index").write_bytes(whole)
    assert index.read(COMMITS) is not None


def test_files_on_disk_have_no_commit_to_know_them_by(index, tmp_path):
    index.write([COMMITS[0], None], catalog_of().snapshot())
    assert not (tmp_path / "index").exists()


def test_only_its_owner_may_read_it_and_the_old_one_stays_until_the_new_one_is_whole(index, tmp_path):
    index.write(COMMITS, catalog_of().snapshot())
    assert (tmp_path / "index").stat().st_mode & 0o777 == 0o600
    (tmp_path / "index.new").mkdir()  # the next cannot be written
    index.write(COMMITS[::-1], catalog_of().snapshot())
    assert index.read(COMMITS) is not None


def test_what_is_too_large_is_not_kept(index, monkeypatch):
    monkeypatch.setattr(index_file, "FILES_MAX", 1)
    index.write(COMMITS, catalog_of().snapshot())
    assert index.read(COMMITS) is None

"""Catalog files on a real disk: files, folders, and everything else a folder can hold."""

import os
import subprocess

import pytest

from evermirror.edge import catalog_files
from evermirror.edge.catalog_files import read_list_files
from evermirror.errors import UsageError
from evermirror.model.url import UrlRules

RULES = UrlRules()


def write(path, *names):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"https://h.example/{name}\n" for name in names))
    return path


def keys(entries):
    return [entry.key.removeprefix("h.example/") for entry in entries]


def test_a_single_file(tmp_path):
    file = write(tmp_path / "urls.md", "a", "b")
    entries, problems = read_list_files([file], RULES)
    assert keys(entries) == ["a", "b"]
    assert problems == []
    assert entries[0].file == str(file)


def test_a_folder_is_read_to_its_depth_in_order_without_hidden_names(tmp_path):
    write(tmp_path / "2" / "x.txt", "c")
    write(tmp_path / "1" / "deep" / "er" / "list", "b")
    write(tmp_path / "0.txt", "a")
    write(tmp_path / ".cache" / "config", "hidden")
    write(tmp_path / "1" / ".hidden", "hidden")
    (tmp_path / "README.md").write_text("prose\n")
    (tmp_path / "LICENSE").write_text("prose\n")
    entries, problems = read_list_files([tmp_path], RULES)
    assert keys(entries) == ["a", "b", "c"]
    assert problems == []


def test_several_paths_are_one_catalog_and_the_first_of_two_counts(tmp_path):
    one = write(tmp_path / "one", "a", "b")
    two = write(tmp_path / "two", "b", "c")
    entries, problems = read_list_files([one, two], RULES)
    assert keys(entries) == ["a", "b", "c"]
    assert [str(p) for p in problems] == [f"{two}:1: repeats {one}:2"]


@pytest.mark.parametrize("bare", [True, False])
def test_a_git_repository_is_refused_and_what_lies_in_its_work_tree_is_read(tmp_path, bare):
    folder = tmp_path / "catalog"
    subprocess.run(["git", "init", "--quiet", *(["--bare"] if bare else []), folder], check=True)
    with pytest.raises(UsageError, match="is a git repository: git catalogs are not supported yet: give a"):
        read_list_files([folder], RULES)
    write(folder / "lists" / "x", "a")
    assert keys(read_list_files([folder / "lists"], RULES)[0]) == ["a"]


def test_no_path_is_an_empty_catalog():
    assert read_list_files([], RULES) == ([], [])


def test_a_missing_path_is_an_error_that_names_it(tmp_path):
    with pytest.raises(UsageError, match="nowhere cannot be read: No such file") as raised:
        read_list_files([tmp_path / "nowhere"], RULES)
    assert raised.value.hint


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path, monkeypatch):
    write(tmp_path / "in" / "x", "a")

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)  # root may list anything, so that permissions cannot show it
    with pytest.raises(UsageError, match="cannot be read: Permission denied"):
        read_list_files([tmp_path], RULES)


def test_links_inside_a_folder_are_not_followed_but_told(tmp_path):
    secret = write(tmp_path / "secret", "s")
    folder = tmp_path / "catalog"
    write(folder / "x", "a")
    (folder / "link").symlink_to(secret)
    (folder / "loop").symlink_to(folder)
    entries, problems = read_list_files([folder], RULES)
    assert keys(entries) == ["a"]
    assert [(p.file, p.reason) for p in problems] == [(str(folder / "link"), "a symbolic link: not followed")]


def test_a_link_that_was_named_is_followed(tmp_path):
    write(tmp_path / "real", "a")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert keys(read_list_files([tmp_path / "link"], RULES)[0]) == ["a"]


def test_a_pipe_in_the_folder_holds_nobody_up(tmp_path):
    write(tmp_path / "x", "a")
    os.mkfifo(tmp_path / "pipe")
    entries, problems = read_list_files([tmp_path], RULES)
    assert keys(entries) == ["a"]
    assert [p.reason for p in problems] == ["not a regular file"]


def test_other_formats_in_a_folder_are_told(tmp_path):
    write(tmp_path / "x", "a")
    (tmp_path / "repo.yaml").write_text("url: https://h.example/y\n")
    entries, problems = read_list_files([tmp_path], RULES)
    assert keys(entries) == ["a"]
    assert [p.reason for p in problems] == ["not a list file: .yaml files are not read"]


def test_a_huge_file_is_a_problem_and_is_not_read(tmp_path):
    write(tmp_path / "x", "a")
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(catalog_files.FILE_MAX_BYTES + 1)  # sparse: takes no room
    entries, problems = read_list_files([tmp_path], RULES)
    assert keys(entries) == ["a"]
    assert [p.reason for p in problems] == ["the file is over 64 MB: split it"]


def test_a_folder_of_far_too_many_files_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog_files, "FILES_MAX", 2)
    for i in range(3):
        write(tmp_path / str(i), str(i))
    with pytest.raises(UsageError, match="more than 2 files"):
        read_list_files([tmp_path], RULES)


def test_names_that_are_not_text_can_be_printed(tmp_path):
    odd = os.fsencode(tmp_path) + b"/\xff\n"
    with open(odd, "wb") as file:
        file.write(b"bad\n")
    _, problems = read_list_files([tmp_path], RULES)
    assert problems[0].file.isprintable()

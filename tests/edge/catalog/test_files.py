"""Catalog files on a real disk: files, folders, and everything else a folder can hold."""

import os
import subprocess

import pytest

from evermirror.core.catalog.formats import FILE_MAX_BYTES
from evermirror.edge.catalog import tree
from evermirror.edge.catalog.clone import is_git_source
from evermirror.edge.catalog.files import FileTree
from evermirror.edge.catalog.reader import CatalogReader
from evermirror.errors import UsageError
from evermirror.model.source import CatalogSource
from evermirror.model.url import UrlRules

RULES = UrlRules()


def write(path, *names):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"https://h.example/{name}\n" for name in names))
    return path


async def read(*paths):
    reader = CatalogReader([FileTree(path) for path in paths], RULES)
    reader.begin([await source.look() for source in reader.trees])
    entries = [entry async for some in reader.load() for entry in some]
    return entries, reader.catalog.problems()


def keys(entries):
    return [entry.key.removeprefix("h.example/") for entry in entries]


async def test_a_single_file(tmp_path):
    file = write(tmp_path / "urls.md", "a", "b")
    entries, problems = await read(file)
    assert keys(entries) == ["a", "b"]
    assert problems == []
    assert entries[0].file == str(file)


async def test_a_folder_is_read_to_its_depth_in_order_without_hidden_names(tmp_path):
    write(tmp_path / "2" / "x.txt", "c")
    write(tmp_path / "1" / "deep" / "er" / "list", "b")
    write(tmp_path / "0.txt", "a")
    write(tmp_path / ".cache" / "config", "hidden")
    write(tmp_path / "1" / ".hidden", "hidden")
    (tmp_path / "README.md").write_text("prose\n")
    (tmp_path / "LICENSE").write_text("prose\n")
    entries, problems = await read(tmp_path)
    assert keys(entries) == ["a", "b", "c"]
    assert problems == []


async def test_several_paths_are_one_catalog_and_the_first_of_two_counts(tmp_path):
    one = write(tmp_path / "one", "a", "b")
    two = write(tmp_path / "two", "b", "c")
    entries, problems = await read(one, two)
    assert keys(entries) == ["a", "b", "c"]
    assert [str(p) for p in problems] == [f"{two}:1: repeats one"]


@pytest.mark.parametrize("bare", [True, False])
async def test_a_git_repository_is_told_from_a_folder_and_what_lies_in_its_work_tree_is_files(tmp_path, bare):
    folder = tmp_path / "catalog"
    subprocess.run(["git", "init", "--quiet", *(["--bare"] if bare else []), folder], check=True)
    assert is_git_source(CatalogSource(str(folder)))
    write(folder / "lists" / "x", "a")
    assert not is_git_source(CatalogSource(str(folder / "lists")))
    assert keys((await read(folder / "lists"))[0]) == ["a"]


async def test_a_missing_path_is_an_error_that_names_it(tmp_path):
    with pytest.raises(UsageError, match="nowhere cannot be read: No such file") as raised:
        await read(tmp_path / "nowhere")
    assert raised.value.hint


async def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path, monkeypatch):
    write(tmp_path / "in" / "x", "a")

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)  # root may list anything, so that permissions cannot show it
    with pytest.raises(UsageError, match="cannot be read: Permission denied"):
        await read(tmp_path)


async def test_links_inside_a_folder_are_not_followed_but_told(tmp_path):
    secret = write(tmp_path / "secret", "s")
    folder = tmp_path / "catalog"
    write(folder / "x", "a")
    (folder / "link").symlink_to(secret)
    (folder / "loop").symlink_to(folder)
    entries, problems = await read(folder)
    assert keys(entries) == ["a"]
    assert [(p.file, p.reason) for p in problems] == [(str(folder / "link"), "a symbolic link: not followed")]


async def test_a_link_that_was_named_is_followed(tmp_path):
    write(tmp_path / "real", "a")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert keys((await read(tmp_path / "link"))[0]) == ["a"]


async def test_a_pipe_in_the_folder_holds_nobody_up(tmp_path):
    write(tmp_path / "x", "a")
    os.mkfifo(tmp_path / "pipe")
    entries, problems = await read(tmp_path)
    assert keys(entries) == ["a"]
    assert [p.reason for p in problems] == ["not a regular file"]


async def test_other_formats_in_a_folder_are_told_and_yaml_is_read(tmp_path):
    write(tmp_path / "x", "a")
    (tmp_path / "repo.yaml").write_text("url: https://h.example/y\n")
    (tmp_path / "repo.json").write_text("{}\n")
    entries, problems = await read(tmp_path)
    assert keys(entries) == ["y", "a"]
    assert [p.reason for p in problems] == ["not a catalog file: .json files are not read"]


async def test_a_file_that_is_the_same_is_not_read_again_and_one_that_changed_at_once_is(tmp_path):
    file = write(tmp_path / "x", "a")
    source = FileTree(file)
    first = await source.look()
    os.utime(file, (1, 1))
    file.write_text("https://h.example/b\n")
    os.utime(file, (1, 1))
    second = await source.look()
    assert first.files != second.files
    assert second.files == (await source.look()).files


async def test_what_was_read_can_be_read_again_after_the_file_changed(tmp_path):
    file = write(tmp_path / "x", "a")
    source = FileTree(file)
    old = await source.look()
    await anext(source.read(list(old.files.items())))
    write(file, "b")
    new = await source.look()
    assert [b async for b in source.read(list(old.files.items()))] == [[("x", b"https://h.example/a\n")]]
    assert [b async for b in source.read(list(new.files.items()))] == [[("x", b"https://h.example/b\n")]]


async def test_a_huge_file_is_a_problem_and_is_not_read(tmp_path):
    write(tmp_path / "x", "a")
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(FILE_MAX_BYTES + 1)  # sparse: takes no room
    entries, problems = await read(tmp_path)
    assert keys(entries) == ["a"]
    assert [p.reason for p in problems] == ["the file is over 64 MB: split it"]


async def test_a_folder_of_far_too_many_files_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(tree, "FILES_MAX", 2)
    for i in range(3):
        write(tmp_path / str(i), str(i))
    with pytest.raises(UsageError, match="more than 2 files"):
        await read(tmp_path)


async def test_names_that_are_not_text_can_be_printed(tmp_path):
    odd = os.fsencode(tmp_path) + b"/\xff\n"
    with open(odd, "wb") as file:
        file.write(b"bad\n")
    _, problems = await read(tmp_path)
    assert problems[0].file.isprintable()

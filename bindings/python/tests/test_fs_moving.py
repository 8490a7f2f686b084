# SPDX-License-Identifier: Apache-2.0
"""The file system for fsspec where trees are gone through: what is moved, what is copied, and what cannot be listed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ioverbs

pytest.importorskip("fsspec")

from ioverbs.fs import IOVFileSystem  # noqa: E402
from ioverbs.fs._paths import Parts  # noqa: E402
from ioverbs.fs._tree import Found, Tree  # noqa: E402
from ioverbs.fs._whole import Files  # noqa: E402


def tree(fs: IOVFileSystem) -> dict[str, bytes | None]:
    """All that there is."""
    found = fs.find("", withdirs=True, detail=True)
    return {name: None if info["type"] == "directory" else fs.cat_file(name) for name, info in found.items()}


FILES = {"w/a": b"a", "w/d/b": b"b", "w/d/e/c": b"c", "w/run_1/x": b"1", "w/run_2/x": b"2"}


@pytest.mark.parametrize(
    ("source", "target", "options"),
    [
        ("w", "w/backup", {}),
        ("w", "w/backup", {"recursive": True}),
        ("w/", "w/d/", {"recursive": True}),
        ("iov:///w", "w/d", {}),
        ("w/d", "w/d/e/f", {}),
        ("w/run_*", "w/run_all/", {"recursive": True}),
        ("w/run_*", "w/run_1", {"recursive": True}),
        ("w/d/*", "w/d/", {}),
        ("w/d/*", "w/d", {"recursive": True}),
        ("w/[a]", "w/", {}),
        (["w/a"], "w", {}),
        (["w/a", "w/d/b"], ["w/d/b", "w/d/new"], {}),
        (["w/run_1/x", "w/run_2/x"], "w/d", {}),
    ],
)
def test_nothing_is_moved_onto_or_into_itself(fs: IOVFileSystem, source: Any, target: Any, options: dict[str, Any]) -> None:
    fs.pipe(FILES)
    fs.mkdir("w/run_all")
    before = tree(fs)
    with pytest.raises((ioverbs.Invalid, OSError)):
        fs.mv(source, target, **options)
    assert tree(fs) == before


def test_moving_to_the_same_place_changes_nothing(fs: IOVFileSystem) -> None:
    fs.pipe(FILES)
    before = tree(fs)
    for source, target in (("w/", "w"), ("iov:///w", "w"), ("w", "iov:///w/"), ("w/d/", "w/d"), ("w/d", "w"), ("w/d", "w/"), ("w/a", "w")):
        fs.mv(source, target, recursive=True)
        assert tree(fs) == before
    with pytest.raises(ioverbs.NotEmpty):
        fs.mv_file("w/d", "w")
    for source, target in (("", "w/d/"), ("", "v"), ("w/d", ""), ("*", "")):
        with pytest.raises((ioverbs.Invalid, OSError)):
            fs.mv_file(source, target) if target == "" else fs.mv(source, target)
        assert tree(fs) == before


def test_trees_move_to_other_workspaces(fs: IOVFileSystem) -> None:
    fs.pipe(FILES)
    fs.pipe_file("w/d/rich", b"r", metadata={"t": 1})
    fs.mkdir("w/d/empty")
    fs.mkdir("v")
    fs.mv("w/d", "v")
    assert fs.find("v", withdirs=True) == ["v", "v/d", "v/d/b", "v/d/e", "v/d/e/c", "v/d/empty", "v/d/rich"]
    assert not fs.exists("w/d") and fs.cat_file("v/d/e/c") == b"c"
    ws = fs._blocking.store.session().workspace("v", create=False)
    assert [entry.name for entry in ws.find("t = 1")] == ["rich"]
    fs.mkdir("w/d/kept")
    before = tree(fs)
    with pytest.raises(ioverbs.NotEmpty):
        fs.mv_file("v/d", "w/d")
    with pytest.raises(NotADirectoryError):
        fs.mv_file("v/d", "w/a")
    with pytest.raises(IsADirectoryError):
        fs.mv_file("w/a", "v/d")
    with pytest.raises(FileNotFoundError):
        fs.mv("v/d", "no-such-workspace/d")
    assert tree(fs) == before
    fs.rmdir("w/d/kept")
    fs.mv_file("v/d", "w/d")
    assert fs.ls("v") == [] and fs.cat_file("w/d/rich") == b"r"
    fs.mv("w", "renamed", recursive=True)
    assert not fs.exists("w") and fs.cat_file("renamed/d/e/c") == b"c"
    fs.mv("renamed", "v")
    assert fs.ls("", detail=False) == ["v"] and fs.isdir("v/renamed/d/empty")


def test_what_globs_and_lists_name_is_moved(fs: IOVFileSystem) -> None:
    fs.pipe(FILES)
    fs.mkdir("v")
    fs.mv("w/run_*", "v/", recursive=True)
    fs.mv(["w/a", "w/d/b"], "v/files")
    assert fs.find("") == ["v/files/a", "v/files/b", "v/run_1/x", "v/run_2/x", "w/d/e/c"]
    assert not fs.exists("w/run_1")
    fs.mv("v/files/*", "w/d/")
    # What is deeper stays, and directories do.
    fs.mv("w/d", "w/flat", recursive=True, maxdepth=1)
    assert fs.find("") == ["v/run_1/x", "v/run_2/x", "w/d/e/c", "w/flat/a", "w/flat/b"]
    fs.mv("w/flat", "w/flat/deep/er", recursive=True, maxdepth=1)
    assert fs.find("w") == ["w/d/e/c", "w/flat/deep/er/a", "w/flat/deep/er/b"]
    before = tree(fs)
    with pytest.raises(IsADirectoryError):
        fs.mv(["w/flat", "w/d"], "v")
    assert tree(fs) == before
    fs.mv(["w/flat/deep", "v/run_1"], "w/d", recursive=True)
    assert fs.find("") == ["v/run_2/x", "w/d/a", "w/d/b", "w/d/e/c", "w/d/x"]
    assert fs.ls("w", detail=False) == ["w/d", "w/flat"] and not fs.exists("v/run_1")


def test_what_a_glob_would_find_by_now_is_not_removed(fs: IOVFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody makes a file that the pattern fits while what it has found before is moved."""
    fs.pipe({"w/1.dat": b"1", "w/2.dat": b"2"})
    fs.mkdir("v")
    real = Files.copy

    async def copy(self: Files, *args: Any) -> Any:
        out = await real(self, *args)
        fs.pipe_file("w/3.dat", b"3")
        return out

    with monkeypatch.context() as patched:
        patched.setattr(Files, "copy", copy)
        fs.mv("w/*.dat", "v/")
    assert tree(fs) == {"v": None, "v/1.dat": b"1", "v/2.dat": b"2", "w": None, "w/3.dat": b"3"}


def test_what_others_change_meanwhile_is_not_removed(fs: IOVFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    fs.pipe({"w/d/a": b"old", "w/d/b": b"b"})
    fs.mkdir("v")
    real = Files.copy

    async def copy(self: Files, source: Parts, *args: Any) -> Any:
        out = await real(self, source, *args)
        if source[-1] == b"a":
            fs.pipe_file("w/d/a", b"new")
        return out

    with monkeypatch.context() as patched, pytest.raises(ioverbs.Busy, match="w/d/a"):
        patched.setattr(Files, "copy", copy)
        fs.mv("w/d", "v/d")
    assert fs.cat_file("w/d/a") == b"new" and fs.cat_file("v/d/a") == b"old"


@pytest.fixture
def unlisted(fs: IOVFileSystem, monkeypatch: pytest.MonkeyPatch) -> Iterator[IOVFileSystem]:
    """A file system of which one directory cannot be listed."""
    fs.pipe({"w/d/a": b"1", "w/d/deep/er/b": b"2"})
    fs.mkdir("v")
    real = Tree.entries

    async def entries(self: Tree, parts: Parts) -> list[Found]:
        if parts == (b"w", b"d", b"deep"):
            raise ioverbs.Timeout("no answer")
        return await real(self, parts)

    with monkeypatch.context() as patched:
        patched.setattr(Tree, "entries", entries)
        yield fs


def test_what_cannot_be_listed_is_not_left_out(unlisted: IOVFileSystem, tmp_path: Path) -> None:
    fs = unlisted
    wrong: list[Callable[[], object]] = [
        lambda: fs.find("w"),
        lambda: fs.du("w"),
        lambda: fs.glob("w/**"),
        lambda: list(fs.walk("w")),
        lambda: list(fs.walk("w", on_error="raise")),
        lambda: fs.get("w/d", str(tmp_path / "got"), recursive=True),
        lambda: fs.cp("w/d", "v/d", recursive=True),
        lambda: fs.cat("w/d", recursive=True),
        lambda: fs.mv("w/d", "v/d", recursive=True),
        lambda: fs.mv("w/*", "v/", recursive=True),
        lambda: asyncio.run(fs._find("w")),
    ]
    for one in wrong:
        # fsspec has a class of its own for it where it waits in its event loop.
        with pytest.raises(TimeoutError):
            one()
    assert fs.cat("w/d/a") == b"1" and fs.cat("w/d/deep/er/b") == b"2" and fs.ls("v") == []


def test_who_walks_may_leave_it_out(unlisted: IOVFileSystem) -> None:
    fs = unlisted
    told: list[Exception] = []
    seen = [("w", ["d"], []), ("w/d", ["deep"], ["a"]), ("w/d/deep", [], [])]
    assert list(fs.walk("w", on_error="omit")) == seen
    assert list(fs.walk("w", on_error=told.append)) == seen and len(told) == 1
    assert list(fs.walk("w", on_error="omit", topdown=False)) == seen[::-1]
    assert fs.find("w", on_error="omit") == ["w/d/a"] == fs.glob("w/*/a", on_error="omit") and fs.du("w", on_error="omit") == 1
    assert [path for path, _, _ in fs.walk("w", maxdepth=2)] == ["w", "w/d"]


def test_walking(fs: IOVFileSystem) -> None:
    fs.pipe(FILES)
    assert list(fs.walk("w/none")) == [("w/none", [], [])]
    with pytest.raises(FileNotFoundError):
        list(fs.walk("w/none", on_error="raise"))
    seen = []
    for path, directories, files in fs.walk(""):
        seen.append((path, sorted(files)))
        # As of os.walk: who takes a name away does not go there.
        directories[:] = [name for name in directories if not name.startswith("run")]
    assert seen == [("", []), ("w", ["a"]), ("w/d", ["b"]), ("w/d/e", ["c"])]
    assert [(path, list(files)) for path, _, files in fs.walk("w/a", detail=True)] == [("w/a", [""])]
    with pytest.raises(ValueError, match="maxdepth"):
        list(fs.walk("w", maxdepth=0))


def test_an_empty_directory_has_no_files_to_read(fs: IOVFileSystem) -> None:
    fs.mkdir("w/empty")
    assert fs.cat("w/empty", recursive=True) == {}
    assert fs.cat("w", recursive=True) == {}
    with pytest.raises(IsADirectoryError):
        fs.cat("w/empty")


def test_only_who_asks_for_a_workspace_makes_one(fs: IOVFileSystem, tmp_path: Path) -> None:
    fs.pipe(FILES)
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "f").write_bytes(b"f")
    wrong: list[Callable[[], object]] = [
        lambda: fs.pipe_file("typo/out/a", b""),
        lambda: fs.pipe_file("typo/a", b""),
        lambda: fs.touch("typo/out/a"),
        lambda: fs.open("typo/out/a", "wb"),
        lambda: fs.open("typo/out/a", "ab"),
        lambda: fs.put_file(tmp_path / "dir" / "f", "typo/out/a"),
        lambda: fs.put(str(tmp_path / "dir"), "typo/out", recursive=True),
        lambda: fs.cp_file("w/a", "typo/out/a"),
        lambda: fs.cp("w/a", "typo/out/"),
        lambda: fs.cp("w/d", "typo/out", recursive=True),
        lambda: fs.mv("w/a", "typo/out/a"),
        lambda: fs.mv("w/d", "typo/out", recursive=True),
    ]
    for one in wrong:
        with pytest.raises(FileNotFoundError):
            one()
        assert fs.ls("", detail=False) == ["w"]
    # A path of one name is a workspace: this is asked for.
    fs.cp("w/d", "copied", recursive=True)
    fs.put(str(tmp_path / "dir"), "put", recursive=True)
    fs.makedirs("made/with/these")
    assert fs.find("copied") == ["copied/b", "copied/e/c"] and fs.find("put") == ["put/f"]
    assert fs.ls("", detail=False) == ["copied", "made", "put", "w"]

# SPDX-License-Identifier: Apache-2.0
"""The file system for fsspec: which store it is of, and which names there are."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import ioverbs

fsspec = pytest.importorskip("fsspec")

from ioverbs.fs import IOVFileSystem  # noqa: E402
from ioverbs.fs._paths import split_url  # noqa: E402


def test_a_path_of_another_store_is_refused_by_all(fs: IOVFileSystem, tmp_path: Path) -> None:
    fs.pipe({"w/d/a": b"1", "w/b": b"2"})
    (tmp_path / "local").write_bytes(b"3")
    there = "iov://backup/w/d"
    wrong: list[Callable[[], object]] = [
        lambda: fs.info(there),
        lambda: fs.exists(there),
        lambda: fs.isdir(there),
        lambda: fs.ls(there),
        lambda: fs.find(there),
        lambda: fs.glob(f"{there}/*"),
        lambda: list(fs.walk(there)),
        lambda: fs.open(f"{there}/a"),
        lambda: fs.open(f"{there}/a", "wb"),
        lambda: fs.cat(f"{there}/a"),
        lambda: fs.cat([f"{there}/a"]),
        lambda: fs.pipe(f"{there}/a", b""),
        lambda: fs.get(there, str(tmp_path / "got"), recursive=True),
        lambda: fs.put(str(tmp_path / "local"), f"{there}/a"),
        lambda: fs.cp(there, "w/e", recursive=True),
        lambda: fs.cp("w/b", f"{there}/b"),
        lambda: fs.mv(there, "w/e", recursive=True),
        lambda: fs.mv("w/b", f"{there}/b"),
        lambda: fs.mv("w/b*", f"{there}/"),
        lambda: fs.rm(there, recursive=True),
        lambda: fs.rm([f"{there}/a", "w/b"]),
        lambda: fs.rm_file(f"{there}/a"),
        lambda: fs.unstrip_protocol(there),
        lambda: fs.get_mapper(there),
    ]
    for one in wrong:
        with pytest.raises(ValueError, match="this file system is of"):
            one()
    assert fs.cat("w", recursive=True) == {"w/d/a": b"1", "w/b": b"2"}
    assert fs.cat("iov:///w/b") == b"2"


def test_hosts_are_what_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    for store in ("iov://node7", "iov://node7/", "iov://node7?tls=system", "iov://node7/?secret=/a/b&tls=none"):
        fs = IOVFileSystem(store=store, skip_instance_cache=True)
        url = fs.unstrip_protocol("w/x y/?z")
        assert url.startswith("iov://node7/w/x y/?z")
        assert fs._strip_protocol(url) == "w/x y/?z" == fs._strip_protocol("iov://node7/w/x y/?z")
        assert fs.unstrip_protocol(url) == url
        assert fs._parts("iov://node7/w/x") == (b"w", b"x")
        # Who has only that URL reaches the same store, in the same way.
        again, path = fsspec.url_to_fs(url, skip_instance_cache=True)
        assert (again._blocking.store.url, path) == (fs._blocking.store.url, "w/x y/?z")
        other, path = fsspec.url_to_fs("iov://node7/w/x", store=store, skip_instance_cache=True)
        assert (other._blocking.store.url, path) == (fs._blocking.store.url, "w/x")
        with pytest.raises(ValueError, match="this file system is of"):
            fs._parts("iov://node8/w/x")
        with pytest.raises(ValueError, match="node7.*node8|node8.*node7"):
            fsspec.url_to_fs("iov://node8/w/x", store=store, skip_instance_cache=True)
    assert split_url("iov://a:1,b/w/d/x?secret=/s/t&tls=c") == ("iov://a:1,b?secret=/s/t&tls=c", "w/d/x")
    assert split_url("iov:///w/x?secret=1") == (None, "w/x?secret=1")
    assert fsspec.filesystem("iov", store="iov://node7/") is fsspec.url_to_fs("iov://node7/w")[0]
    monkeypatch.setenv("IOVERBS_URL", "iov://node9/?secret=none")
    assert IOVFileSystem(skip_instance_cache=True)._parts("iov://node9/w/x") == (b"w", b"x")


def test_a_relative_store_stays_where_it_was_named(
    file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path, tmp_path / "second"
    second.mkdir()
    monkeypatch.chdir(first)
    assert file_url == f"file:{first / 'store'}"
    fs = IOVFileSystem(store="file:store", deadline=30)
    monkeypatch.setenv("IOVERBS_URL", "file:store")
    default = IOVFileSystem()
    monkeypatch.chdir(second)
    fs.mkdir("w")
    fs.pipe_file("w/a", b"first")
    assert default.cat_file("w/a") == b"first"
    assert fs.store == file_url and fs.storage_options["store"] == file_url
    assert IOVFileSystem(store="file:store", deadline=30) is not fs and IOVFileSystem() is not default
    assert pickle.loads(pickle.dumps(fs)).store == file_url
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(write, fs.cat_file("w/a"))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    assert os.read(read, 100) == b"first"
    os.close(read)
    assert list(second.iterdir()) == []
    for one in (fs, default):
        one._blocking.store.session().close()
    IOVFileSystem.clear_instance_cache()


def test_a_relative_session_stays_where_it_was_named(
    file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "second").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IOVERBS_URL", "file:store")
    for url in ("file:store", None):
        with ioverbs.open(url) as session:
            session.workspace("w")
            monkeypatch.chdir(tmp_path / "second")
            with pickle.loads(pickle.dumps(session)) as same:
                assert [entry.name for entry in same.workspaces()] == ["w"]
            assert session.url == same.url == file_url
            monkeypatch.chdir(tmp_path)
    assert list((tmp_path / "second").iterdir()) == []

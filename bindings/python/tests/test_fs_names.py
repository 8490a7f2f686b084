# SPDX-License-Identifier: Apache-2.0
"""The file system for fsspec: names that lead nowhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import ioverbs

pytest.importorskip("fsspec")

from ioverbs.fs import IOVFileSystem  # noqa: E402


def test_no_name_leads_upwards(fs: IOVFileSystem, tmp_path: Path) -> None:
    fs.pipe({"w/run/a": b"1", "w/b": b"2"})
    (tmp_path / "local").write_bytes(b"3")
    up = "w/run/../x"
    wrong: list[Callable[[], object]] = [
        lambda: fs.pipe_file(up, b""),
        lambda: fs.pipe_file("w/run/..", b""),
        lambda: fs.touch(up),
        lambda: fs.open(up, "wb"),
        lambda: fs.open("w/run/../b"),
        lambda: fs.cat_file("w/run/../b"),
        lambda: fs.put_file(tmp_path / "local", up),
        lambda: fs.mkdir("w/run/.."),
        lambda: fs.mkdir(".."),
        lambda: fs.makedirs(up, exist_ok=True),
        lambda: fs.cp_file("w/b", up),
        lambda: fs.cp_file("w/run/../b", "w/c"),
        lambda: fs.mv("w/b", up),
        lambda: fs.mv("w/b", "w/run/../"),
    ]
    for one in wrong:
        with pytest.raises(ioverbs.Invalid, match=r"\.\."):
            one()
    for gone in (lambda: fs.rm("w/run/../b"), lambda: fs.rm_file("w/run/../b"), lambda: fs.mv("w/run/../b", "w/c"), lambda: fs.info(up)):
        with pytest.raises(FileNotFoundError):
            gone()
    assert not fs.exists("w/run/../b") and not fs.isdir("w/run/..")
    assert fs.cat("w", recursive=True) == {"w/run/a": b"1", "w/b": b"2"}


def test_what_has_such_a_name_can_be_moved_away_and_removed(fs: IOVFileSystem) -> None:
    """Earlier releases made them."""
    ws = fs._blocking.store.session().workspace("w", create=False)
    for name in ("run", "other"):
        with ws.group(name).group("..") as above, above.create("x") as c:
            c.write(0, b"lost")
    assert fs.find("w") == ["w/other/../x", "w/run/../x"] and fs.isdir("w/run/..")
    fs.mv("w/run/../x", "w/found")
    fs.mv("w/other/..", "w/other/up")
    assert fs.cat("w", recursive=True) == {"w/found": b"lost", "w/other/up/x": b"lost"}
    fs.rmdir("w/run/..")
    ws.group("run").group("..").close()
    fs.rm("w/run/..", recursive=True)
    ws.group("run").group("..").close()
    fs.rm("w/run", recursive=True)
    assert fs.find("w") == ["w/found", "w/other/up/x"]

# SPDX-License-Identifier: Apache-2.0
"""The file system for fsspec: how much comes in a request."""

from __future__ import annotations

import os
from typing import Any

import pytest

import ioverbs

pytest.importorskip("fsspec")

from ioverbs.fs import IOVFileSystem, _reading  # noqa: E402


def test_no_request_reads_more_than_fits_its_time(fs: IOVFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 1 << 20
    data = os.urandom(4 * most + 12345)
    fs.pipe({"w/large": data, "w/small": data[:1000]})
    fs.pipe({f"w/many/{i:02}": data[i : i + most // 2] for i in range(12)})
    asked: dict[int, int] = {}
    kept: list[object] = []

    def note(who: object, n: int) -> None:
        kept.append(who)
        asked[id(who)] = asked.get(id(who), 0) + n

    def counted(of: Any, name: str, alone: bool) -> None:
        real = getattr(of, name)

        def call(self: Any, *args: Any) -> Any:
            n = args[-1] if isinstance(args[-1], int) else memoryview(args[-1]).nbytes
            note(object() if alone else self, n)
            return real(self, *args)

        monkeypatch.setattr(of, name, call)

    monkeypatch.setattr(_reading, "TOGETHER", most)
    for of, alone in ((ioverbs.Collection, True), (ioverbs.Batch, False)):
        counted(of, "read", alone)
        counted(of, "readinto", alone)
    assert fs.cat_file("w/large") == data
    assert fs.cat(["w/large", "w/small"]) == {"w/large": data, "w/small": data[:1000]}
    assert fs.cat_file("w/large", 5, -7) == data[5:-7] and fs.cat_file("w/large", 10, 3 * most) == data[10 : 3 * most]
    with fs.open("w/large") as f:
        assert f.read(3) + f.read() == data
        f.seek(1)
        into = bytearray(len(data))
        assert f.readinto(into) == len(data) - 1 and into[:-1] == data[1:]
    names = [f"w/many/{i:02}" for i in range(12)]
    assert fs.cat_ranges(names, 0, most // 2) == [data[i : i + most // 2] for i in range(12)]
    assert max(asked.values()) <= most
    small = len(asked)
    assert fs.cat_ranges(names, 0, 1000) == [data[i : i + 1000] for i in range(12)]
    assert len(asked) == small + 1, "what is small comes together"

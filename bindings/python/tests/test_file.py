# SPDX-License-Identifier: Apache-2.0
"""Collections as file objects."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

import ioverbs


def test_a_raw_file(c: ioverbs.Collection) -> None:
    f = c.file("w+", buffering=0)
    assert isinstance(f, io.RawIOBase) and isinstance(f, ioverbs.CollectionFile)
    assert (f.readable(), f.writable(), f.seekable(), f.mode, f.name, f.collection) == (True, True, True, "w+b", "c", c)
    assert f.write(b"hello world") == 11 and f.tell() == 11
    assert f.seek(-5, io.SEEK_END) == 6 and f.read(3) == b"wor"
    assert f.seek(1, io.SEEK_CUR) == 10 and f.readall() == b"d" and f.read(1) == b""
    assert f.seek(20) == 20 and f.write(b"!") == 1
    f.seek(0)
    assert f.read() == b"hello world" + bytes(9) + b"!"
    assert f.truncate(5) == 5 and c.size == 5
    room = bytearray(9)
    f.seek(0)
    assert f.readinto(room) == 5 and room == b"hello" + bytes(4)
    with pytest.raises(ValueError):
        f.seek(-1)
    with pytest.raises(io.UnsupportedOperation):
        f.fileno()
    f.close()
    for use in (f.tell, f.readall, lambda: f.write(b"x")):
        with pytest.raises(ValueError, match="closed file"):
            use()
    assert c.read() == b"hello" and not c.closed


def test_modes(c: ioverbs.Collection) -> None:
    c.write(0, b"line one\nline two\n")
    with c.file("r") as f:
        assert isinstance(f, io.BufferedReader)
        assert f.readlines() == [b"line one\n", b"line two\n"]
        with pytest.raises(io.UnsupportedOperation):
            f.write(b"x")
    with c.file("ab") as f:
        assert isinstance(f, io.BufferedWriter)
        f.write(b"line three\n")
    with c.file("r+b", buffering=16) as f:
        assert isinstance(f, io.BufferedRandom)
        f.seek(5)
        f.write(b"ONE")
        f.seek(0)
        assert f.readline() == b"line ONE\n"
    assert c.read() == b"line ONE\nline two\nline three\n"
    with c.file("wb") as f:
        f.write(b"new")
        with pytest.raises(io.UnsupportedOperation):
            f.read(1)
    assert c.read() == b"new"
    with io.TextIOWrapper(c.file("w"), encoding="utf-8") as text:
        csv.writer(text).writerow(["ä", 1])
    assert c.read() == "ä,1\r\n".encode()
    for wrong in ("", "x", "rw", "rt"):
        with pytest.raises(ioverbs.Invalid, match="mode"):
            c.file(wrong)


@pytest.mark.parametrize("buffering", [0, -1, 4096])
def test_numpy(ws: ioverbs.Workspace, buffering: int) -> None:
    a = np.arange(100_000, dtype=np.float32).reshape(100, 1000)
    with ws.create("a.npy") as c, ws.create("a.npz") as z:
        with c.file("w", buffering=buffering) as f:
            np.save(f, a)
        with c.file("r", buffering=buffering) as f:
            assert np.array_equal(np.load(f), a)
        with z.file("w+", buffering=buffering) as f:
            np.savez(f, a=a, b=a.T)
        with z.file("r", buffering=buffering) as f:
            assert np.array_equal(np.load(f)["b"], a.T)
        header = c.size - a.nbytes
        assert np.array_equal(np.frombuffer(c.read(header), np.float32).reshape(a.shape), a)


@pytest.mark.parametrize("buffering", [0, -1])
def test_the_standard_library(ws: ioverbs.Workspace, buffering: int) -> None:
    thing = {"list": list(range(1000)), "bytes": bytes(100_000)}
    with ws.create("pickle") as c:
        with c.file("w", buffering=buffering) as f:
            pickle.dump(thing, f)
            pickle.dump("second", f)
        with c.file("r", buffering=buffering) as f:
            assert pickle.load(f) == thing and pickle.load(f) == "second"
    with ws.create("json.gz") as c:
        with c.file("w", buffering=buffering) as f, gzip.open(f, "wt") as text:
            json.dump({"a": 1}, text)
        with c.file("r", buffering=buffering) as f, gzip.open(f, "rt") as text:
            assert json.load(text) == {"a": 1}
    with ws.create("zip") as c:
        with c.file("w+", buffering=buffering) as f, zipfile.ZipFile(f, "w") as z:
            z.writestr("inner", b"text")
        with c.file("r", buffering=buffering) as f, zipfile.ZipFile(f) as z:
            assert z.read("inner") == b"text"
    with ws.create("tar") as c:
        with c.file("w+", buffering=buffering) as f, tarfile.open(fileobj=f, mode="w") as t:
            info = tarfile.TarInfo("inner")
            info.size = 4
            t.addfile(info, io.BytesIO(b"text"))
        with c.file("r", buffering=buffering) as f, tarfile.open(fileobj=f) as t:
            assert t.getnames() == ["inner"]


def test_m4_appending_files(ws: ioverbs.Workspace) -> None:
    with ws.create("log", mutability="append") as c, c.file("a", buffering=0) as f:
        for i in range(3):
            f.write(b"%d\n" % i)
        assert f.tell() == 6 and c.read() == b"0\n1\n2\n"

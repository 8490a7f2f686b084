# SPDX-License-Identifier: Apache-2.0
"""The file system for fsspec when others change the same, when writes fail, and when work is given up."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import ioverbs

pytest.importorskip("fsspec")

from ioverbs.fs import IOVFileSystem  # noqa: E402
from ioverbs.fs._file import IOVFile  # noqa: E402
from ioverbs.fs._paths import Parts  # noqa: E402
from ioverbs.fs._whole import Files  # noqa: E402

BIG = 9 << 20


@pytest.fixture
def two(url: str) -> Iterator[tuple[IOVFileSystem, IOVFileSystem]]:
    """Two file systems that know nothing of each other, as in two programs."""
    a, b = (IOVFileSystem(store=url, skip_instance_cache=True) for _ in range(2))
    a.mkdir("w")
    yield a, b
    for fs in (a, b):
        fs._blocking.store.session().close()


def together(n: int, work: Callable[[int], None]) -> None:
    """Runs it in threads that begin at the same time."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(n)

    def one(me: int) -> None:
        try:
            barrier.wait()
            work(me)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def nothing_else(fs: IOVFileSystem, workspace: str = "w") -> None:
    """The workspace holds what has a name, and nothing that was begun and given up."""
    ws = fs._blocking.store.session().workspace(workspace, create=False)
    assert ws.stat().entries == len(fs.find(workspace, withdirs=True)) - 1


def test_two_who_append_to_a_new_file(two: tuple[IOVFileSystem, IOVFileSystem]) -> None:
    for i in range(20):

        def append(me: int, path: str = f"w/{i}") -> None:
            with two[me].open(path, "ab") as f:
                f.write(b"line\n")

        together(2, append)
        assert two[0].cat_file(f"w/{i}") == b"line\n" * 2
    nothing_else(two[0])


def test_what_others_moved_away_is_not_removed(two: tuple[IOVFileSystem, IOVFileSystem]) -> None:
    a, b = two
    a.pipe_file("w/job/part/x", b"result")
    assert b.cat_file("w/job/part/x") == b"result"
    a.mv("w/job", "w/done", recursive=True)
    for gone in (
        lambda: b.rm("w/job/part", recursive=True),
        lambda: b.rm_file("w/job/part/x"),
        lambda: b.rmdir("w/job/part"),
        lambda: b.mv_file("w/job/part/x", "w/y"),
    ):
        with pytest.raises(FileNotFoundError):
            gone()
    assert a.find("w") == ["w/done/part/x"]


def test_what_others_made_anew_is_there(two: tuple[IOVFileSystem, IOVFileSystem]) -> None:
    a, b = two
    reads: list[Callable[[], object]] = [
        lambda: b.cat_file("w/d/f"),
        lambda: b.cat(["w/d/f", "w/d/f"])["w/d/f"],
        lambda: b.open("w/d/f").read(),
    ]
    for i, read in enumerate(reads):
        a.pipe_file("w/d/f", b"old")
        assert read() == b"old"
        a.rm("w/d", recursive=True)
        a.pipe_file("w/d/f", b"new %d" % i)
        assert read() == b"new %d" % i
    a.rm("w", recursive=True)
    assert not b.exists("w/d/f")
    a.pipe_file("w/d/f", b"") if a.exists("w") else a.mkdir("w")
    b.pipe_file("w/d/f", b"again")
    assert a.cat_file("w/d/f") == b"again" and b.ls("w/d", detail=False) == ["w/d/f"]


def test_large_files_are_read_while_they_are_replaced(two: tuple[IOVFileSystem, IOVFileSystem]) -> None:
    names = [f"w/{i}" for i in range(6)]
    a, b = two
    a.pipe({name: b"0" * 200_000 for name in names})
    ended = threading.Event()

    def work(me: int) -> None:
        if me == 0:
            for i in range(30):
                a.pipe_file(names[i % 6], b"%d" % (i % 10) * 200_000)
            ended.set()
            return
        while not ended.is_set():
            for data in b.cat(names).values():
                assert len(data) == 200_000 and len(set(data)) == 1

    together(2, work)


def test_what_does_not_fit_replaces_nothing(two: tuple[IOVFileSystem, IOVFileSystem], tmp_path: Path) -> None:
    a, b = two
    a._blocking.store.session().workspace("quota", quota_bytes=6 << 20)
    a.pipe_file("quota/f", b"old")
    (tmp_path / "local").write_bytes(b"x" * (20 << 20))

    def opened() -> None:
        with a.open("quota/f", "wb") as f:
            f.write(b"x" * (20 << 20))

    def twice() -> None:
        a.pipe_file("quota/g", b"y" * (4 << 20))
        a.pipe_file("quota/f", b"x" * (4 << 20))

    for wrong in (
        lambda: a.pipe_file("quota/f", b"x" * (20 << 20)),
        lambda: a.put_file(tmp_path / "local", "quota/f"),
        opened,
        twice,
    ):
        with pytest.raises(ioverbs.Exhausted):
            wrong()
        assert b.cat_file("quota/f") == b"old"
        nothing_else(a, "quota")


def test_a_file_of_which_a_write_failed_is_not_made(
    two: tuple[IOVFileSystem, IOVFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = two[0]
    fs.pipe_file("w/f", b"old")
    for failing in range(3):
        f = fs.open("w/f", "wb")
        writes = 0
        real = ioverbs.Collection.write

        def write(c: ioverbs.Collection, offset: int, data: bytes, failing: int = failing) -> int:
            nonlocal writes
            writes += 1
            if writes == failing + 1:
                raise ioverbs.Timeout("no answer")
            return real(c, offset, data)

        with monkeypatch.context() as patched, pytest.raises((ioverbs.Timeout, OSError)):
            patched.setattr(ioverbs.Collection, "write", write)
            for _ in range(4):
                f.write(b"x" * (5 << 20))
                f.write(b"tail")
        with pytest.raises(OSError, match="failed before"):
            f.close()
        assert fs.cat_file("w/f") == b"old"
        nothing_else(fs)


def test_what_has_got_its_name_is_not_dropped(
    two: tuple[IOVFileSystem, IOVFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever gives up does not know whether the name was given: then there are the new bytes, and never none."""
    fs = two[0]
    real = Files._name

    async def name(self: Files, new: ioverbs.Collection, parts: Parts, exclusive: bool) -> None:
        await real(self, new, parts, exclusive)
        raise ioverbs.Timeout("the answer was lost", None, "unknown")

    for data in (b"x" * 10, b"y" * BIG):
        fs.pipe_file("w/f", b"old")
        with monkeypatch.context() as patched, pytest.raises(ioverbs.Timeout):
            patched.setattr(Files, "_name", name)
            fs.pipe_file("w/f", data)
        assert fs.cat_file("w/f") == data
    nothing_else(fs)


def test_what_is_appended_is_seen_when_it_is_flushed(two: tuple[IOVFileSystem, IOVFileSystem]) -> None:
    a, b = two
    with a.open("w/log", "ab") as f:
        f.write(b"one\n")
        f.flush()
        assert b.cat_file("w/log") == b"one\n"
        f.write(b"two\n")
    assert b.cat_file("w/log") == b"one\ntwo\n"


def test_a_transaction_changes_nothing_in_place(two: tuple[IOVFileSystem, IOVFileSystem]) -> None:
    fs = two[0]
    fs.pipe_file("w/log", b"precious")
    for mode in ("ab", "r+b", "w+b", "x+b"):
        with pytest.raises(ValueError, match="transaction"), fs.transaction:
            fs.open("w/log", mode)
        assert fs.cat_file("w/log") == b"precious"
    with suppress(KeyError), fs.transaction:
        f = fs.open("w/new", "wb")
        f.write(b"x" * BIG)
        raise KeyError
    with suppress(OSError, ioverbs.Error):
        f.close()
    assert fs.ls("w", detail=False) == ["w/log"]
    nothing_else(fs)


def test_tasks_that_are_cancelled_leave_nothing(file_url: str) -> None:
    async def main() -> None:
        fs = IOVFileSystem(store=file_url, asynchronous=True, skip_instance_cache=True)
        await fs._mkdir("w")
        for i in range(40):
            task = asyncio.ensure_future(fs._pipe_file(f"w/{i}", b"x" * (1000 if i % 4 else BIG)))
            await asyncio.sleep(i % 8 / 4000)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await fs._pipe_file("w/same", b"0" * 1000)
        for i in range(60):
            task = asyncio.ensure_future(fs._pipe_file("w/same", bytes([48 + i % 10]) * 1000))
            await asyncio.sleep(i % 20 / 10_000)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert len(set(await fs._cat_file("w/same"))) == 1, "the old bytes or the new ones"
        names = await fs._find("w")
        ws = fs._blocking.store.session().workspace("w", create=False)
        for _ in range(50):
            if ws.stat().entries == len(names):
                break
            await asyncio.sleep(0.1)
        assert ws.stat().entries == len(names)
        for name in names:
            assert len(await fs._cat_file(name)) in (1000, BIG)
        fs._blocking.store.session().close()

    asyncio.run(main())


def test_small_blocks_and_lines(two: tuple[IOVFileSystem, IOVFileSystem]) -> None:
    fs = two[0]
    data = os.urandom(300_000)
    fs.pipe_file("w/a", data)
    for block_size in (0, 1, 1024, 100_000):
        with fs.open("w/a", block_size=block_size) as f:
            assert b"".join(iter(lambda: f.read(2000), b"")) == data
    lines = b"".join(b"%d\n" % i * (i % 50) for i in range(20_000))
    fs.pipe_file("w/lines", lines)
    with fs.open("w/lines") as f:
        native, asked = f.collection, []

        class Counted:
            def read(self, offset: int, length: int) -> bytes:
                asked.append(length)
                return native.read(offset, length)

        f._collection = Counted()
        # Where each line cost a look at all that was read before this would not end today.
        assert b"".join(f) == lines
        f._collection = native
        # What is read ahead is used: few lines cost a question.
        assert len(asked) < 20


def test_what_is_read_up_to_a_mark(two: tuple[IOVFileSystem, IOVFileSystem]) -> None:
    fs = two[0]
    chance = random.Random(7)
    data = bytes(chance.choice(b"ab\n") for _ in range(200_000)) + b"x" * 150_000 + b"\n" + b"a" * 70_000
    fs.pipe_file("w/a", data)
    for block_size in (None, 1, 5000):
        with fs.open("w/a", block_size=block_size) as f:
            for _ in range(1500):
                at = f.tell()
                kind = chance.randrange(5)
                if kind == 0:
                    at = chance.choice((chance.randrange(len(data) + 10), chance.randrange(65_000, 66_000)))
                    f.seek(at)
                elif kind == 1:
                    n = chance.choice((1, 100, 9000, 70_000))
                    assert f.read(n) == data[at : at + n]
                else:
                    mark = chance.choice((b"\n", b"ab", b"abba\n", b"xxxxxx\naaaa", b"no"))
                    begin = data.find(mark, at)
                    end = len(data) if begin < 0 else begin + len(mark)
                    assert f.readuntil(mark) == data[at:end]
                    assert f.tell() == max(at, end)
            with pytest.raises(ValueError, match="no bytes"):
                f.readuntil(b"")


def test_links_in_trees(file_url: str, tmp_path: Path) -> None:
    iov = Path(os.environ.get("IOVERBS_IOVD", "iovd")).with_name("iov")
    if not (iov.is_file() and iov.with_name("libiov_preload.so").is_file()):
        pytest.skip("there is no iov run beside the daemon")
    fs = IOVFileSystem(store=file_url, skip_instance_cache=True)
    fs.mkdir("w")
    made = "mkdir d; echo hi > d/f; ln -s d e; ln -s d/f lf; ln -s . d/self; ln -s nowhere n; ln -s l l"
    command = [iov, "-S", file_url, "run", "--", "sh", "-ec", f"cd /iov/w; {made}"]
    assert subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60).returncode == 0
    kinds = {name: info["type"] for name, info in fs.find("w", detail=True).items()}
    assert kinds == {"w/d/f": "file", "w/d/self": "link", "w/e": "link", "w/l": "link", "w/lf": "file", "w/n": "link"}
    assert {one["name"]: one["size"] for one in fs.ls("w")}["w/lf"] == 3
    for wrong in (
        lambda: fs.get("w", str(tmp_path), recursive=True),
        lambda: fs.cp_file("w/e", "w/copy"),
        lambda: fs.get_file("w/e", str(tmp_path / "e")),
    ):
        with pytest.raises((IsADirectoryError, FileNotFoundError)):
            wrong()
    signal.alarm(30)
    try:
        for wrong in (
            lambda: fs.makedirs("w/n", exist_ok=True),
            lambda: fs.pipe_file("w/n/x", b""),
            lambda: fs.open("w/n", "wb"),
        ):
            with pytest.raises(FileNotFoundError):
                wrong()
        with pytest.raises(NotADirectoryError):
            fs.rmdir("w/e")
        assert not fs.exists("w/l") and not fs.exists("w/n")
    finally:
        signal.alarm(0)
    fs.rm("w", recursive=True)
    assert not fs.exists("w")
    fs._blocking.store.session().close()


def test_small_differences(two: tuple[IOVFileSystem, IOVFileSystem], script: Callable[..., str]) -> None:
    fs = two[0]
    fs.pipe_file("w/f", b"1")
    for strange in ("w/" + "x" * 300, "w/x\0"):
        assert not fs.exists(strange) and not fs.isdir(strange) and not fs.isfile(strange)
    fs.mkdir("w/d")
    fs.mv("w/f", "w/f")
    fs.mv("w/d", "w/d", recursive=True)
    fs.mv_file("w/d", "w/d")
    fs.makedirs("", exist_ok=True)
    with pytest.raises(ioverbs.Invalid):
        fs.rm("", recursive=True)
    assert fs.find("w") == ["w/f"]
    before = fs.modified("w/f")
    time.sleep(0.01)
    fs.touch("w/f", truncate=False)
    fs.touch("w/g", truncate=False)
    assert fs.modified("w/f") > before and fs.cat("w/[fg]") == {"w/f": b"1", "w/g": b""}
    fs.put_file("/proc/self/status", "w/status")
    assert b"VmRSS" in fs.cat_file("w/status")
    with pytest.raises(ValueError, match="this file system is of"):
        fs.info("iov://elsewhere/w/f")
    readonly = IOVFileSystem(store=fs.store, readonly=True, skip_instance_cache=True)
    with pytest.raises(PermissionError):
        readonly.open("w/f", "wb")
    loop = IOVFileSystem(store=fs.store, asynchronous=True, skip_instance_cache=True)
    assert loop.find("w") == ["w/f", "w/g", "w/status"]
    for other in (readonly, loop):
        if other._blocking.store.opened is not None:
            other._blocking.store.session().close()
    assert isinstance(fs.checksum("w/f"), int) and fs.checksum("w/f") != fs.checksum("w/g")


def test_checksums_are_the_same_everywhere(file_url: str, script: Callable[..., str]) -> None:
    fs = IOVFileSystem(store=file_url, skip_instance_cache=True)
    fs.mkdir("w")
    fs.pipe_file("w/f", b"1")
    code = "import sys\nfrom ioverbs.fs import IOVFileSystem\nprint(IOVFileSystem(store=sys.argv[1]).checksum('w/f'))"
    assert {int(script(code, file_url)) for _ in range(2)} == {fs.checksum("w/f")}
    assert isinstance(fs.open("w/f"), IOVFile)
    fs._blocking.store.session().close()

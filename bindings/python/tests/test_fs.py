# SPDX-License-Identifier: Apache-2.0
"""The file system for fsspec: what its own suite does not ask."""

from __future__ import annotations

import asyncio
import doctest
import io
import os
import pickle
import re
import subprocess
import threading
from pathlib import Path

import pytest

import ioverbs

fsspec = pytest.importorskip("fsspec")

from ioverbs.fs import IOVFileSystem  # noqa: E402
from ioverbs.fs._paths import follow, parts_of, split_url  # noqa: E402

BIG = 9 << 20


def requests(fs: IOVFileSystem) -> int:
    """What the session has asked the daemon so far."""
    return fs._blocking.store.session().counters()["metadata_requests"]


def nothing_else(fs: IOVFileSystem) -> None:
    """The workspace holds what has a name, and nothing that was begun and given up."""
    ws = fs._blocking.store.session().workspace("w", create=False)
    assert ws.stat().entries == len(fs.find("w", withdirs=True)) - 1


def test_urls() -> None:
    assert split_url("iov://host:7,other/w/a/b") == ("iov://host:7,other", "w/a/b")
    assert split_url("iov:///w/a/") == (None, "w/a")
    assert split_url("iov://host") == ("iov://host", "")
    assert split_url("/w/a") == (None, "w/a")
    assert parts_of("w//a/./b\udcff") == (b"w", b"a", b"b\xff")
    assert follow((b"w", b"d", b"link"), b"../x/./y", (b"z",)) == (b"w", b"x", b"y", b"z")
    assert follow((b"w", b"link"), b"../out", ()) is None
    assert follow((b"w", b"link"), b"/etc", ()) is None


def test_it_is_found_by_its_protocol(file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOVERBS_URL", file_url)
    fsspec.filesystem("iov", skip_instance_cache=True).mkdir("w")
    with fsspec.open("iov:///w/a/b.txt", "wt") as f:
        f.write("text")
    with fsspec.open("iov:///w/a/b.txt", "rt") as f:
        assert f.read() == "text"
    fs, path = fsspec.url_to_fs("iov:///w/a/b.txt")
    assert (fs.cat(path), fs.unstrip_protocol(path)) == (b"text", "iov:///w/a/b.txt")
    assert fsspec.get_mapper("iov:///w/a")["b.txt"] == b"text"
    fs._blocking.store.session().close()


def test_a_host_that_is_none_is_told_of() -> None:
    fs = IOVFileSystem(store="iov://no-such-workspace", skip_instance_cache=True, deadline=2)
    with pytest.raises(ioverbs.Error) as e:
        fs.ls("w")
    assert any("iov:///WORKSPACE/PATH" in note for note in e.value.__notes__)


def test_small_files_take_few_requests(fs: IOVFileSystem, url: str) -> None:
    fs.pipe("w/first", b"1")
    before = requests(fs)
    fs.pipe_file("w/second", b"2")
    assert requests(fs) - before <= 4
    fs.pipe_file("w/d/e/third", b"3")
    before = requests(fs)
    assert fs.cat_file("w/d/e/third") == b"3"
    assert requests(fs) - before <= 2
    before = requests(fs)
    assert fs.size("w/d/e/third") == 1
    assert requests(fs) - before <= 1


def test_many_ranges_are_one_batch(fs: IOVFileSystem) -> None:
    files = {f"w/train/{i:03}": os.urandom(1000 + i) for i in range(200)}
    fs.pipe(files)
    names = list(files)
    before = requests(fs)
    assert fs.cat_ranges(names, 10, 500) == [data[10:500] for data in files.values()]
    assert requests(fs) - before <= 3
    assert fs.cat(names) == files
    got = fs.cat_ranges([names[0], "w/none", names[1], names[2]], [-7, 0, 5, 3], [None, 5, -5, 3])
    assert got[0] == files[names[0]][-7:] and got[2] == files[names[1]][5:-5] and got[3] == b""
    assert isinstance(got[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([names[0], "w/none"], 0, 5, on_error="raise")


def test_ranges_beyond_the_end_take_no_memory(fs: IOVFileSystem) -> None:
    fs.pipe_file("w/a", b"0123456789")
    assert fs.cat_ranges(["w/a"] * 4, [0, 5, 20, 3], [1 << 50, 1 << 40, 1 << 50, 1]) == [b"0123456789", b"56789", b"", b""]


@pytest.mark.parametrize("size", [0, 1, 70_000, BIG])
def test_files_come_back_as_they_went(fs: IOVFileSystem, size: int, tmp_path: Path) -> None:
    data = os.urandom(size)
    fs.pipe_file("w/piped", data)
    with fs.open("w/opened", "wb") as f:
        for at in range(0, size, 300_001):
            f.write(data[at : at + 300_001])
    (tmp_path / "local").write_bytes(data)
    fs.put_file(tmp_path / "local", "w/put")
    fs.cp_file("w/put", "w/copied")
    fs.get_file("w/copied", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data
    for name in ("piped", "opened", "put", "copied"):
        assert fs.cat_file(f"w/{name}") == data
        assert fs.size(f"w/{name}") == size
        with fs.open(f"w/{name}") as f:
            assert f.read() == data
        with fs.open(f"w/{name}") as f:
            into = bytearray(size + 5)
            assert f.readinto(into) == size
            assert into[:size] == data
    assert not [name for name in fs.ls("w", detail=False) if "new" in name]


def test_small_reads_and_seeks(fs: IOVFileSystem) -> None:
    data = os.urandom(300_000)
    fs.pipe_file("w/a", data)
    with fs.open("w/a") as f:
        assert b"".join(iter(lambda: f.read(777), b"")) == data
        f.seek(-10, 2)
        assert f.read(20) == data[-10:]
        f.seek(5)
        assert (f.read(3), f.tell()) == (data[5:8], 8)
    with fs.open("w/a", cache_type="readahead", block_size=4096) as f:
        assert f.read(10) == data[:10]
        assert f.cache.name == "readahead"
    fs.pipe_file("w/text", b"one\ntwo\n\nthree")
    with fs.open("w/text", "r") as f:
        assert list(f) == ["one\n", "two\n", "\n", "three"]
    with fs.open("w/text") as f:
        assert f.readlines() == [b"one\n", b"two\n", b"\n", b"three"]


def test_what_is_written_takes_its_name_at_the_end(fs: IOVFileSystem) -> None:
    fs.pipe_file("w/a", b"before")
    reader = fs.open("w/a")
    with fs.open("w/a", "wb") as f:
        f.write(os.urandom(BIG))
        assert fs.cat_file("w/a") == b"before"
        assert fs.ls("w", detail=False) == ["w/a"]
    assert fs.size("w/a") == BIG
    assert reader.read() == b"before"
    reader.close()


def test_a_writer_that_died_leaves_what_was_there(file_url: str, script: object) -> None:
    fs = IOVFileSystem(store=file_url, skip_instance_cache=True)
    fs.mkdir("w")
    fs.pipe_file("w/a", b"before")
    assert callable(script)
    script(
        "import os, sys\nfrom ioverbs.fs import IOVFileSystem\n"
        "fs = IOVFileSystem(store=sys.argv[1])\n"
        "if (pid := os.fork()) == 0:\n"
        "    f = fs.open('w/a', 'wb'); f.write(b'x' * (9 << 20)); os.kill(os.getpid(), 9)\n"
        "assert os.waitpid(pid, 0)[1] == 9\n",
        file_url,
    )
    assert fs.cat_file("w/a") == b"before"
    assert fs.ls("w", detail=False) == ["w/a"]
    fs._blocking.store.session().close()


def test_exclusive_creation(fs: IOVFileSystem) -> None:
    with fs.open("w/a", "xb") as f:
        f.write(b"1")
    with pytest.raises(FileExistsError):
        fs.open("w/a", "xb")
    with pytest.raises(FileExistsError):
        fs.pipe_file("w/a", b"2", mode="create")
    late = fs.open("w/b", "xb")
    late.write(b"late")
    fs.pipe_file("w/b", b"early")
    with pytest.raises(FileExistsError):
        late.close()
    assert fs.cat("w/*") == {"w/a": b"1", "w/b": b"early"}
    nothing_else(fs)


def test_appending_and_changing_in_place(fs: IOVFileSystem) -> None:
    with fs.open("w/log", "ab") as f:
        f.write(b"one ")
    with fs.open("w/log", "ab") as f:
        assert f.tell() == 4
        f.write(b"two")
        f.write(b"x" * BIG)
    assert fs.cat_file("w/log") == b"one two" + b"x" * BIG
    with fs.open("w/log", "r+b") as f:
        f.seek(4)
        f.write(b"2")
        f.truncate(7)
    assert fs.cat_file("w/log") == b"one 2wo"
    with fs.open("w/new", "w+b") as f:
        f.write(b"abc")
        f.seek(1)
        assert f.read() == b"bc"
    assert fs.cat_file("w/new") == b"abc"
    with pytest.raises(FileNotFoundError):
        fs.open("w/none", "r+b")
    with pytest.raises(ValueError, match="none of"):
        fs.open("w/new", "q")


def test_directories(fs: IOVFileSystem) -> None:
    fs.makedirs("w/a/b/c")
    fs.makedirs("w/a/b/c", exist_ok=True)
    for again in (lambda: fs.makedirs("w/a/b/c"), lambda: fs.mkdir("w/a"), lambda: fs.mkdir("w")):
        with pytest.raises(FileExistsError):
            again()
    with pytest.raises(FileNotFoundError):
        fs.mkdir("w/x/y", create_parents=False)
    fs.pipe_file("w/a/f", b"1")
    with pytest.raises(NotADirectoryError):
        fs.mkdir("w/a/f/g")
    with pytest.raises(FileExistsError):
        fs.mkdir("w/a/f")
    with pytest.raises(OSError):
        fs.rmdir("w/a")
    with pytest.raises(IsADirectoryError):
        fs.rm("w/a")
    with pytest.raises(IsADirectoryError):
        fs.rm_file("w/a")
    fs.rmdir("w/a/b/c")
    assert fs.find("w", withdirs=True) == ["w", "w/a", "w/a/b", "w/a/f"]
    fs.rm("w/a", recursive=True)
    assert fs.ls("w") == []
    assert fs.isdir("w") and fs.isdir("") and not fs.exists("w/a") and not fs.exists("v/a")
    fs.rm("w", recursive=True)
    assert fs.ls("", detail=False) == []
    fs.mkdir("w")
    assert fs.ls("w") == []


def test_files_and_directories_are_not_mixed_up(fs: IOVFileSystem) -> None:
    fs.pipe({"w/d/f": b"1", "w/f": b"2"})
    fs.mkdir("w/empty")
    for path in ("w", "w/d", "w/empty"):
        for wrong in (
            lambda: fs.cat_file(path),
            lambda: fs.open(path),
            lambda: fs.open(path, "wb"),
            lambda: fs.pipe_file(path, b"x"),
            lambda: fs.pipe_file(path, b"x" * BIG),
        ):
            with pytest.raises(IsADirectoryError):
                wrong()
    for path in ("w/f/x", "w/d/f/x/y"):
        for wrong in (lambda: fs.cat_file(path), lambda: fs.open(path), lambda: fs.info(path), lambda: fs.pipe_file(path, b"")):
            with pytest.raises(NotADirectoryError):
                wrong()
        assert not fs.exists(path)
    nothing_else(fs)
    assert fs.isdir("w/empty") and fs.ls("w/f", detail=False) == ["w/f"]
    with pytest.raises(IsADirectoryError):
        fs.mv_file("w/f", "w/d")
    with pytest.raises(NotADirectoryError):
        fs.mv_file("w/d", "w/f")


def test_moving(fs: IOVFileSystem) -> None:
    fs.pipe({"w/a": b"a", "w/b": b"b", "w/d/c": b"c"})
    fs.mv("w/a", "w/b")
    assert fs.cat_file("w/b") == b"a" and not fs.exists("w/a")
    fs.mv("w/b", "w/d")
    fs.mv("w/d", "w/new/place", recursive=True)
    assert fs.find("w") == ["w/new/place/b", "w/new/place/c"]
    fs.mkdir("v")
    fs.mv("w/new/place/b", "v/b")
    assert fs.cat_file("v/b") == b"a" and fs.find("w") == ["w/new/place/c"]
    with pytest.raises(FileNotFoundError):
        fs.mv_file("w/none", "w/x")


def test_without_directories_made_by_the_way(url: str) -> None:
    fs = IOVFileSystem(store=url, skip_instance_cache=True, auto_mkdir=False)
    fs.mkdir("w")
    for wrong in (lambda: fs.pipe_file("w/d/a", b""), lambda: fs.open("w/d/a", "wb"), lambda: fs.pipe_file("v/a", b"")):
        with pytest.raises(FileNotFoundError):
            wrong()
    with pytest.raises(FileNotFoundError) as e:
        IOVFileSystem(store=url, skip_instance_cache=True).pipe_file("v/a", b"")
    assert "iov ws create" in str(e.value.__cause__.__notes__)  # type: ignore[union-attr]


def test_the_same_tree_as_the_library(fs: IOVFileSystem) -> None:
    ws = fs._blocking.store.session().workspace("w", create=False)
    with ws.group("d").create("a", {"temperature": 310}) as c:
        c.write(0, b"hello")
    info = fs.info("w/d/a")
    assert (info["size"], info["type"], info["uuid"]) == (5, "file", str(c.uuid))
    fs.cp_file("w/d/a", "w/b")
    fs.pipe_file("w/c", b"", metadata={"temperature": 320}, controls="consistency=session")
    assert [entry.name for entry in ws.find("temperature > 300", order="iov.name")] == ["a", "b", "c"]
    assert ws["c"].controls["consistency"] == "session"
    with ws.open("c", concurrency="exclusive"):
        assert fs.info("w/c")["type"] == "file"
    assert fs.created("w/b") <= fs.modified("w/b")


def test_names_are_bytes(fs: IOVFileSystem) -> None:
    for name in ("w/grün", "w/\udcff\udcfe", "w/a b\n"):
        fs.pipe_file(name, name.encode(errors="surrogateescape"))
        assert fs.cat_file(name) == name.encode(errors="surrogateescape")
        assert name in fs.ls("w", detail=False)
    with pytest.raises((ioverbs.Invalid, OSError)):
        fs.pipe_file("w/" + "x" * 256, b"")


def test_transactions(fs: IOVFileSystem) -> None:
    with fs.transaction:
        with fs.open("w/a", "wb") as f:
            f.write(b"1")
        assert not fs.exists("w/a")
    assert fs.cat_file("w/a") == b"1"
    with pytest.raises(KeyError), fs.transaction:
        with fs.open("w/b", "wb") as f:
            f.write(b"2")
        raise KeyError
    assert fs.ls("w", detail=False) == ["w/a"]
    nothing_else(fs)


def test_file_objects_that_others_make(fs: IOVFileSystem) -> None:
    with fs.open("w/p", "wb") as f:
        pickle.dump(list(range(100_000)), f)
    with fs.open("w/p") as f:
        assert pickle.load(f) == list(range(100_000))
    with fs.open("w/z.gz", "wt", compression="gzip") as f:
        f.write("x" * 1000)
    with fs.open("w/z.gz", "rt", compression="infer") as f:
        assert f.read() == "x" * 1000
    with io.BufferedReader(fs.open("w/p")) as buffered:
        assert len(buffered.peek(10)) > 0


def test_it_travels(file_url: str, script: object) -> None:
    fs = IOVFileSystem(store=file_url)
    fs.mkdir("w")
    fs.pipe_file("w/a", b"1")
    same = pickle.loads(pickle.dumps(fs))
    assert same.cat_file("w/a") == b"1"
    assert callable(script)
    code = "import pickle, sys\nfs = pickle.loads(bytes.fromhex(sys.argv[1]))\nprint(fs.cat_file('w/a'), fs.glob('w/*'))"
    assert script(code, pickle.dumps(fs).hex()) == "b'1' ['w/a']\n"
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(write, fs.cat_file("w/a") + fs.cat("w/a") + str(fs.glob("w/*")).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100) == b"11['w/a']"
    fs._blocking.store.session().close()


def test_threads(fs: IOVFileSystem) -> None:
    errors: list[BaseException] = []

    def work(me: int) -> None:
        try:
            for i in range(30):
                fs.pipe_file(f"w/{i % 3}/{me}", f"{me}".encode() * 100)
                assert fs.cat_file(f"w/{i % 3}/{me}") == f"{me}".encode() * 100
                fs.pipe_file("w/all", bytes([me]) * 1000)
                assert len(set(fs.cat_file("w/all"))) == 1
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_in_an_event_loop(url: str) -> None:
    async def main() -> None:
        fs = IOVFileSystem(store=url, asynchronous=True, skip_instance_cache=True)
        await fs._mkdir("w")
        await asyncio.gather(*(fs._pipe_file(f"w/d/{i}", b"%d" % i) for i in range(50)))
        await fs._pipe_file("w/big", b"x" * BIG)
        got = await asyncio.gather(*(fs._cat_file(f"w/d/{i}") for i in range(50)))
        assert got == [b"%d" % i for i in range(50)]
        assert await fs._cat_ranges(["w/big", "w/d/7"], 0, 3) == [b"xxx", b"7"]
        assert len(await fs._find("w")) == 51
        assert (await fs._info("w/big"))["size"] == BIG
        with pytest.raises(FileNotFoundError):
            await fs._cat_file("w/none")
        for _ in range(5):
            # All of them want the session that nobody has opened yet.
            new = IOVFileSystem(store=url, asynchronous=True, skip_instance_cache=True)
            assert await asyncio.gather(*(new._cat_file(f"w/d/{i}") for i in range(20))) == got[:20]
            new._blocking.store.session().close()
        await fs._rm("w/d", recursive=True)
        await fs._cp_file("w/big", "w/copy")
        assert [one["name"] for one in await fs._ls("w")] == ["w/big", "w/copy"]
        fs._blocking.store.session().close()

    asyncio.run(main())


def test_links_that_posix_doors_make(file_url: str) -> None:
    iov = Path(os.environ.get("IOVERBS_IOVD", "iovd")).with_name("iov")
    if not (iov.is_file() and iov.with_name("libiov_preload.so").is_file()):
        pytest.skip("there is no iov run beside the daemon")
    fs = IOVFileSystem(store=file_url, skip_instance_cache=True)
    fs.mkdir("w")
    made = "mkdir d; echo hi > d/f; ln -s d e; ln -s ../d/f d/g; ln -s e/g far; ln -s /etc out; ln -s nowhere n; ln -s l l; mkfifo p"
    command = [iov, "-S", file_url, "run", "--", "sh", "-ec", f"cd /iov/w; {made}"]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 0, done.stderr
    for path in ("w/d/f", "w/e/f", "w/d/g", "w/far"):
        assert fs.cat_file(path) == b"hi\n"
        assert (fs.info(path)["type"], fs.size(path), fs.info(path)["name"]) == ("file", 3, path)
        with fs.open(path) as f:
            assert f.read() == b"hi\n"
    assert fs.isdir("w/e") and fs.ls("w/e", detail=False) == ["w/e/f", "w/e/g"]
    assert [fs.info(f"w/{name}")["type"] for name in ("n", "p")] == ["link", "other"]
    fs.pipe_file("w/far", b"changed")
    fs.pipe_file("w/e/new", b"new")
    assert fs.cat_file("w/d/f") == b"changed" and fs.cat_file("w/d/new") == b"new"
    for path in ("w/out", "w/n", "w/out/passwd"):
        with pytest.raises(FileNotFoundError):
            fs.cat_file(path)
    with pytest.raises(OSError, match="Too many levels"):
        fs.cat_file("w/l")
    fs.rm_file("w/e")
    fs.rm("w/l")
    assert fs.exists("w/d/f") and not fs.exists("w/e")
    fs.rm("w", recursive=True)
    fs._blocking.store.session().close()


def test_the_guide() -> None:
    guide = Path(__file__).resolve().parents[3] / "docs" / "guide" / "fsspec.md"
    text = "\n".join(re.findall(r"^```pycon\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL))
    test = doctest.DocTestParser().get_doctest(text, {}, guide.name, str(guide), 0)
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert len(test.examples) > 6 and not said, "".join(said)


def test_arrays_without_items(fs: IOVFileSystem) -> None:
    np = pytest.importorskip("numpy")
    nothing = np.empty((0, 3))
    fs.pipe_file("w/piped", nothing)
    with fs.open("w/a", "wb") as f:
        assert f.write(nothing) == 0 and f.write(np.ones((2, 3))) == 48
    with fs.open("w/a", "r+b") as f:
        assert f.raw.write(nothing) == 0
    with fs.open("w/a") as f:
        assert f.readinto(nothing) == 0 and f.readinto(room := np.zeros((2, 3))) == 48 and room.all()
    assert (fs.size("w/a"), fs.size("w/piped")) == (48, 0)

# SPDX-License-Identifier: Apache-2.0
"""Fork, multiprocessing, and handles that travel between processes."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import shutil
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from conftest import Script, end_daemon

import ioverbs

# What is common to the programs below: `child` runs a function in a forked process, whose end must be good.
FORK = """
import gc, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # threads are running: that is what is tested
import ioverbs

def child(body):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            gc.collect()
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {status}"

def forked(call):
    try:
        call()
    except ioverbs.Forked as e:
        assert isinstance(e, RuntimeError) and "Open" in ioverbs.Forked.__doc__
    else:
        raise AssertionError("not refused")

url = sys.argv[1]
session = ioverbs.open(url)
ws = session.workspace("w")
c = ws.create("c")
c.write(0, b"of the parent")
"""


def test_t23_a_child_cannot_use_its_parents_handles(url: str, script: Script) -> None:
    text = """
batch, started = session.batch(), session.batch(progress="caller")
started.write(c, 0, b"x")
request = started.start()
search = ws.find()
lock = c.lock()
batch.write(c, 0, b"never")

def body():
    global session, ws, c, batch, started, request, search, lock
    for call in (
        lambda: c.read(0, 1), lambda: c.write(0, b"x"), lambda: c.append(b"x"), c.close, c.stat, c.commit,
        lambda: c.metadata["a"], lambda: ws["c"], lambda: ws.create("d"), lambda: list(ws.find()), lambda: next(search),
        ws.stat, session.close, session.batch, lambda: session.workspace("v"), lambda: list(session.workspaces()),
        batch.start, request.wait, request.test, lock.release, lambda: c.file("w"),
    ):
        forked(call)
    del c, ws, batch, started, request, search, lock, session

child(body)
request.wait()
lock.release()
assert c.read() == b"xf the parent" and c.stat().size == 13
c.close()
session.close()
"""
    script(FORK + text, url)


def test_t23_a_child_opens_anew(url: str, script: Script) -> None:
    text = """
def body():
    with ioverbs.open(url) as mine:
        v = mine.workspace("w")
        if url.startswith("mem:"):
            assert v.count() == 0  # a store of its own
            v.create("c").close()
        with v["c"] as d:
            d.write(0, b"of the child!")
            assert d.read() == b"of the child!"

c.commit()
child(body)
child(body)
assert c.read() == (b"of the parent" if url.startswith("mem:") else b"of the child!")
c.close()
session.close()
"""
    script(FORK + text, url)


def test_t23_fork_while_threads_work(url: str, script: Script) -> None:
    """At whatever moment the fork comes, the child is refused or works, and the parent goes on."""
    text = """
import threading
stop = False
def work(i):
    data = bytes([i]) * 100_000
    with ws.create(f"{i}") as d:
        while not stop:
            d.write(0, data)
            assert d.read(0, 100_000) == data
            d.metadata.update({"i": i})
            with session.batch(progress="background") as b:
                b.write(d, 0, data)

threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads: t.start()

def body():
    forked(lambda: c.read(0, 1))
    with ioverbs.open(url) as mine, mine.workspace("w").create(None) as d:
        d.write(0, b"x")
        assert d.read() == b"x"

for _ in range(20):
    child(body)
stop = True
for t in threads: t.join()
c.close()
session.close()
"""
    script(FORK + text, url, timeout=120)


def test_a_program_may_end_in_the_middle(url: str, script: Script) -> None:
    """Handles that are open and requests in flight when the interpreter ends make no noise."""
    text = """
import sys, ioverbs, threading
session = ioverbs.open(sys.argv[1])
c = session.workspace("w").create("c")
b = session.batch(progress="background")
b.write(c, 0, bytes(64 << 20))
request = b.start()
b2 = session.batch(progress="caller")
room = bytearray(100)
b2.readinto(c, 0, room)
request2 = b2.start()
search = session.workspace("w").find()
threading.Thread(target=c.lock, daemon=True).start()
"""
    assert script(text, url) == ""


# -- Pickling


def test_handles_of_memory_cannot_be_pickled() -> None:
    with ioverbs.open("mem:pickle") as session:
        ws = session.workspace("w")
        with ws.create("c") as c:
            for handle in (session, ws, c, ws.group("g")):
                with pytest.raises(ioverbs.Unsupported, match="cannot leave their process"):
                    pickle.dumps(handle)


def test_other_objects_cannot_be_pickled(session: ioverbs.Session, c: ioverbs.Collection) -> None:
    with session.batch() as b:
        b.write(c, 0, b"x")
    for thing in (b, c.metadata, c.workspace.find(), c.file()):
        with pytest.raises((TypeError, ioverbs.Unsupported)):
            pickle.dumps(thing)


def test_pickled_handles_open_the_same(file_url: str) -> None:
    with ioverbs.open(file_url) as session:
        ws = session.workspace("w")
        g = ws.group("g")
        with g.create("c", {"a": 1}) as c:
            c.write(0, b"hello")
            c.commit()
            again = pickle.loads(pickle.dumps(c))
            assert type(again) is ioverbs.Collection
            assert (again.uuid, again.name, again.read(), again.metadata["a"]) == (c.uuid, "c", b"hello", 1)
            ws2, g2, both = pickle.loads(pickle.dumps((ws, g, copy.copy(c))))
            assert (ws2.uuid, g2.uuid, [e.name for e in g2.list()]) == (ws.uuid, g.uuid, ["c"])
            # All that came from one session shares one.
            assert both.workspace.session is ws2.session is again.workspace.session is not session
            stale = pickle.dumps(c)
            again.close()
            both.close()
        ws.delete(c.uuid)
        with pytest.raises(ioverbs.Stale, match="is gone"):
            pickle.loads(stale)
        batch = session.batch()
        pending = batch.create(ws, "never")
        with pytest.raises(ioverbs.Busy, match="pending"):
            pickle.dumps(pending)
        del batch
        with pytest.raises(ioverbs.Cancelled, match="without being started"):
            pickle.dumps(pending)


def test_x1_a_pickled_handle_joins_an_exclusive_hold(file_url: str) -> None:
    with ioverbs.open(file_url) as session, ioverbs.open(file_url) as stranger:
        ws = session.workspace("w")
        with ws.create("c", concurrency="exclusive") as c:
            with pytest.raises(ioverbs.Busy):
                stranger.workspace("w")["c"]
            with pickle.loads(pickle.dumps(c)) as joined:
                assert joined.write(0, b"together") == 8


# -- multiprocessing


def fill(job: tuple[ioverbs.Collection, int]) -> int:
    c, i = job
    return c.write(i * 1000, np.full(1000, i, np.uint8))


def make(job: tuple[ioverbs.Workspace, int]) -> str | None:
    ws, i = job
    with ws.create(f"{i}", {"i": i}) as c:
        c.write(0, b"%d" % i)
        return c.name


def open_anew(job: tuple[str, int]) -> int:
    url, i = job
    with ioverbs.open(url) as session:
        session.workspace("w").create(f"{i}").close()
        return session.workspace("w").count("iov.name = ?", f"{i}")


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_multiprocessing(file_url: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    with ioverbs.open(file_url) as session:
        ws = session.workspace("w")
        with ws.create("shared") as c, context.Pool(3) as pool:
            assert pool.map(fill, [(c, i) for i in range(20)]) == [1000] * 20
            assert sorted(map(str, pool.map(make, [(ws, i) for i in range(20)]))) == sorted(map(str, range(20)))
            assert pool.map(open_anew, [(file_url, 100 + i) for i in range(5)]) == [1] * 5
            assert c.read() == b"".join(bytes([i]) * 1000 for i in range(20))
            assert ws.count("exists(i)") == 20
            assert ws["7"].read() == b"7"


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_multiprocessing_with_memory_stores(method: str) -> None:
    """Each process has its own."""
    with ioverbs.open(f"mem:{method}") as session:
        session.workspace("w").create("c").close()
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(open_anew, [(f"mem:{method}", i) for i in range(4)]) == [1] * 4
        assert session.workspace("w").count() == 1


def test_two_programs_share_a_store(file_url: str, script: Script) -> None:
    reader = """
import sys, ioverbs
with ioverbs.open(sys.argv[1], start=False) as session, session.workspace("w", create=False)["c"] as c:
    print(c.read().decode(), c.metadata["a"])
"""
    with ioverbs.open(file_url) as session, session.workspace("w").create("c", {"a": 1}) as c:
        c.write(0, b"hello")
        assert script(reader, file_url) == "hello 1\n"


def test_a_store_outlives_its_daemon(file_url: str) -> None:
    with ioverbs.open(file_url) as session, session.workspace("w").create("c", {"a": 1}) as c:
        c.write(0, b"hello")
    status = ioverbs.daemon_status(file_url)
    assert status is not None and status["pid"] > 0
    end_daemon(file_url)
    assert ioverbs.daemon_status(file_url) is None and not ioverbs.daemon_shutdown(file_url)
    with pytest.raises(ConnectionError):
        ioverbs.open(file_url, start=False)
    with ioverbs.open(file_url) as session, session.workspace("w")["c"] as c:
        assert (c.read(), c.metadata["a"]) == (b"hello", 1)


def test_a_directory_can_be_removed_once_its_daemon_was_ended(file_url: str) -> None:
    directory = Path(file_url.removeprefix("file:"))
    for _ in range(5):
        with ioverbs.open(file_url) as session, session.workspace("w").create("c") as c:
            c.write(0, bytes(100_000))
        assert ioverbs.daemon_shutdown(file_url)
        assert (directory / "lock").read_text().strip() == "", "the store was given back"
        shutil.rmtree(directory)


def test_a_daemon_that_cannot_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOVERBS_IOVD", str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError, match="IOVERBS_IOVD names .*absent, which is no file"):
        ioverbs.open(f"file:{tmp_path}/store")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_what_is_bound_to_a_process_goes_with_it(file_url: str, end: signal.Signals | None) -> None:
    text = """
import sys, ioverbs
session = ioverbs.open(sys.argv[1])
ws = session.workspace("w")
for name, lifetime in [("bound", "process"), ("kept", None), ("late", None), ("let", "process")]:
    with ws.create(name, {"n": 1}, lifetime=lifetime) as c:
        c.write(0, bytes(100_000))
with ws["late"] as late, ws["let"] as let:
    late.setattr(lifetime="process")
    let.setattr(lifetime="workspace")
print("made", flush=True)
sys.stdin.read()
"""
    with ioverbs.open(file_url) as session:
        ws = session.workspace("w")
        command = [sys.executable, "-c", text, file_url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == "made\n"
            assert [ws[name].stat().size for name in ("bound", "kept", "late", "let")] == [100_000] * 4
            if end is not None:
                process.send_signal(end)
            process.stdin.close()
            process.wait()
        until = time.monotonic() + 20
        while ws.count("n = 1") > 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert sorted(str(found.name) for found in ws.find("n = 1")) == ["kept", "let"]


def test_a_lease_is_of_collections_that_nobody_uses(url: str) -> None:
    with ioverbs.open(url) as session:
        ws = session.workspace("w")
        with ws.create("leased", lifetime=timedelta(minutes=10)) as c:
            assert c.stat().lifetime == "lease(10min)"
            c.setattr(lifetime="lease(1h)")
            assert c.stat().lifetime == "lease(1h)"
            c.setattr(lifetime="workspace")
            assert c.stat().lifetime is None
            for wrong in ("lease", "lease(0s)", "soon", timedelta(0)):
                with pytest.raises(ioverbs.Invalid, match="lifetime"):
                    c.setattr(lifetime=wrong)
        with pytest.raises(ioverbs.Exists):
            ws.create("leased", lifetime="process")
        with pytest.raises(ioverbs.Unsupported), ws.group("g") as g:
            g.setattr(lifetime="process")

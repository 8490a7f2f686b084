# SPDX-License-Identifier: Apache-2.0
"""Threads, the interpreter's lock, and signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import ioverbs


def test_many_threads_in_one_session(session: ioverbs.Session, ws: ioverbs.Workspace) -> None:
    errors: list[BaseException] = []
    with ws.create("shared") as shared:

        def work(i: int) -> None:
            try:
                mine = np.full(5000, i, np.uint8)
                room = np.empty_like(mine)
                for n in range(30):
                    with ws.create(f"{i}-{n}", {"thread": i}) as c:
                        c.write(0, mine)
                        c.readinto(0, room)
                        assert (room == i).all()
                    shared.write(i * 5000, mine)
                    assert shared.read(i * 5000, 5000) == mine.tobytes()
                    shared.metadata[f"k{i}"] = n
                    with session.batch() as b:
                        b.write(shared, i * 5000, mine)
                        assert len(b) == 1
                assert ws.count("thread = ?", i) == 30
            except BaseException as e:
                errors.append(e)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not errors
        assert shared.read() == b"".join(bytes([i]) * 5000 for i in range(8))
    assert ws.count() == 8 * 30 + 1


def test_a_waiting_call_lets_others_run(ws: ioverbs.Workspace) -> None:
    """A thread waits for a lock; this one gives it back. With the interpreter's lock held that could not happen."""
    with ws.create("c") as c:
        lock = c.lock()
        order = []

        def wait() -> None:
            order.append("waits")
            with c.lock():
                order.append("has it")

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.2)
        order.append("given back")
        lock.release()
        thread.join(60)
        assert order == ["waits", "given back", "has it"]


def test_moving_bytes_lets_others_run(ws: ioverbs.Workspace) -> None:
    """This thread ticks while another's copy runs. With the interpreter's lock held it could not, inside of one: the
    lock is not taken from a thread that does not give it up."""
    before = sys.getswitchinterval()
    with ws.create("c") as c:
        data = np.ones(64 << 20, np.uint8)
        room = np.empty_like(data)
        ticks = 0
        seen: list[str] = []

        def move() -> None:
            copies = {"write": lambda: c.write(0, data), "read": lambda: c.readinto(0, room)}
            end = time.monotonic() + 60
            while copies and time.monotonic() < end:
                for name, copy in list(copies.items()):
                    start = ticks
                    copy()
                    if ticks > start:
                        seen.append(name)
                        del copies[name]

        thread = threading.Thread(target=move)
        sys.setswitchinterval(1000)
        try:
            thread.start()
            while thread.is_alive():
                ticks += 1
                time.sleep(0.0005)
        finally:
            sys.setswitchinterval(before)
        assert sorted(seen) == ["read", "write"]


INTERRUPTED = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # where it was ignored when this began
import ioverbs
session = ioverbs.open(sys.argv[1])
c = session.workspace("w").create("c")
lock = c.lock()
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    c.lock()
except KeyboardInterrupt:
    assert time.monotonic() - start < 30
    lock.release()
    assert c.write(0, b"still good") == 10
    c.close()
    print("interrupted")
"""


def test_ctrl_c_interrupts_a_waiting_call(url: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, url], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


# Many times the same bytes into the same place: it takes seconds, and little room. That the memory cannot be resized
# shows that the bytes still move, and that nobody lets go of it meanwhile.
MOVING = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # where it was ignored when this began
import ioverbs
data = bytearray(64 << 20)

def interrupt(session):
    while not session.counters()["in_flight"]:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

try:
    with ioverbs.open(sys.argv[1]) as session, session.workspace("w").create("c") as c:
        threading.Thread(target=interrupt, args=(session,)).start()
        if sys.argv[2] == "call":
            c.writev([(0, data)] * 1024)
        else:
            with session.batch() as b:
                b.writev(c, [(0, data)] * 1024)
except KeyboardInterrupt:
    try:
        data.append(0)
    except BufferError:
        print("interrupted")
"""


@pytest.mark.parametrize("how", ["call", "batch"])
def test_ctrl_c_interrupts_while_bytes_move(url: str, how: str) -> None:
    done = subprocess.run([sys.executable, "-c", MOVING, url, how], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_large_transfers_come_back_in_every_thread(url: str) -> None:
    """They are driven elsewhere in the main thread, and in their own in any other."""
    data = np.arange(24 << 20, dtype=np.uint8)
    with ioverbs.open(url) as session, session.workspace("w").create("c") as c:

        def move(offset: int) -> None:
            assert c.write(offset, data) == data.nbytes
            assert (np.frombuffer(c.read(offset, data.nbytes), np.uint8) == data).all()

        move(0)
        thread = threading.Thread(target=move, args=(data.nbytes,))
        thread.start()
        thread.join()
        with session.batch() as b:
            read = b.read(c, 0, data.nbytes)
        assert read.result() == data.tobytes() and c.size == 2 * data.nbytes
        with pytest.raises(ioverbs.Busy):
            request = session.batch(progress="caller")
            request.write(c, 0, data)
            request.start()
            session.close()
        assert request.request is not None
        request.request.wait()


def test_a_signal_handler_runs_while_a_call_waits(ws: ioverbs.Workspace) -> None:
    with ws.create("c") as c:
        lock = c.lock()
        before = signal.signal(signal.SIGALRM, lambda *_: lock.release())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with c.lock():
                assert not lock.held
        finally:
            signal.signal(signal.SIGALRM, before)


def test_o8_nothing_outlives_its_deadline(url: str) -> None:
    with ioverbs.open(url, deadline=0.5) as session, session.workspace("w").create("c") as c:
        with c.lock():
            start = time.monotonic()
            with pytest.raises(TimeoutError) as e:
                c.lock()
            assert 0.3 < time.monotonic() - start < 30
            assert e.value.outcome in ("unknown", "not applied")  # type: ignore[attr-defined]

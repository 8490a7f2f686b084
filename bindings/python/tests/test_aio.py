# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest
from conftest import Script

import ioverbs
from ioverbs import aio
from ioverbs._ioverbs import Handle, Op

MIB = 1 << 20


def run(main: Coroutine[Any, Any, Any]) -> None:
    asyncio.run(asyncio.wait_for(main, 60), debug=True)


def test_the_same_with_await(url: str) -> None:
    async def main() -> None:
        async with await aio.open(url) as session:
            ws = await session.workspace("w", indexes=["t"], consistency="session")
            async with await ws.create("c", {"t": 1}) as c:
                assert await c.write(0, b"hello") == 5 and await c.append(b"!") == 5
                assert await c.read() == b"hello!" and await c.size() == 6
                room = np.zeros(3, np.uint8)
                assert await c.readinto(1, room) == 3 and room.tobytes() == b"ell"
                assert await c.writev([(0, b"J"), (5, b"?")]) == 2
                assert await c.readv([(0, (head := bytearray(1)))]) == 1 and head == b"J"
                assert await c.metadata.get("t") == 1
                await c.metadata.update({"u": 2}, v=3)
                await c.metadata.remove("v")
                assert await c.metadata.copy() == {"t": 1, "u": 2}
                await c.truncate(100)
                await c.punch(0, 10)
                await c.allocate(0, 200)
                assert sum(e.length for e in await c.extents()) == 200
                await c.setattr(mode=0o600, lifetime="process")
                assert (await c.stat()).lifetime == "process"
                await c.commit()
                await c.persist()
                assert (await c.stat()).mode == 0o600 and c.controls["consistency"] == "session"
                await c.link("twice")
                async with await ws.create(None) as d:
                    assert await d.copy_from(c) == 200
            assert c.closed
            await c.close()
            g = await ws.group("g")
            assert (await ws.group("g")).uuid == g.uuid
            async with await g.create("inner") as inner:
                assert inner.name == "inner"
                assert (await g.look("inner")).uuid == inner.uuid and (await ws.look("g")).kind == "group"
            assert [e.name async for e in await g.find()] == ["inner"]
            assert [e.name async for e in await ws.list()] == ["c", "g", "twice"]
            assert (await (await ws.find("t = ?", 1, keys="*")).all())[0].metadata == {"t": 1, "u": 2}
            assert await ws.count("exists(t)") == 1
            await ws.rename("twice", "thrice")
            await ws.delete("thrice")
            await ws.commit()
            await ws.persist()
            await (await ws.metadata()).update(project="p")
            assert (await ws.stat()).kind == "workspace"
            assert (await (await session.workspaces()).all())[0].name == "w"
            with pytest.raises(FileNotFoundError):
                await ws.open("absent")
            with pytest.raises(ioverbs.NotEmpty):
                await session.delete_workspace("w")
            assert session.counters()["in_flight"] == 0

    run(main())


def test_batches(url: str) -> None:
    async def main() -> None:
        async with await aio.open(url) as session:
            ws = await session.workspace("w")
            async with session.batch(error="rollback") as b:
                c = b.create(ws, "c")
                b.write(c, 0, b"hello")
                read = b.read(c, 0, 5)
            assert read.result() == b"hello"
            with pytest.raises(ioverbs.BatchError):
                async with session.batch() as b:
                    b.create(ws, "c")
            b = session.batch(progress="background")
            b.write(c, 0, bytes(4 * MIB))
            assert [s.state for s in await b.start()] == ["ok"]
            with pytest.raises(TypeError, match="async with"):
                with session.batch():
                    pass
            await c.close()

    run(main())


def test_the_loop_goes_on_while_bytes_move(url: str) -> None:
    async def main() -> None:
        async with await aio.open(url) as session:
            ws = await session.workspace("w")
            async with await ws.create("c") as c:
                data = np.ones(32 * MIB, np.uint8)
                ticks = during = 0

                async def tick() -> None:
                    nonlocal ticks
                    while True:
                        ticks += 1
                        await asyncio.sleep(0)

                ticking = asyncio.create_task(tick())
                # Until the time of `run` is up: a loop that never gets to run on a loaded machine proves nothing.
                while during <= 3:
                    before = ticks
                    await c.write(0, data)
                    during = ticks - before
                ticking.cancel()

    run(main())


def test_many_tasks(url: str) -> None:
    async def main() -> None:
        async with await aio.open(url) as session:
            ws = await session.workspace("w")

            async def work(i: int) -> None:
                data = np.full(MIB, i, np.uint8)
                async with await ws.create(f"{i}") as c:
                    await asyncio.gather(*(c.write(part * MIB, data) for part in range(4)))
                    room = np.empty(4 * MIB, np.uint8)
                    assert await c.readinto(0, room) == 4 * MIB and (room == i).all()

            await asyncio.gather(*(work(i) for i in range(16)))
            assert await ws.count() == 16 and session.counters()["in_flight"] == 0

    run(main())


def test_o8_a_cancelled_task(url: str) -> None:
    """It waits for a lock. That it gets the lock all the same, later, must not keep others from it."""

    async def main() -> None:
        async with await aio.open(url, deadline=60) as session:
            ws = await session.workspace("w")
            async with await ws.create("c") as c:
                lock = await c.lock()
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(c.lock(), 0.2)
                with pytest.raises(ioverbs.Busy):
                    await c.lock(wait=False)
                await lock.release()
                async with asyncio.timeout(30), await c.lock() as lock:
                    assert lock.held
                assert not lock.held

    run(main())


MOVING = """
import asyncio, sys
from ioverbs import aio
data = bytearray(64 << 20)

async def main():
    session = await aio.open(sys.argv[1])
    c = await (await session.workspace("w")).create("c")
    # Many times the same bytes into the same place: it takes seconds, and little room.
    task = asyncio.create_task(c.writev([(0, data)] * 1024))
    while not session.counters()["in_flight"]:
        await asyncio.sleep(0.01)
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        # The bytes still move, the memory is kept for them, and the loop went on.
        try:
            data.append(0)
        except BufferError:
            print("cancelled", ticks > 3)
    ticking.cancel()

asyncio.run(main())
"""


def test_o8_a_cancelled_transfer_does_not_stop_the_loop(url: str, script: Script) -> None:
    assert script(MOVING, url, timeout=120) == "cancelled True\n"


def test_several_loops_share_a_session(url: str) -> None:
    with ioverbs.open(url) as blocking:
        blocking.workspace("w").create("c").close()
        session = aio.Session(blocking)
        errors: list[BaseException] = []

        async def main(i: int) -> None:
            ws = await session.workspace("w")
            async with await ws.open("c") as c:
                for _ in range(20):
                    await c.write(i * MIB, np.full(MIB, i, np.uint8))
                    assert set(await c.read(i * MIB, MIB)) == {i}

        def thread(i: int) -> None:
            try:
                asyncio.run(asyncio.wait_for(main(i), 60))
            except BaseException as e:
                errors.append(e)

        threads = [threading.Thread(target=thread, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not errors
        assert session.blocking is blocking


def test_a_request_may_be_waited_for_elsewhere(url: str) -> None:
    """Another thread sees the completion first; the coroutine hears of it all the same."""

    async def main() -> None:
        async with await aio.open(url) as session:
            ws = await session.workspace("w")
            async with await ws.create("c") as c:
                b = session.batch(progress="caller")
                b.write(c, 0, bytes(MIB))
                request = b.start()

                def elsewhere() -> None:
                    time.sleep(0.05)
                    ioverbs.Request.wait(request)

                thread = threading.Thread(target=elsewhere)
                thread.start()
                assert (await request)[0].bytes == MIB
                thread.join()

    run(main())


def test_nothing_is_watched_when_nothing_waits(url: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with await aio.open(url) as session:
            ws = await session.workspace("w")
            async with await ws.create("c") as c:
                await c.write(0, bytes(8 * MIB))
            reactor = session.blocking._reactor
            assert reactor._watching == {} and reactor._waiting == {}
            assert not loop.remove_reader(session.blocking._native.event_fd())

    run(main())


def test_o11_locks_end_with_their_handle(url: str) -> None:
    async def main() -> None:
        async with await aio.open(url) as session:
            ws = await session.workspace("w")
            await (await ws.create("c")).close()
            a, b = await ws.open("c"), await ws.open("c")
            first, second = await a.lock(0, 10), await a.lock(10, 10)
            await first.release()
            with pytest.raises(ioverbs.Busy):
                await b.lock(wait=False)
            await a.close()
            async with await b.lock(wait=False):
                pass
            assert second.held
            c = await ws.open("c")
            locks = [await c.lock(offset, 10, owner=7) for offset in (0, 10)]
            await locks[0].release()
            await c.close()
            async with await b.lock(wait=False):
                pass
            for _ in range(3):
                async with await b.lock():
                    pass
            assert b._locks == []
            await b.close()

    run(main())


def test_locks_are_given_back_behind_the_close_also_if_it_fails(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def release(c: aio.Collection, owner: int) -> None:
        seen.append(c.closed)
        Handle.release_locks(c, owner)

    async def main() -> None:
        async with await aio.open(url) as session:
            ws = await session.workspace("w")
            c = await ws.create("c", consistency="session")
            other = await ws.open("c")
            await c.lock(0, 10)
            await c.write(0, b"published")
            await c.close()
            async with await other.lock(wait=False):
                pass

            async def fails(op: Op) -> None:
                await aio._run.run(session, op)
                raise ioverbs.Unavailable("nobody has answered")

            c = await ws.open("c")
            await c.lock(0, 10)
            monkeypatch.setattr(aio.Collection, "_run", lambda _, op: fails(op))
            with pytest.raises(ioverbs.Unavailable):
                await c.close()
            monkeypatch.undo()
            async with await other.lock(wait=False):
                pass

    monkeypatch.setattr(aio.Collection, "release_locks", release, raising=False)
    run(main())
    assert seen == [True, True]


def test_a_loop_that_was_closed_keeps_nobody_from_hearing(session: ioverbs.Session) -> None:
    """Whoever closes a loop in which somebody waits hears nothing any more; those who wait in other loops do."""
    reactor = session._reactor

    class Done:
        done = True

    closed, alive = asyncio.new_event_loop(), asyncio.new_event_loop()
    futures = [loop.create_future() for loop in (closed, alive, closed, alive)]
    closed.close()
    reactor._waiting.update(dict.fromkeys(futures, Done()))  # type: ignore[arg-type]
    reactor.look()
    alive.run_until_complete(asyncio.wait_for(asyncio.gather(futures[1], futures[3]), 5))
    assert not reactor._waiting
    alive.close()

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest

import ioverbs


def test_o7_a_batch_completes_together(session: ioverbs.Session, ws: ioverbs.Workspace) -> None:
    with session.batch() as b:
        c = b.create(ws, "c", {"n": 1}, consistency="session")
        assert c.pending and repr(c) == "<ioverbs.Collection 'c' in 'test' pending>"
        with pytest.raises(ioverbs.Busy, match="pending"):
            c.read(0, 1)
        with pytest.raises(ioverbs.Busy, match="pending"):
            c.close()
        wrote = b.write(c, 0, b"hello")
        read = b.read(c, 0, 100)
        at = b.append(c, b"!")
        value = b.get(c, "n")
        stat = b.stat(c)
        assert (wrote.index, wrote.verb, wrote.done, wrote.status.state) == (1, "write", False, "pending")
        with pytest.raises(ioverbs.Invalid, match="not started"):
            wrote.result()
    assert not c.pending and wrote.done and c.uuid.version == 7
    assert (wrote.result(), at.result(), value.result()) == (5, 5, 1)
    # T20: the read sees the write of its batch that is before it.
    assert read.result()[:5] == b"hello" and read.result() is read.result()
    assert stat.result().uuid == c.uuid
    assert [s.state for s in b.statuses] == ["ok"] * 6 and len(b) == 6
    assert b.statuses[1] == wrote.status and wrote.status.bytes == 5 and wrote.status.outcome == "applied"
    c.close()


def test_every_operation_can_be_in_a_batch(session: ioverbs.Session, ws: ioverbs.Workspace) -> None:
    room, rooms = bytearray(4), (bytearray(2), bytearray(2))
    with session.batch(error="stop") as b:
        g = b.group(ws, "g", {"is": "group"})
        c = b.create(g, "c")
        d = b.create(ws)
        b.writev(c, [(0, b"01"), (2, b"23")])
        b.barrier()
        into, v = b.readinto(c, 0, room), b.readv(c, [(0, rooms[0]), (2, rooms[1])])
        copied = b.copy(c, 0, d, 10, 4)
        b.barrier()
        b.punch(d, 11, 2)
        b.allocate(c, 0, 100)
        b.barrier()
        b.truncate(c, 50)
        extents = b.extents(d, 0, 14)
        b.update(c, {"a": 1, "b": 2})
        b.remove(c, "b")
        b.setattr(c, mode=0o600)
        b.barrier()
        metadata = b.metadata(c)
        b.link(d, ws, "linked")
        b.barrier()
        again = b.open(ws, "linked")
        b.rename(g, "c", "moved", to=ws)
        b.barrier()
        b.delete(ws, "g")
        b.commit(c)
        b.persist(c)
        b.commit(ws)
        b.persist(ws)
        stat = b.stat(ws)
        b.barrier()
        for handle in (c, d, again):
            b.close(handle)
    assert (into.result(), v.result(), room, rooms) == (4, 4, b"0123", (b"01", b"23"))
    assert copied.result() == 4 and metadata.result() == {"a": 1}
    assert sum(e.length for e in extents.result()) == 14
    assert stat.result().kind == "workspace"
    assert c.closed and d.closed and again.closed
    with ws["moved"] as c, ws["linked"] as d:
        assert (c.size, c.stat().mode, d.read()) == (50, 0o600, bytes(10) + b"0\0\x003")
    assert [entry.name for entry in ws.list()] == ["linked", "moved"]


def test_b1_continue(session: ioverbs.Session, ws: ioverbs.Workspace) -> None:
    ws.create("taken").close()
    with pytest.raises(ioverbs.BatchError, match=r"2 of 3 operations are not ok; operation 0 \(create\)") as e:
        with session.batch() as b:
            x = b.create(ws, "taken")
            b.write(x, 0, b"never")
            y = b.create(ws, "free")
    assert [s.state for s in e.value.statuses] == ["failed", "failed", "ok"]
    assert isinstance(e.value.__cause__, ioverbs.Exists)
    assert isinstance(e.value.statuses[0].error, FileExistsError)
    assert e.value.statuses[0].outcome == "not applied"
    with pytest.raises(ioverbs.Exists):
        x.read(0, 1)
    x.close()
    y.close()


def test_b2_stop(session: ioverbs.Session, ws: ioverbs.Workspace) -> None:
    with session.batch(error="stop", check=False) as b:
        b.open(ws, "absent")
        b.barrier()
        b.create(ws, "later")
    assert [s.state for s in b.statuses] == ["failed", "skipped"]
    assert b.statuses[1].error is not None and b.statuses[1].error.clause == "B2"
    assert "later" not in ws


def test_b3_rollback(session: ioverbs.Session, ws: ioverbs.Workspace) -> None:
    with ws.create("c") as c:
        c.write(0, b"old")
        with pytest.raises(ioverbs.BatchError) as e:
            with session.batch(error="rollback") as b:
                b.write(c, 0, b"new")
                b.update(c, {"k": 1})
                b.create(ws, "d")
                b.delete(ws, "absent")
        assert [s.state for s in e.value.statuses] == ["undone", "undone", "undone", "failed"]
        assert isinstance(e.value.__cause__, ioverbs.NotFound) and e.value.outcome == "not applied"
        assert c.read() == b"old" and c.metadata.copy() == {} and "d" not in ws
        with session.batch(error="rollback", id=ioverbs.uuid7()) as b:
            b.write(c, 0, b"new")
            b.update(c, {"k": 1})
        assert c.read() == b"new" and c.metadata["k"] == 1


def test_b3_a_retry_with_its_id_applies_once(session: ioverbs.Session, ws: ioverbs.Workspace) -> None:
    again = ioverbs.uuid7()
    uuids = set()
    for _ in range(2):
        with session.batch(error="rollback", id=again) as b:
            c = b.create(ws, "once")
        uuids.add(c.uuid)
    assert len(uuids) == 1 and ws.count() == 1


def test_o8_requests(session: ioverbs.Session, c: ioverbs.Collection) -> None:
    b = session.batch(progress="caller")
    b.write(c, 0, b"x" * 10)
    request = b.start()
    assert b.request is request
    with pytest.raises(ioverbs.Busy, match="in flight"):
        b.reset()
    with pytest.raises(ioverbs.Busy, match="was started"):
        b.write(c, 0, b"y")
    while not request.test():
        pass
    assert request.done and [s.state for s in request.wait()] == ["ok"]
    assert request.status(0).bytes == 10
    with pytest.raises(ioverbs.Invalid, match="no operation 1"):
        request.status(1)
    b.reset()
    assert len(b) == 0
    read = b.read(c, 0, 3)
    b.start().wait(10)
    assert read.result() == b"xxx" and request.status(0).bytes == 10


def test_o8_what_is_in_flight(session: ioverbs.Session, ws: ioverbs.Workspace) -> None:
    with ws.create("c") as c:
        b = session.batch(progress="caller")
        b.write(c, 0, bytes(1 << 20))
        request = b.start()
        assert not request.done
        with pytest.raises(ioverbs.Busy, match="not completed"):
            request.status(0)
        with pytest.raises(ioverbs.Busy):
            session.close()
        request.wait()
        assert request.done


def test_o8_cancel(session: ioverbs.Session, c: ioverbs.Collection) -> None:
    b = session.batch(progress="caller", check=False)
    b.write(c, 0, b"x")
    request = b.start()
    request.cancel()
    (status,) = request.wait()
    assert status.state == "cancelled" and isinstance(status.error, ioverbs.Cancelled)
    assert c.size == 0


def test_mistakes(session: ioverbs.Session, ws: ioverbs.Workspace) -> None:
    with pytest.raises(ioverbs.Invalid, match="continue, stop, rollback"):
        session.batch(error="retry")  # type: ignore[arg-type]
    with pytest.raises(ioverbs.Invalid, match="auto, caller, background"):
        session.batch(progress="hope")  # type: ignore[arg-type]
    with pytest.raises(ioverbs.Invalid, match="version 7"):
        session.batch(id=ws.uuid.__class__(int=5))
    with pytest.raises(ioverbs.Invalid, match="deadline"):
        session.batch(deadline=0)
    with ioverbs.open(f"mem:another-{ws.uuid}") as other, session.batch() as b:
        foreign = other.workspace("w").create("c")
        with pytest.raises(ioverbs.Invalid, match="another session"):
            b.write(foreign, 0, b"x")
        foreign.close()


def test_explain(session: ioverbs.Session, c: ioverbs.Collection) -> None:
    b = session.batch(error="rollback")
    b.write(c, 0, b"hello")
    plan = b.explain()
    assert "write" in str(plan) and "rollback" in str(plan)
    with pytest.raises(ioverbs.BatchError):
        b.delete(c.workspace, "absent")
        b.start().wait()


def test_one_thread_at_a_time(session: ioverbs.Session, c: ioverbs.Collection) -> None:
    """Two threads in one batch: each append either counts or says that the batch is in use."""
    b = session.batch()
    appended: list[int] = []

    def append() -> None:
        for i in range(500):
            try:
                b.write(c, i, b"x")
                appended.append(i)
            except ioverbs.Busy:
                pass

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(b) == len(appended) > 0

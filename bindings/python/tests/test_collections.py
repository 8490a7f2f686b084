# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime, timedelta, timezone
from uuid import UUID

import pytest

import ioverbs
from ioverbs._ioverbs import BlockingHandle


def test_o6_bytes(c: ioverbs.Collection) -> None:
    assert c.write(0, b"hello") == 5
    assert c.write(10, b"world") == 5
    assert (c.size, c.stat().size) == (15, 15)
    assert c.read() == b"hello" + bytes(5) + b"world"
    assert c.read(3, 4) == b"lo\0\0"
    assert c.read(10, 100) == b"world"
    assert c.read(15, 1) == b"" and c.read(1000) == b"" and c.read(0, 0) == b""
    assert c.readv([(0, (head := bytearray(2))), (13, (tail := bytearray(9)))]) == 4
    assert (head, tail) == (b"he", b"ld" + bytes(7))
    assert c.writev([(0, b"J"), (14, b"D!")]) == 3
    assert c.read() == b"Jello" + bytes(5) + b"worlD!"


def test_truncate_punch_allocate_extents(c: ioverbs.Collection) -> None:
    c.write(0, bytes([7]) * 3 * 65536)
    c.punch(65536, 65536)
    assert c.size == 3 * 65536
    assert c.read(65535, 3) == b"\7\0\0"
    kinds = [e.kind for e in c.extents()]
    assert kinds[0] == "data" and kinds[-1] == "data" and "hole" in kinds
    extents = c.extents(0, 3 * 65536)
    assert sum(e.length for e in extents) == 3 * 65536
    assert extents[0].offset == 0
    assert c.extents(10**9) == []
    c.truncate(10)
    assert c.size == 10
    c.truncate(20)
    assert c.read() == bytes([7]) * 10 + bytes(10)
    c.allocate(0, 1000)
    assert c.size == 1000
    c.allocate(0, 5000, keep_size=True)
    assert c.size == 1000


def test_o9_append_and_m4(ws: ioverbs.Workspace) -> None:
    with ws.create("log", mutability="append") as c:
        assert [c.append(b"one"), c.append(b"two!")] == [0, 3]
        assert c.read() == b"onetwo!"
        with pytest.raises(ioverbs.Immutable, match="append only"):
            c.write(0, b"x")


def test_copying(ws: ioverbs.Workspace) -> None:
    with ws.create("a") as a, ws.create("b") as b:
        a.write(0, b"0123456789")
        assert b.copy_from(a) == 10
        assert b.copy_from(a, 5, 20, 100) == 5
        assert b.read() == b"0123456789" + bytes(10) + b"56789"


def test_m2_sealed_is_fixed(ws: ioverbs.Workspace) -> None:
    with ws.create("c", mutability="immutable") as c:
        assert c.stat().state == "staging"
        c.write(0, b"fixed")
        c.seal()
        assert c.stat().state == "sealed"
        with pytest.raises(ioverbs.Immutable):
            c.write(0, b"x")
        c.metadata["still"] = "possible"
        assert c.read() == b"fixed"


def test_negative_and_huge_numbers(c: ioverbs.Collection) -> None:
    with pytest.raises(OverflowError):
        c.write(-1, b"x")
    with pytest.raises(ioverbs.Invalid, match="beyond"):
        c.punch(1 << 63, 1)
    with pytest.raises((MemoryError, OverflowError)):
        c.read(0, 1 << 62)
    with pytest.raises(OverflowError):
        c.read(0, 1 << 63)


def test_a_view_says_what_to_do_instead(c: ioverbs.Collection) -> None:
    with pytest.raises(NotImplementedError, match="read them instead"):
        c.view(0, 1)


def test_o3_names_and_groups(ws: ioverbs.Workspace) -> None:
    g = ws.group("g", metadata={"kind": "group"})
    assert ws.group("g").uuid == g.uuid and g.kind == "group" and g.stat().kind == "group"
    assert g.metadata["kind"] == "group"
    with g.create("inner", {"n": 1}) as c:
        c.write(0, b"x")
        with ws.create("inner") as other:
            assert other.uuid != c.uuid
    assert g["inner"].read() == b"x"
    assert ws.open("inner", group=g).uuid == c.uuid
    sub = g.group("sub")
    sub.create("deep").close()
    assert [e.name for e in ws.list()] == ["g", "inner"]
    assert [(e.name, e.kind) for e in g.list()] == [("inner", "collection"), ("sub", "group")]
    assert [e.name for e in g] == ["inner", "sub"] and "inner" in g and "deep" not in g
    assert {e.name for e in g.find()} == {"inner", "sub"}
    assert {e.name for e in g.find(deep=True)} == {"inner", "sub", "deep"}
    assert g.count("exists(n)") == 1 and sub.list().one().group == sub.uuid
    with pytest.raises(ioverbs.NotEmpty):
        ws.delete("g")
    with pytest.raises(ioverbs.Invalid, match="no bytes"):
        g.read(0, 1)
    with pytest.raises(ioverbs.NotFound):
        ws.group("absent", create=False)
    with pytest.raises(ioverbs.Invalid, match="a group was expected"):
        ws.create("x", group=ws["inner"])  # type: ignore[arg-type]
    g.rename("inner", "moved", to=ws)
    assert [e.name for e in ws.list()] == ["g", "inner", "moved"]
    with pytest.raises(ioverbs.Exists):
        ws.rename("moved", "inner", replace=False)
    first, second = ws["moved"].uuid, ws["inner"].uuid
    ws.rename("moved", "inner", exchange=True)
    assert (ws["moved"].uuid, ws["inner"].uuid) == (second, first)
    ws.rename("moved", "inner")
    assert ws["inner"].uuid == second and "moved" not in ws and "inner" in ws
    sub.delete("deep")
    g.delete("sub")
    ws.delete("g")


def test_names_are_bytes(ws: ioverbs.Workspace) -> None:
    odd = b"caf\xe9"
    ws.create(odd).close()
    assert (name := ws.list().one().name) == "caf\udce9"
    assert ws[name].name == name and ws[odd].uuid == ws[name].uuid
    ws.create("naïve ☃").close()
    assert ws["naïve ☃".encode()].name == "naïve ☃"
    with pytest.raises(TypeError, match="str or bytes"):
        ws.open(5)  # type: ignore[arg-type]


def test_identities(ws: ioverbs.Workspace) -> None:
    with ws.create(None, {"unnamed": True}) as c:
        assert isinstance(c.uuid, UUID) and c.uuid.version == 7 and c.name is None
        assert ws[c.uuid].uuid == c.uuid == ws[f"uuid:{c.uuid}"].uuid
        assert ws.find("unnamed = true").one().name is None
        c.link("named")
        assert ws["named"].uuid == c.uuid and c.stat().links == 1
        c.link("twice")
        ws.delete("named")
        assert ws["twice"].uuid == c.uuid
        ws.delete(c.uuid)
        assert "twice" not in ws
        # O10: open handles go on.
        c.write(0, b"still here")
        assert c.read() == b"still here"


def test_facts(ws: ioverbs.Workspace) -> None:
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    with ws.create("c") as c:
        c.write(0, b"x" * 1000)
        c.setattr(mode=0o640, mtime=ioverbs.Timestamp.from_ns(1_700_000_000_000_000_001))
        stat = c.stat()
        assert (stat.kind, stat.uuid, stat.size, stat.mode) == ("collection", c.uuid, 1000, 0o640)
        assert stat.mtime is not None and stat.mtime.ns == 1_700_000_000_000_000_001
        assert stat.ctime is not None and before < stat.ctime < datetime.now(timezone.utc) + timedelta(seconds=1)
        assert stat.quota_bytes is None and stat.expires is None
        with pytest.raises(ioverbs.Invalid):
            c.setattr(mode=0o10000)


def test_o1_workspaces(session: ioverbs.Session) -> None:
    expires = datetime(2200, 1, 1, tzinfo=timezone.utc)
    ws = session.workspace(
        "w", metadata={"project": "p"}, indexes="t", quota_bytes=1 << 20, quota_collections=3, expires=expires
    )
    stat = ws.stat()
    assert (stat.kind, stat.quota_bytes, stat.quota_collections, stat.expires) == ("workspace", 1 << 20, 3, expires)
    assert ws.metadata["project"] == "p" and ws.writable and ws.name == "w"
    assert ws.indexes == ["t"]
    ws.set(indexes=["t", "u"])
    assert ws.indexes == ["t", "u"]
    ws.metadata["project"] = "q"
    assert session.workspace("w", metadata={"project": "ignored"}).metadata.copy() == {"project": "q"}
    assert session.workspaces('project = "q"').one().uuid == ws.uuid
    ws.set(quota_bytes=ioverbs.UNLIMITED, quota_collections=1, metadata={"more": 1})
    assert (ws.stat().quota_bytes, ws.stat().quota_collections) == (None, 1)
    ws.create("one").close()
    with pytest.raises(ioverbs.Exhausted, match="quota"):
        ws.create("two")
    ws.set(name="renamed")
    assert session.workspace("renamed", create=False).uuid == ws.uuid == session.workspace(ws.uuid).uuid
    with pytest.raises(ioverbs.Exists):
        session.workspace("renamed", exist_ok=False)
    ws.delete("one")
    ws.commit()
    ws.persist()
    session.delete_workspace("renamed")
    with pytest.raises(ioverbs.NotFound):
        session.workspace("renamed", create=False)


def test_o11_locks(c: ioverbs.Collection) -> None:
    with c.lock(0, 100) as lock:
        assert lock.held
        with pytest.raises(ioverbs.Busy):
            c.lock(50, 10, wait=False)
        found = c.locked(50, 10)
        assert found is not None and (found.offset, found.length, found.exclusive) == (0, 100, True)
        assert c.locked(100) is None
        with c.lock(100, wait=False):
            pass
    assert not lock.held and c.locked() is None
    with c.lock(exclusive=False), c.lock(exclusive=False):
        assert c.locked(exclusive=False) is None and c.locked() is not None
    with pytest.raises(ioverbs.Invalid):
        c.lock(0, 0)


def test_locks_end_with_their_handle(ws: ioverbs.Workspace) -> None:
    with ws.create("c") as c, ws["c"] as other:
        c.lock(0, 10)
        assert other.locked() is not None
        c.close()
        assert other.locked() is None
    with ws["c"] as c, ws["c"] as other:
        first, _ = (c.lock(offset, 10, owner=7) for offset in (0, 10))
        first.release()
        c.close()
        assert other.locked() is None, "one owner held both"


def test_locks_are_given_back_behind_the_close_also_if_it_fails(
    ws: ioverbs.Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def release(c: ioverbs.Collection, owner: int) -> None:
        seen.append(c.closed)
        BlockingHandle.release_locks(c, owner)

    monkeypatch.setattr(ioverbs.Collection, "release_locks", release, raising=False)
    c, other = ws.create("c", consistency="session"), ws["c"]
    c.lock(0, 10)
    c.write(0, b"published")
    c.close()
    assert seen == [True] and other.locked() is None

    class Failing(BlockingHandle):
        __slots__ = ()

        def close(self) -> None:
            super().close()
            raise ioverbs.Unavailable("nobody has answered")

    class Failed(ioverbs.Collection, Failing):
        __slots__ = ()

    c = ws["c"]
    c.__class__ = Failed
    c.lock(0, 10)
    with pytest.raises(ioverbs.Unavailable):
        c.close()
    assert seen == [True, True] and other.locked() is None


def test_a_lock_is_given_back_while_another_thread_closes(c: ioverbs.Collection) -> None:
    class Emptied(list[int]):
        def remove(self, owner: int) -> None:
            # The close comes in here.
            self.clear()
            super().remove(owner)

    lock = c.lock(0, 10)
    c._locks = Emptied(c._locks)
    lock.release()
    assert c.locked() is None


def test_c3_close_publishes(url: str) -> None:
    with ioverbs.open(url) as one, ioverbs.open(url) as two:
        with one.workspace("w").create("c", consistency="session") as c:
            c.write(0, b"published")
        with two.workspace("w")["c"] as c:
            assert c.read() == b"published"


def test_counters(session: ioverbs.Session, c: ioverbs.Collection) -> None:
    before = session.counters()
    c.write(0, bytes(1000))
    after = session.counters()
    assert after["bytes_written"] - before["bytes_written"] == 1000
    assert after["operations"] - before["operations"] == 1
    assert after["in_flight"] == 0


def test_handles_say_what_they_are(session: ioverbs.Session, ws: ioverbs.Workspace, c: ioverbs.Collection) -> None:
    assert repr(session).startswith("<ioverbs.Session of ")
    assert repr(ws).startswith("<ioverbs.Workspace 'test' of ")
    assert repr(c) == "<ioverbs.Collection 'c' in 'test'>"
    assert c.workspace is ws and ws.session is session

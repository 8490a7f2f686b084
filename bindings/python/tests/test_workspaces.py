# SPDX-License-Identifier: Apache-2.0
"""Sessions and workspaces as wholes: closing, and properties."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import ioverbs

SOME: dict[str, Any] = {
    "indexes": ["a", "b"],
    "metadata": {"project": "cfd", "runs": 3},
    "quota_bytes": 1 << 30,
    "quota_collections": 100,
    "expires": datetime(2100, 1, 1, tzinfo=timezone.utc),
    "consistency": "session",
}


def test_closing_again_does_nothing(url: str) -> None:
    with ioverbs.open(url) as session:
        with session.workspace("w") as ws:
            with ws.create("c") as c:
                c.close()
            c.close()
            ws.close()
        ws.close()
        session.close()
        session.close()
    session.close()
    with pytest.raises(ioverbs.Error):
        session.workspace("w")


def test_a_request_left_behind_does_not_hide_what_ended_the_block(url: str) -> None:
    with ioverbs.open(url) as outer:
        c = outer.workspace("w").create("c")
        lock = c.lock()
        with pytest.raises(ZeroDivisionError):
            with ioverbs.open(url) as session, session.workspace("w")["c"] as d:
                b = session.batch(progress="caller")
                b.write(d, 0, b"x")
                b.start()
                1 / 0
        with pytest.raises(ioverbs.Busy):
            with ioverbs.open(url) as session:
                b = session.batch(progress="caller")
                b.write(session.workspace("w")["c"], 0, b"x")
                request = b.start()
        request.wait()
        lock.release()
        c.close()


def test_o5_indexes_are_replaced_and_dropped(session: ioverbs.Session) -> None:
    ws = session.workspace("w", indexes=["t"])
    with ws.create("c", {"t": 1, "u": 2}):
        pass
    ws.set(quota_collections=10)
    assert ws.indexes == ["t"]
    ws.set(indexes="u")
    assert ws.indexes == ["u"] and ws.count("u = 2") == 1
    ws.set(indexes=[])
    assert ws.indexes == [] and session.workspace("w").indexes == []
    assert ws.count("u = 2 and t = 1") == 1
    with pytest.raises(ioverbs.Invalid, match="O5"):
        ws.set(indexes=[""])
    assert session.workspace("none", indexes=[]).indexes == []


def test_o1_a_workspace_that_is_there_has_what_it_is_asked_for_or_is_refused(session: ioverbs.Session) -> None:
    made = session.workspace("w", **SOME)
    # Whoever runs a program again, or at the same time, asks for the same.
    assert session.workspace("w", **SOME).uuid == made.uuid
    assert session.workspace("w").uuid == session.workspace("w", create=False, **SOME).uuid == made.uuid
    for name, value in SOME.items():
        assert session.workspace("w", **{name: value}).uuid == made.uuid
    other: dict[str, Any] = {
        "indexes": ["a", "c"],
        "quota_bytes": ioverbs.UNLIMITED,
        "quota_collections": 101,
        "consistency": "commit",
        "owner": made.stat().uid + 1,
        "access": "any=read",
    }
    for name, value in other.items():
        for create in (True, False):
            with pytest.raises(ioverbs.Exists, match="with other properties") as e:
                session.workspace("w", create, **{name: value})
            assert e.value.clause == "O1"
    # Metadata are what it is born with.
    assert session.workspace("w", indexes=["b"], metadata={"runs": 4}).metadata["runs"] == 3
    assert session.workspace("w", owner=made.stat().uid).uuid == made.uuid
    assert session.workspace("w", owner=f"uid:{made.stat().uid}").uuid == made.uuid
    # As the message says.
    made.set(indexes=["a", "c"])
    assert session.workspace("w", indexes=["a", "c"]).indexes == ["a", "c"]


def test_o1_an_end_is_that_of_whoever_made_the_workspace(session: ioverbs.Session) -> None:
    # A program that is run again, and each rank of a job, counts from its own now.
    end = datetime(2100, 1, 1, tzinfo=timezone.utc)
    made = session.workspace("w", expires=end, quota_collections=10)
    for later in (timedelta(microseconds=1), timedelta(days=30)):
        again = session.workspace("w", expires=end + later, quota_collections=10)
        assert again.uuid == made.uuid and again.stat().expires == end
    assert session.workspace("w", create=False, expires=end - timedelta(days=1)).stat().expires == end
    endless = session.workspace("endless")
    assert session.workspace("endless", expires=end).stat().expires is None
    endless.set(expires=end)
    assert session.workspace("endless").stat().expires == end
    # What else is given must still be so, and a name that is to be new must be.
    with pytest.raises(ioverbs.Exists, match="quota_collections is 10"):
        session.workspace("w", expires=end, quota_collections=11)
    with pytest.raises(ioverbs.Exists):
        session.workspace("w", exist_ok=False, expires=end)


def test_o4_facts_are_told_of_what_is_not_open(ws: ioverbs.Workspace) -> None:
    g = ws.group("g")
    with g.create("c", concurrency="exclusive") as c:
        c.write(0, b"hello")
        found = g.look("c")
        assert (found.kind, found.uuid, found.links, found.filetype) == ("collection", c.uuid, 1, 0)
        assert ws.look(c.uuid) == found
    assert (g.look("c").size, ws.look("g").kind, ws.look("g").uuid) == (5, "group", g.uuid)
    with ws.session.batch(check=False) as b:
        one, none = b.look(g, "c"), b.look(ws, "none")
    assert one.result().size == 5
    for missing in (none.result, lambda: ws.look("none"), lambda: g.look("none")):
        with pytest.raises(ioverbs.NotFound):
            missing()

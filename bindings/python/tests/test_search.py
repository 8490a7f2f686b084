# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

import pytest

from conftest import end_daemon

import ioverbs


@pytest.fixture
def runs(session: ioverbs.Session, ws: ioverbs.Workspace) -> ioverbs.Workspace:
    with session.batch() as b:
        for i in range(10):
            b.close(b.create(ws, f"run_{i}", {"temperature": 290 + 5 * i, "experiment": "nacelle", "i": i}))
        b.close(b.create(ws, "other", {"temperature": 400.5, "experiment": "wing"}))
    return ws


def names(search: ioverbs.Search) -> list[str | None]:
    return [entry.name for entry in search]


def test_o5_predicates(runs: ioverbs.Workspace) -> None:
    assert sorted(names(runs.find('temperature > 310 and experiment = "nacelle"'))) == [f"run_{i}" for i in range(5, 10)]
    assert names(runs.find("temperature > ? and experiment = ?", 310, "wing")) == ["other"]
    assert names(runs.find("not exists(i)")) == ["other"]
    assert runs.count() == 11 and runs.count('iov.name ~ "run_*"') == 10
    assert runs.count("i < ?", 3) == 3
    assert runs.count("iov.ctime > ?", datetime(2020, 1, 1, tzinfo=timezone.utc)) == 11
    assert "run_3" in runs and "run_33" not in runs and 3 not in runs


def test_o5_order_limit_and_keys(runs: ioverbs.Workspace) -> None:
    found = runs.find(order="temperature desc, iov.name", limit=3, keys=["temperature", "iov.size"]).all()
    assert names(iter(found)) == ["other", "run_9", "run_8"]  # type: ignore[arg-type]
    assert found[0].metadata == {"temperature": 400.5, "iov.size": 0}
    assert found[0].kind == "collection" and found[0].group is None
    assert runs.open(found[1].uuid).metadata["i"] == 9
    assert runs.find("i = 1").one().metadata == {}
    assert runs.find("i = 1", keys="*").one().metadata == {"temperature": 295, "experiment": "nacelle", "i": 1}
    with pytest.raises(ioverbs.Invalid, match="limit"):
        runs.find(limit=0)


def test_one_is_one(runs: ioverbs.Workspace) -> None:
    with pytest.raises(ValueError, match="found nothing"):
        runs.find("i = 99").one()
    with pytest.raises(ValueError, match="more than one"):
        runs.find("i < 2").one()


def test_mistakes_have_a_position(runs: ioverbs.Workspace) -> None:
    for ask in (runs.find, runs.count, ioverbs.check_predicate):
        with pytest.raises(ioverbs.Invalid, match="column 15.*found the word 'nacelle'"):
            ask("experiment  = nacelle")  # type: ignore[operator]
    with pytest.raises(ioverbs.Invalid):
        runs.find("i = ?")
    with pytest.raises(ioverbs.Invalid):
        runs.find(None, 5)
    with pytest.raises(TypeError):
        runs.find("i = ?", [5])  # type: ignore[arg-type]
    ioverbs.check_predicate("i = ? and j > 2", 5)


def test_results_of_several_pages(session: ioverbs.Session, ws: ioverbs.Workspace) -> None:
    with session.batch() as b:
        for i in range(5000):
            b.close(b.create(ws, f"{i:05}"))
    assert names(ws.list()) == [f"{i:05}" for i in range(5000)]
    assert len({entry.uuid for entry in ws.find()}) == 5000
    with ws.find() as search:
        first = next(search)
        assert isinstance(first, ioverbs.Entry)
    with pytest.raises(ioverbs.Invalid, match="closed"):
        for _ in range(5000):
            next(search)


def test_a_search_in_a_loop_ends_early(ws: ioverbs.Workspace, session: ioverbs.Session) -> None:
    with session.batch() as b:
        for i in range(1000):
            b.close(b.create(ws, f"{i}"))
    # More searches than a session may have open: each is ended when it is dropped.
    for _ in range(600):
        for _entry in ws.find():
            break


def test_workspaces_are_found(session: ioverbs.Session) -> None:
    for i in range(3):
        session.workspace(f"w{i}", metadata={"i": i})
    assert sorted(names(session.workspaces("i > 0"))) == ["w1", "w2"]  # type: ignore[type-var]
    assert session.workspaces(order="i desc", limit=1, keys="i").one().metadata == {"i": 2}
    assert len(session.workspaces().all()) == 3


def test_i1_what_is_damaged_does_not_hide_the_others(file_url: str) -> None:
    with ioverbs.open(file_url) as session:
        ws = session.workspace("w")
        uuids = []
        for name in ("damaged", "whole"):
            with ws.create(name, persistence="durable") as c:
                c.write(0, bytes([7]) * 256_000)
                uuids.append(c.uuid.hex)
    end_daemon(file_url)
    data = Path(file_url.removeprefix("file:")) / "data"
    (file,) = [path for path in data.rglob("*") if path.is_file() and uuids[0] in path.name]
    os.truncate(file, 100_000)
    with ioverbs.open(file_url) as session:
        # It can be opened, and every use of its bytes tells; it is open now, so that a search would look at its size.
        ws = session.workspace("w")
        c = ws["damaged"]
        for use in (lambda: c.stat(), lambda: c.read(0, 10), lambda: c.write(0, b"x")):
            with pytest.raises(ioverbs.Corrupt, match="should have at least 256000 bytes, its file has 100000"):
                use()
        assert {e.name: e.metadata["iov.size"] for e in ws.find(keys="iov.size")} == {"damaged": 256_000, "whole": 256_000}
        assert ws["whole"].read(0, 1) == b"\7"
        with pytest.raises(ioverbs.Corrupt):
            c.close()
        ws.delete("damaged")
        assert [e.name for e in ws] == ["whole"]

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import MutableMapping

import pytest

import ioverbs


def requests(session: ioverbs.Session) -> int:
    return session.counters()["metadata_requests"]


def test_o4_a_mapping_over_the_store(ws: ioverbs.Workspace) -> None:
    with ws.create("c", {"a": 1, "b": "two"}) as c:
        md = c.metadata
        assert isinstance(md, MutableMapping)
        assert md["a"] == 1 and "b" in md and "z" not in md and 5 not in md
        assert md.get("a") == 1 and md.get("z") is None and md.get("z", 7) == 7
        assert list(md) == ["a", "b"] and len(md) == 2
        assert dict(md.items()) == md.copy() == {"a": 1, "b": "two"} == md
        assert list(md.keys()) == ["a", "b"] and list(md.values()) == [1, "two"]
        md["a"] = 1.5
        md.update({"c": True}, d=b"4")
        md.update([("e", "five")])
        assert md.copy() == {"a": 1.5, "b": "two", "c": True, "d": b"4", "e": "five"}
        assert ws["c"].metadata == md
        del md["b"]
        assert md.pop("c") is True and md.pop("c", None) is None
        assert md.setdefault("d", 0) == b"4" and md.setdefault("f", 6) == 6
        md.clear()
        assert not md and md.copy() == {}
        md.clear()


def test_a_missing_key_is_a_key_error(c: ioverbs.Collection) -> None:
    with pytest.raises(KeyError):
        c.metadata["z"]
    with pytest.raises(KeyError):
        del c.metadata["z"]
    with pytest.raises(KeyError):
        c.metadata.pop("z")


def test_system_keys(c: ioverbs.Collection) -> None:
    assert c.metadata["iov.name"] == "c"
    assert c.metadata["iov.uuid"] == f"uuid:{c.uuid}"
    assert "iov.name" not in list(c.metadata)
    with pytest.raises(ioverbs.Invalid, match="system's"):
        c.metadata["iov.name"] = "d"


def test_each_call_is_one_request(session: ioverbs.Session, c: ioverbs.Collection) -> None:
    before = requests(session)
    c.metadata.update({str(i): i for i in range(100)})
    assert requests(session) - before == 1
    assert len(c.metadata.items()) == 100
    assert requests(session) - before == 2
    assert c.metadata.get("5") == 5
    assert requests(session) - before == 3


def test_metadata_of_a_workspace(session: ioverbs.Session, ws: ioverbs.Workspace) -> None:
    ws.metadata["project"] = "p"
    assert session.workspaces('project = "p"', keys="*").one().metadata == {"project": "p"}
    del ws.metadata["project"]
    assert ws.metadata.copy() == {}

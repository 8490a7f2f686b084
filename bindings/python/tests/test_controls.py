# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta

import pytest

import ioverbs
from ioverbs import normal_controls


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"consistency": "session"}, "consistency=session"),
        ({"persistence": "durable@close"}, "persistence=durable@close"),
        ({"persistence": "durable", "point": "batch"}, "persistence=durable@batch"),
        ({"request_size": 47008}, "request_size=47008"),
        ({"request_size": "4KiB"}, "request_size=4KiB"),
        ({"collection_size": (0, 8192)}, "collection_size=..8KiB"),
        ({"collection_size": (4096, None)}, "collection_size=4KiB.."),
        ({"collection_size": (1024, 4096)}, "collection_size=1KiB..4KiB"),
        ({"collection_size": (0, None)}, ""),
        ({"request_size": None}, ""),
        ({"consistency": "eventual", "eventual": timedelta(milliseconds=250)}, "consistency=eventual(250ms)"),
        ({"spatiality": "strided(1MiB,4KiB)"}, "spatiality=strided(1MiB,4KiB)"),
        ({"spatiality": "strided", "stride": 1 << 20, "block": 4096}, "spatiality=strided(1MiB,4KiB)"),
        ({"atomicity": "unit", "unit": 4096}, "atomicity=unit(4KiB)"),
        ({"temporality": "bursty(30s)"}, "temporality=bursty(30s)"),
        ({}, ""),
    ],
)
def test_keywords_stand_for_controls(keywords: dict[str, object], text: str) -> None:
    assert normal_controls(**keywords) == text
    assert normal_controls(keywords) == text


def test_keywords_go_over_text() -> None:
    assert normal_controls("consistency=session,mutability=append", consistency="commit") == (
        "consistency=commit,mutability=append"
    )
    assert "consistency=commit" in normal_controls("consistency=commit", request_size=1)
    assert "persistence=durable" in normal_controls(profile="checkpoint")
    assert "checkpoint" in ioverbs.profiles()


def test_mistakes_are_explained() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'consistancy'; controls are profile, consistency"):
        normal_controls(consistancy="session")
    with pytest.raises(ioverbs.Invalid, match="session"):
        normal_controls(consistency="sesion")
    with pytest.raises(ValueError, match="its own keyword"):
        normal_controls(consistency="session,persistence=durable")
    with pytest.raises(TypeError, match="with a unit"):
        normal_controls(consistency="eventual", eventual=5)
    with pytest.raises(ValueError, match="a pair"):
        normal_controls(request_size=(1, 2, 3))
    with pytest.raises(ioverbs.Invalid, match="is no profile, did you mean \"checkpoint\""):
        normal_controls(profile="chekpoint")


def test_what_was_granted(ws: ioverbs.Workspace) -> None:
    with ws.create("c", consistency="session", request_size=47008, collection_size=(0, 1 << 20)) as c:
        granted = c.controls
        assert granted["consistency"] == "session"
        assert granted["request_size"] == (47008, 47008)
        assert granted["collection_size"] == (0, 1 << 20)
        assert granted["mutability"] == "overwrite"
        assert "consistency=session" in str(granted) and str(granted) in repr(granted)
        assert set(granted) >= {"persistence", "point", "atomicity", "concurrency", "temporality", "spatiality"}
        with ws.create("d", controls=granted) as d:
            assert dict(d.controls) == dict(granted)
        with ws.create("e", **granted) as e, ws.create("f", controls=str(granted)) as f:
            assert dict(e.controls) == dict(f.controls) == dict(granted)


def test_h1_the_largest_size_is_enforced(ws: ioverbs.Workspace) -> None:
    with ws.create("c", collection_size=(0, 100)) as c:
        c.write(0, bytes(100))
        with pytest.raises(ioverbs.FileTooBig) as e:
            c.write(100, b"x")
        assert e.value.clause == "H1"


def test_defaults_of_a_workspace(session: ioverbs.Session) -> None:
    ws = session.workspace("w", consistency="commit", controls="mutability=append")
    assert ws.defaults == "consistency=commit,mutability=append"
    with ws.create("c") as c, ws.create("d", consistency="session") as d:
        assert (c.controls["consistency"], c.controls["mutability"]) == ("commit", "append")
        assert d.controls["consistency"] == "session"
    ws.set(consistency="sequential")
    with ws.create("e") as e:
        assert e.controls["consistency"] == "sequential"


def test_checking_controls(session: ioverbs.Session) -> None:
    assert session.check_controls(consistency="session")["consistency"] == "session"
    ws = session.workspace("w", consistency="commit")
    assert session.check_controls(workspace=ws)["consistency"] == "commit"
    with pytest.raises(ioverbs.Refused) as e:
        session.check_controls(persistence="replicated")
    assert e.value.offer
    offered = session.check_controls(f"{e.value.offer}")
    assert offered["persistence"] != "replicated"

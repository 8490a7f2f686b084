# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import pickle
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction

import numpy as np
import pytest

import ioverbs
from ioverbs import Timestamp

NS = 1_767_225_600_123_456_789  # 2026-01-01T00:00:00.123456789Z
PLAIN = datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=timezone.utc)


class Colour(str, Enum):
    RED = "red"


def test_a_timestamp_keeps_nanoseconds() -> None:
    t = Timestamp.from_ns(NS)
    assert t.ns == NS and t.nanosecond == 789
    assert t.isoformat() == "2026-01-01T00:00:00.123456789+00:00"
    assert str(t) == "2026-01-01 00:00:00.123456789+00:00"
    assert eval(repr(t)) == t
    for again in (pickle.loads(pickle.dumps(t)), copy.copy(t), copy.deepcopy(t)):
        assert again.ns == NS and type(again) is Timestamp
    assert Timestamp.from_ns(-1).ns == -1
    assert Timestamp(2026, 1, 1).ns == NS - 123_456_789
    with pytest.raises(ValueError):
        Timestamp(2026, 1, 1, nanosecond=1000)


def test_a_timestamp_compares_with_datetimes() -> None:
    t, whole = Timestamp.from_ns(NS), Timestamp.from_ns(NS - 789)
    assert whole == PLAIN and hash(whole) == hash(PLAIN) and {PLAIN: 1}[whole] == 1
    assert t != PLAIN and t > PLAIN and PLAIN < t and t >= PLAIN and not t <= PLAIN
    assert whole < t <= Timestamp.from_ns(NS) < Timestamp.from_ns(NS + 1)
    assert t < PLAIN + timedelta(microseconds=1)
    berlin = t.astimezone(timezone(timedelta(hours=1)))
    assert berlin.hour == 1 and t - PLAIN == timedelta(0)
    with pytest.raises(TypeError):
        t < 5  # type: ignore[operator]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("text", "text"),
        ("", ""),
        ("é\0☃", "é\0☃"),
        (0, 0),
        (-(1 << 63), -(1 << 63)),
        ((1 << 63) - 1, (1 << 63) - 1),
        (True, True),
        (False, False),
        (2.5, 2.5),
        (float("inf"), float("inf")),
        (b"\0\xff", b"\0\xff"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"abc")[1:], b"bc"),
        (Timestamp.from_ns(NS), Timestamp.from_ns(NS)),
        (PLAIN, PLAIN),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), Timestamp(2026, 1, 1)),
        (datetime(1960, 1, 1, tzinfo=timezone.utc), datetime(1960, 1, 1, tzinfo=timezone.utc)),
        (np.int32(-7), -7),
        (np.uint64(7), 7),
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.float16(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.array(0.5, np.longdouble), 0.5),
        (np.bool_(True), True),
        (np.str_("s"), "s"),
        (np.bytes_(b"s"), b"s"),
        (np.array(3), 3),
        (np.datetime64("2026-01-01T00:00:00.123456789"), Timestamp.from_ns(NS)),
        (Fraction(1, 2), 0.5),
        (Decimal("1.5"), 1.5),
        (Colour.RED, "red"),
    ],
)
def test_o4_values_come_back_with_their_type(ws: ioverbs.Workspace, given: object, stored: object) -> None:
    with ws.create("c", {"k": given}) as c:  # type: ignore[dict-item]
        got = c.metadata["k"]
        assert got == stored and type(got) is (Timestamp if isinstance(stored, datetime) else type(stored))


def test_o4_not_a_number_may_be_stored(ws: ioverbs.Workspace) -> None:
    with ws.create("c", {"k": float("nan")}) as c:
        got = c.metadata["k"]
        assert got != got


@pytest.mark.parametrize("wrong", [None, [1], {"a": 1}, 1j, object(), date(2026, 1, 1), np.array([1, 2])])
def test_o4_other_types_are_refused(ws: ioverbs.Workspace, wrong: object) -> None:
    with pytest.raises(TypeError, match="metadata hold"):
        ws.create("c", {"k": wrong})  # type: ignore[dict-item]


@pytest.mark.parametrize("wrong", [1 << 63, datetime(2026, 1, 1), "\ud800", datetime(2500, 1, 1, tzinfo=timezone.utc)])
def test_o4_values_out_of_range_are_invalid(ws: ioverbs.Workspace, wrong: ioverbs.Value) -> None:
    with pytest.raises(ioverbs.Invalid) as e:
        ws.create("c", {"k": wrong})
    assert e.value.clause == "O4"


def test_o4_keys(ws: ioverbs.Workspace) -> None:
    with pytest.raises(TypeError, match="keys are str"):
        ws.create("c", {1: "a"})  # type: ignore[dict-item]
    for wrong in ("", "iov.size", "a" * 256):
        with pytest.raises(ioverbs.Invalid, match="O4"):
            ws.create("c", {wrong: 1})


class Endless:
    """What says that it is a number, and has nothing plainer to offer than itself."""

    dtype = np.dtype("int64")
    ndim = 0

    def item(self) -> Endless:
        return self


def test_o4_what_never_becomes_plain_is_refused(url: str) -> None:
    with ioverbs.open(url) as session:
        ws = session.workspace("w")
        with pytest.raises(TypeError, match="Endless"):
            ws.create("c", {"k": Endless()})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="Endless"):
            ws.find("k = ?", Endless())  # type: ignore[arg-type]
        assert ws.find("k = ?", np.longdouble(0.5)).all() == []  # type: ignore[arg-type]

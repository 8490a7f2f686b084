# SPDX-License-Identifier: Apache-2.0
"""Metadata values (O4), and times with nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import SupportsFloat, SupportsIndex

from ._errors import Invalid

Value = str | int | float | bool | bytes | datetime
"""What metadata can hold. Times are aware; they come back as :class:`Timestamp`. Integers have 64 bits. numpy scalars
are taken as the number, text, bytes or time that they are."""

Metadata = Mapping[str, Value]
"""Pairs of a key (1 to 255 bytes, not beginning with ``iov.``) and a value."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


class Timestamp(datetime):
    """An aware :class:`~datetime.datetime` that also has nanoseconds.

    It compares with any aware datetime, exactly. Arithmetic gives microseconds, as with datetimes.
    """

    __slots__ = ("_nanosecond",)
    _nanosecond: int

    def __new__(
        cls,
        year: SupportsIndex,
        month: SupportsIndex = 1,
        day: SupportsIndex = 1,
        hour: SupportsIndex = 0,
        minute: SupportsIndex = 0,
        second: SupportsIndex = 0,
        microsecond: SupportsIndex = 0,
        tzinfo: tzinfo | None = timezone.utc,
        *,
        fold: int = 0,
        nanosecond: int = 0,
    ) -> Timestamp:
        """As :class:`~datetime.datetime`, in UTC if no zone is given; `nanosecond` is 0 to 999."""
        if not 0 <= nanosecond <= 999:
            raise ValueError("nanosecond must be in 0..999: the rest belongs to microsecond")
        self = super().__new__(
            cls, year, month, day, hour, minute, second, microsecond, tzinfo or timezone.utc, fold=fold
        )
        self._nanosecond = nanosecond
        return self

    @classmethod
    def from_ns(cls, ns: int) -> Timestamp:
        """From nanoseconds since 1970, UTC."""
        microseconds, nanosecond = divmod(ns, 1000)
        t = _EPOCH + timedelta(microseconds=microseconds)
        return cls(
            t.year, t.month, t.day, t.hour, t.minute, t.second, t.microsecond, timezone.utc, nanosecond=nanosecond
        )

    @property
    def nanosecond(self) -> int:
        """Nanoseconds beyond the microsecond, 0 to 999."""
        return self._nanosecond

    @property
    def ns(self) -> int:
        """Nanoseconds since 1970, UTC."""
        return (_EPOCH - self) // -_MICROSECOND * 1000 + self._nanosecond

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        """As of a datetime, with nine digits of the second where nanoseconds are set."""
        if timespec != "auto" or not self._nanosecond:
            return super().isoformat(sep, timespec)
        text = super().isoformat(sep, "microseconds")
        head = len("0000-00-00T00:00:00.000000")
        return f"{text[:head]}{self._nanosecond:03}{text[head:]}"

    def __str__(self) -> str:
        return self.isoformat(sep=" ")

    def __repr__(self) -> str:
        return f"ioverbs.Timestamp.from_ns({self.ns})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, datetime):
            return NotImplemented
        return super().__eq__(other) and self._nanosecond == _nanosecond(other)

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __hash__(self) -> int:
        plain = super().__hash__()
        return hash((plain, self._nanosecond)) if self._nanosecond else plain

    def __lt__(self, other: date) -> bool:
        if not isinstance(other, datetime):
            return NotImplemented
        return super().__lt__(other) or (super().__eq__(other) and self._nanosecond < _nanosecond(other))

    def __le__(self, other: date) -> bool:
        return NotImplemented if not isinstance(other, datetime) else not other < self

    def __gt__(self, other: date) -> bool:
        if not isinstance(other, datetime):
            return NotImplemented
        return super().__gt__(other) or (super().__eq__(other) and self._nanosecond > _nanosecond(other))

    def __ge__(self, other: date) -> bool:
        return NotImplemented if not isinstance(other, datetime) else not other > self

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        return Timestamp.from_ns, (self.ns,)


def _nanosecond(t: datetime) -> int:
    return t._nanosecond if isinstance(t, Timestamp) else 0


def time_ns(t: datetime) -> int:
    """Nanoseconds since 1970 of an aware datetime."""
    if isinstance(t, Timestamp):
        return t.ns
    if t.utcoffset() is None:
        raise Invalid(f"{t!r} has no time zone: times are UTC; say datetime(…, tzinfo=timezone.utc)", "O4")
    return (t - _EPOCH) // _MICROSECOND * 1000


def normal(value: object) -> tuple[bool, object]:
    """What the native half stores for a value that is none of the plain types: whether it is a time, and a plain one."""
    if isinstance(value, datetime):
        return True, time_ns(value)
    if isinstance(value, (bytearray, memoryview)):
        return False, bytes(value)
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind is not None and getattr(value, "ndim", None) == 0:
        if kind == "M":
            return True, int(value.astype("datetime64[ns]").astype("int64"))  # type: ignore[attr-defined]
        if kind == "f":
            # By float: item() of what is longer than a double is that again.
            return False, float(value)  # type: ignore[arg-type]
        if kind in "biuSU":
            return False, value.item()  # type: ignore[attr-defined]
    if kind is None and isinstance(value, SupportsIndex):
        return False, value.__index__()
    if kind is None and isinstance(value, SupportsFloat) and not isinstance(value, complex):
        return False, float(value)
    raise TypeError(
        f"metadata hold str, int, float, bool, bytes and aware datetimes, not {type(value).__name__}: "
        "store it as text, or as a collection"
    )


def lifetime_text(lifetime: str | timedelta | None) -> str | None:
    """A lifetime as the text that the library reads."""
    if not isinstance(lifetime, timedelta):
        return lifetime
    if lifetime <= timedelta(0):
        raise Invalid("lifetime: a lease needs a time above 0")
    return f"lease({lifetime // _MICROSECOND}us)"

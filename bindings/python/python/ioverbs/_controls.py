# SPDX-License-Identifier: Apache-2.0
"""Controls: what a program wants promised, as keywords or as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, TypedDict

from . import _ioverbs

Limit = int | str | tuple[int | None, int | None]
"""Bytes: one number (``47008``, ``"4KiB"``), or the smallest and the largest (``(0, 8192)``; 0 or ``None`` = unknown)."""


class ControlKeywords(TypedDict, total=False):
    """The keywords that stand for controls. ``docs/semantics/controls.md`` has every value."""

    profile: str
    """``posix``, ``checkpoint``, ``dataset``, ``log``, ``scratch`` or ``exchange``: sets what the others leave unset."""
    consistency: str
    """``sequential``, ``commit``, ``session``, ``eventual`` or ``eventual(5s)``: when others see a write (C1-C7)."""
    eventual: str | timedelta
    """T of ``eventual``."""
    concurrency: str
    """``shared`` or ``exclusive`` (X1-X3)."""
    mutability: str
    """``overwrite``, ``append`` or ``immutable`` (M2-M4)."""
    atomicity: str
    """``none``, ``unit``, ``unit(4KiB)`` or ``publication`` (M1)."""
    unit: int | str
    """n of ``unit``, in bytes."""
    persistence: str
    """``volatile``, ``process``, ``durable`` or ``replicated``, each also with its point: ``durable@close`` (P1-P5)."""
    point: str
    """``close``, ``request``, ``batch`` or ``explicit``: from when on it persists (P5)."""
    temporality: str
    """``multiple``, ``once``, ``bursty`` or ``bursty(30s)`` (H2)."""
    drain: str | timedelta
    """Deadline of the drain of ``bursty``."""
    spatiality: str
    """``any``, ``contiguous``, ``strided(1MiB,4KiB)`` or ``random`` (H2)."""
    stride: int | str
    """Bytes between the starts of blocks of ``strided``."""
    block: int | str
    """Bytes of a block of ``strided``."""
    request_size: Limit | None
    """Bytes of one read or write (H1)."""
    collection_size: Limit | None
    """Bytes of the collection; the largest is enforced (H1)."""


_NAMES = tuple(ControlKeywords.__annotations__)


class Controls(Mapping[str, Any]):
    """The controls that hold for a handle. A mapping of keywords, so that ``ws.create(**c.controls)`` asks for the same
    again; ``str()`` is the text form. Sizes are pairs of numbers, or ``None`` where nothing is known."""

    __slots__ = ("_pairs", "_text")

    def __init__(self, pairs: dict[str, Any], text: str) -> None:
        self._pairs = pairs
        self._text = text

    def __getitem__(self, name: str) -> Any:
        return self._pairs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<ioverbs.Controls {self._text}>"


def _plain(name: str, value: object) -> str:
    text = str(value)
    depth = 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "=" or (c == "," and depth == 0):
            raise ValueError(f"{name}={text!r}: the value of one control has no {c!r}; give each control its own keyword")
    return text


def _size(name: str, value: object) -> str:
    if isinstance(value, tuple):
        if len(value) != 2:
            raise ValueError(f"{name}={value!r}: sizes are one number, or a pair of the smallest and the largest")
        low, high = ("" if not part else _plain(name, part) for part in value)
        return f"{low}..{high}"
    return _plain(name, value)


def _time(name: str, value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)}us"
    if isinstance(value, (int, float)):
        raise TypeError(f"{name}={value!r}: a time is text with a unit, as in '5s', or a timedelta")
    return _plain(name, value)


def controls_text(function: str, controls: str | Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> str | None:
    """Text for controls given as text or mapping, and as keywords, which go over it in a line of their own; ``None`` if
    there are none."""
    if controls is None and not keywords:
        return None
    lines = []
    if isinstance(controls, Mapping):
        keywords = {**controls, **keywords}
    elif controls is not None:
        lines.append(controls)
    parts = []
    for name, value in keywords.items():
        if name not in _NAMES:
            raise TypeError(
                f"{function}() got an unexpected keyword argument {name!r}; controls are {', '.join(_NAMES)}"
            )
        if value is None:
            continue
        if name in ("request_size", "collection_size"):
            text = _size(name, value)
        elif name in ("eventual", "drain"):
            text = _time(name, value)
        else:
            text = _plain(name, value)
        if text != "..":
            parts.append(f"{name}={text}")
    return "\n".join([*lines, ",".join(parts)])


def profiles() -> list[str]:
    """The names of all profiles."""
    return _ioverbs.profiles()


def normal_controls(controls: str | Mapping[str, Any] | None = None, /, **keywords: Any) -> str:
    """Reads controls and writes them in their usual text form, profiles spelled out. Raises :class:`Invalid`."""
    return _ioverbs.normal_controls(controls_text("normal_controls", controls, keywords) or "")

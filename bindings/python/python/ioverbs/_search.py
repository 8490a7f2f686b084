# SPDX-License-Identifier: Apache-2.0
"""Searches: descriptions of them, and the stream of what they find."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType

from ._errors import Invalid
from ._ioverbs import Cursor
from ._results import Entry

_FIRST, _LATER = 128, 2048
"""Results to take at a time: few at first, since many loops end early."""


def key_list(keys: str | Iterable[str]) -> list[str] | None:
    """Keys to return, from one or several."""
    return [keys] if isinstance(keys, str) else list(keys) or None


def most(limit: int | None) -> int:
    """The most results, for the native half."""
    if limit is None:
        return 0
    if limit < 1:
        raise Invalid(f"limit={limit}: at least 1, or None for all")
    return limit


class Search(Iterator[Entry]):
    """The results of a search, in order, fetched as the loop goes on.

    It sees the store as of its start. Ends by itself at the last result; :meth:`close` or a ``with`` block ends it
    earlier. One that is not used for 30 s raises :class:`Stale`: search again. One thread at a time.
    """

    __slots__ = ("_cursor", "_max", "_page", "__weakref__")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._page: deque[Entry] = deque()
        self._max = _FIRST

    def __iter__(self) -> Search:
        return self

    def __next__(self) -> Entry:
        if not self._page and not self._fetch():
            raise StopIteration
        return self._page.popleft()

    def _fetch(self) -> bool:
        """Fetches more results; ``False``: there are no more."""
        self._page.extend(self._cursor.next(self._max))
        self._max = _LATER
        return bool(self._page)

    def all(self) -> list[Entry]:
        """The results that are left, as a list."""
        return list(self)

    def one(self) -> Entry:
        """The one result; ``ValueError`` if there are none or several."""
        found = [entry for entry, _ in zip(self, range(2))]
        self.close()
        if len(found) != 1:
            raise ValueError("the search found nothing" if not found else "the search found more than one")
        return found[0]

    def close(self) -> None:
        """Ends the search."""
        self._page.clear()
        self._cursor.close()

    def __enter__(self) -> Search:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self._cursor.close()

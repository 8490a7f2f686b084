# SPDX-License-Identifier: Apache-2.0
"""Search results for ``async for``."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .._results import Entry
from .._search import Search as _Search
from ._run import in_executor


class Search(AsyncIterator[Entry]):
    """The results of a search, for ``async for``: see :class:`ioverbs.Search`."""

    __slots__ = ("_search",)

    def __init__(self, search: _Search) -> None:
        self._search = search

    def __aiter__(self) -> Search:
        return self

    async def __anext__(self) -> Entry:
        if not self._search._page and not await in_executor(self._search._fetch):
            raise StopAsyncIteration
        return self._search._page.popleft()

    async def all(self) -> list[Entry]:
        """The results that are left, as a list."""
        return [entry async for entry in self]

    def close(self) -> None:
        """Ends the search."""
        self._search.close()

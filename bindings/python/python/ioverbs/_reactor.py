# SPDX-License-Identifier: Apache-2.0
"""Wakes coroutines when requests complete: the session's event descriptor in the event loops that wait for it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from . import _ioverbs


class Reactor:
    """Who waits for which request of one session, in whatever event loops.

    A loop watches the descriptor only while somebody in it waits. Whichever loop wakes first looks at all requests that
    are waited for, and tells also those who wait in other loops. Requests are driven by the library's own thread, never
    by a loop.
    """

    __slots__ = ("_session", "_lock", "_waiting", "_watching")

    def __init__(self, session: _ioverbs.Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Future[None], _ioverbs.Request] = {}
        self._watching: dict[asyncio.AbstractEventLoop, int] = {}

    async def wait(self, request: _ioverbs.Request) -> None:
        """Returns when the request has completed."""
        if not request.done:
            await self._signal(request)
        # Lets go of the buffers.
        request.test()

    async def _signal(self, request: _ioverbs.Request) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        descriptor = self._session.event_fd()
        with self._lock:
            self._waiting[future] = request
            watching = self._watching.get(loop, 0)
            self._watching[loop] = watching + 1
        if watching == 0:
            loop.add_reader(descriptor, self._wake)
        try:
            # It may have completed before anybody watched.
            if not request.done:
                await future
        finally:
            with self._lock:
                self._waiting.pop(future, None)
                self._watching[loop] -= 1
                if last := self._watching[loop] == 0:
                    del self._watching[loop]
            if last:
                loop.remove_reader(descriptor)

    def _wake(self) -> None:
        # In this order: what completes after the descriptor was cleared raises it again.
        self._session.clear_event()
        self.look()

    def look(self) -> None:
        """Tells those whose requests have completed."""
        if not self._waiting:
            return
        with self._lock:
            done = [future for future, request in self._waiting.items() if request.done]
            for future in done:
                del self._waiting[future]
        for future in done:
            # A loop that was closed has nobody who waits any more; those in others do.
            with suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_finish, future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

# SPDX-License-Identifier: Apache-2.0
"""Wakes coroutines when requests complete: the session's event descriptor in the event loops that wait for it."""

from __future__ import annotations

import asyncio
import threading

from . import _ioverbs


class Reactor:
    """Who waits for which request of one session, in whatever event loops.

    A loop watches the descriptor only while somebody in it waits. Whichever loop wakes first takes all completions, and
    passes on those of the others.
    """

    __slots__ = ("_session", "_lock", "_waiting", "_watching")

    def __init__(self, session: _ioverbs.Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = {}
        self._watching: dict[asyncio.AbstractEventLoop, int] = {}

    async def wait(self, token: int, request: _ioverbs.Request) -> None:
        """Returns when the request has completed."""
        while not request.test():
            await self._signal(token, request)

    async def _signal(self, token: int, request: _ioverbs.Request) -> None:
        """Returns when somebody was told of the request."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        descriptor = self._session.event_fd()
        with self._lock:
            self._waiting[token] = (loop, future)
            watching = self._watching.get(loop, 0)
            self._watching[loop] = watching + 1
        if watching == 0:
            loop.add_reader(descriptor, self._wake)
        try:
            # It may have completed before anybody watched.
            if not request.test():
                await future
        finally:
            with self._lock:
                self._waiting.pop(token, None)
                self._watching[loop] -= 1
                if last := self._watching[loop] == 0:
                    del self._watching[loop]
            if last:
                loop.remove_reader(descriptor)

    def told(self, token: int) -> None:
        """Somebody else saw the request complete, so that the session will not tell."""
        if not self._waiting:
            return
        with self._lock:
            waiting = self._waiting.pop(token, None)
        if waiting is not None:
            loop, future = waiting
            loop.call_soon_threadsafe(_finish, future)

    def _wake(self) -> None:
        while tokens := self._session.completed():
            for token in tokens:
                self.told(token)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

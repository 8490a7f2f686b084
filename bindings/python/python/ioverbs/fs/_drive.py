# SPDX-License-Identifier: Apache-2.0
"""One text of what is done for two ways to wait: operations are coroutines that wait through a :class:`Drive` only, so that those
who block can run them to their end in one step, without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from .._batch import Batch, Progress
from ..aio._run import completed

T = TypeVar("T")


class Drive(Protocol):
    """How to wait."""

    progress: Progress
    """Who drives a batch."""

    async def batch(self, batch: Batch) -> None:
        """Starts a batch and waits until it has completed."""

    async def call(self, f: Callable[..., T], *arguments: Any) -> T:
        """Calls what blocks."""


class Blocking:
    """Waits in the thread that asks."""

    progress: Progress = "caller"

    async def batch(self, batch: Batch) -> None:
        batch.start().wait()

    async def call(self, f: Callable[..., T], *arguments: Any) -> T:
        return f(*arguments)


class Awaiting:
    """Waits in an event loop. What has no other form than a blocking one runs in a thread of the loop's executor."""

    progress: Progress = "auto"

    async def batch(self, batch: Batch) -> None:
        request = batch.start()
        await completed(request._reactor, request._native)

    async def call(self, f: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.to_thread(f, *arguments)


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits through :class:`Blocking`."""
    try:
        coroutine.send(None)
    except StopIteration as e:
        result: T = e.value
        return result
    coroutine.close()
    raise RuntimeError("a blocking operation waited for an event loop")

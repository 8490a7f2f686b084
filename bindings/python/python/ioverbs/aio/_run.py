# SPDX-License-Identifier: Apache-2.0
"""Runs operations in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _ioverbs
from .._ioverbs import Op

if TYPE_CHECKING:
    from .._reactor import Reactor
    from ._session import Session

T = TypeVar("T")
_STOP = 1.0
"""What a cancelled operation gets to stop in, in seconds."""


async def completed(reactor: Reactor, request: _ioverbs.Request) -> None:
    """Waits for a request, which is asked to give up when the task is cancelled."""
    if not request.done:
        try:
            await reactor.wait(request)
        except asyncio.CancelledError:
            request.cancel()
            with suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(reactor.wait(request), _STOP)
            request.abandon()
            raise


async def run(session: Session, *ops: Op) -> Any:
    """Runs operations, of which a failing one stops those behind it, and returns the result of the first."""
    batch = _ioverbs.Batch(session.blocking._native, "stop" if len(ops) > 1 else None, "auto", None, 0, None)
    for op in ops:
        batch.push(op)
    request = batch.start()
    await completed(session.blocking._reactor, request)
    for i in range(len(ops)):
        error = request.status(i)[2]
        if error is not None:
            raise error
    return request.status(0)[4]


async def in_executor(f: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    """Runs a blocking call in a thread of the loop's executor."""
    return await asyncio.to_thread(f, *arguments, **keywords)

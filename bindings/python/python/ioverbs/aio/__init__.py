# SPDX-License-Identifier: Apache-2.0
"""The same with ``await``: for programs in an :mod:`asyncio` event loop.

Operations are started at once and completed by the library; the loop is woken through the session's event descriptor. No
second loop and no pool of threads moves bytes. Small work on memory is done before the call returns, so that it never
waits for the loop. Only opening stores and workspaces, and fetching more results, run in the loop's executor.

>>> import asyncio
>>> from ioverbs import aio
>>> async def main() -> bytes:
...     async with await aio.open("mem:") as session:
...         ws = await session.workspace("aio-example")
...         async with await ws.create("run_1", {"temperature": 310}) as c:
...             await c.write(0, b"hello")
...         c = await ws.open("run_1")
...         return await c.read(0, 5)
>>> asyncio.run(main())
b'hello'

A cancelled task asks its operation to give up and waits for it up to a second; buffers of one that goes on all the same
are kept until it has ended.
"""

from ._handles import Collection, Lock, MetadataView
from ._search import Search
from ._session import Batch, Session, open
from ._workspace import Group, Workspace

__all__ = ["Batch", "Collection", "Group", "Lock", "MetadataView", "Search", "Session", "Workspace", "open"]

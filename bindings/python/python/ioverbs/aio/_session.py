# SPDX-License-Identifier: Apache-2.0
"""Sessions and batches of an event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Unpack
from uuid import UUID

from .. import _session as _blocking
from .._batch import Batch as _Batch, OnError, Progress
from .._controls import ControlKeywords
from .._values import Metadata, Value
from ._run import in_executor
from ._search import Search
from ._workspace import Workspace


async def open(
    url: str | None = None,
    *,
    readonly: bool = False,
    direct: bool = True,
    cache: bool = True,
    start: bool = True,
    deadline: float = 60.0,
    program: str | None = None,
) -> Session:
    """Opens a store: see :func:`ioverbs.open`."""
    arguments = {"readonly": readonly, "direct": direct, "cache": cache, "start": start, "deadline": deadline}
    return Session(await in_executor(_blocking.open, url, program=program, **arguments))


class Batch(_Batch):
    """A batch (:class:`ioverbs.Batch`) for ``async with``; its ``start()`` returns a request to be awaited."""

    def __enter__(self) -> Batch:
        raise TypeError("a batch of ioverbs.aio is for 'async with'")

    async def __aenter__(self) -> Batch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is None:
            await (self.request or self.start())


class Session:
    """See :class:`ioverbs.Session`. It may be used in several loops and threads."""

    __slots__ = ("_session", "__weakref__")

    def __init__(self, session: _blocking.Session) -> None:
        self._session = session

    @property
    def url(self) -> str:
        """The store's URL."""
        return self._session.url

    @property
    def blocking(self) -> _blocking.Session:
        """The same session, with blocking calls."""
        return self._session

    async def workspace(
        self,
        name: str | bytes | UUID,
        create: bool = True,
        *,
        exist_ok: bool = True,
        metadata: Metadata | None = None,
        indexes: str | Iterable[str] | None = None,
        quota_bytes: int | None = None,
        quota_collections: int | None = None,
        expires: datetime | None = None,
        access: str | None = None,
        owner: str | int | None = None,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> Workspace:
        """See :meth:`ioverbs.Session.workspace`."""
        made = await in_executor(
            self._session.workspace,
            name,
            create,
            exist_ok=exist_ok,
            metadata=metadata,
            indexes=indexes,
            quota_bytes=quota_bytes,
            quota_collections=quota_collections,
            expires=expires,
            access=access,
            owner=owner,
            controls=controls,
            **keywords,
        )
        return Workspace(self, made._native)

    async def workspaces(
        self,
        predicate: str | None = None,
        *params: Value,
        order: str | None = None,
        limit: int | None = None,
        keys: str | Iterable[str] = (),
    ) -> Search:
        """See :meth:`ioverbs.Session.workspaces`."""
        search = self._session.workspaces
        return Search(await in_executor(search, predicate, *params, order=order, limit=limit, keys=keys))

    async def delete_workspace(self, name: str | bytes | UUID) -> None:
        """See :meth:`ioverbs.Session.delete_workspace`."""
        await in_executor(self._session.delete_workspace, name)

    def batch(
        self,
        *,
        error: OnError | None = None,
        id: UUID | None = None,
        deadline: float | None = None,
        progress: Progress = "auto",
        check: bool = True,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> Batch:
        """See :meth:`ioverbs.Session.batch`."""
        s = self._session
        return Batch(s._native, s._reactor, error, progress, id, deadline, check, controls, keywords)

    def counters(self) -> dict[str, int]:
        """See :meth:`ioverbs.Session.counters`."""
        return self._session.counters()

    async def close(self) -> None:
        """See :meth:`ioverbs.Session.close`."""
        await in_executor(self._session.close)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        await in_executor(self._session.__exit__, kind, e, tb)

    def __repr__(self) -> str:
        return f"<ioverbs.aio.Session of {self.url}>"

# SPDX-License-Identifier: Apache-2.0
"""Collections of an event loop, and what groups have in common with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack
from uuid import UUID

from .._controls import ControlKeywords, Controls, controls_text
from .._handles import EXTENTS, LEASE, lock_op
from .._ioverbs import Handle, Op
from .._place import name_text
from .._results import Extent, Stat
from .._values import Metadata, Value, lifetime_text, time_ns
from ._run import run

if TYPE_CHECKING:
    from .._buffers import ReadableBuffer, WriteableBuffer

    from ._session import Session
    from ._workspace import Group, Workspace


class MetadataView:
    """The metadata of one object, in the store: see :class:`ioverbs.MetadataView`."""

    __slots__ = ("_handle", "_session")

    def __init__(self, handle: Handle, session: Session) -> None:
        self._handle = handle
        self._session = session

    async def get(self, key: str) -> Value:
        """One value, system keys too. :class:`ioverbs.NotFound`, which is a ``KeyError``."""
        value: Value = await run(self._session, Op.metadata_get(self._handle, key))
        return value

    async def update(self, other: Metadata | Iterable[tuple[str, Value]] = (), /, **pairs: Value) -> None:
        """Adds or replaces pairs in one request; others stay."""
        await run(self._session, Op.metadata_put(self._handle, {**dict(other), **pairs}))

    async def remove(self, key: str) -> None:
        """Removes one pair. :class:`ioverbs.NotFound`."""
        await run(self._session, Op.metadata_remove(self._handle, key))

    async def copy(self) -> dict[str, Value]:
        """All user pairs."""
        pairs: dict[str, Value] = await run(self._session, Op.metadata_list(self._handle))
        return pairs


class Object(Handle):
    """What collections and groups have in common."""

    __slots__ = ("_at", "_name", "_locks")
    _group: ClassVar[bool] = False
    _at: Workspace
    _name: str | None
    _locks: list[int]

    @classmethod
    def _pending(cls, workspace: Workspace, name: str | bytes | UUID | None) -> Self:
        self = cls(workspace._native, cls._group)
        self._at = workspace
        self._name = name_text(name)
        self._locks = []
        return self

    @property
    def workspace(self) -> Workspace:
        """The workspace it is in."""
        return self._at

    @property
    def name(self) -> str | None:
        """The name by which it was created or opened."""
        return self._name

    @property
    def controls(self) -> Controls:
        """See :attr:`ioverbs.Collection.controls`."""
        return Controls(*self.effective())

    @property
    def metadata(self) -> MetadataView:
        """Its metadata, in the store."""
        return MetadataView(self, self._at.session)

    async def _run(self, op: Op) -> Any:
        return await run(self._at.session, op)

    async def stat(self) -> Stat:
        """See :meth:`ioverbs.Collection.stat`."""
        stat: Stat = await self._run(Op.stat(self))
        return stat

    async def setattr(
        self,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        mtime: datetime | None = None,
        lifetime: str | timedelta | None = None,
    ) -> None:
        """See :meth:`ioverbs.Collection.setattr`."""
        await self._run(Op.setattr(self, mode, uid, gid, None if mtime is None else time_ns(mtime), lifetime_text(lifetime)))

    async def link(self, name: str | bytes, *, group: Group | None = None) -> None:
        """See :meth:`ioverbs.Collection.link`."""
        await self._run(Op.link(self, group, name))

    async def lock(
        self,
        offset: int = 0,
        length: int | None = None,
        *,
        exclusive: bool = True,
        wait: bool = True,
        lease: float = LEASE,
        owner: int | None = None,
    ) -> Lock:
        """See :meth:`ioverbs.Collection.lock`: ``async with await c.lock(): …``."""
        own, op = lock_op(self, offset, length, exclusive, wait, lease, owner)
        await self._run(op)
        self._locks.append(own)
        return Lock(self, offset, length, own)

    async def commit(self) -> None:
        """See :meth:`ioverbs.Collection.commit`."""
        await self._run(Op.commit(self))

    async def persist(self) -> None:
        """See :meth:`ioverbs.Collection.persist`."""
        await self._run(Op.persist(self))

    async def close(self) -> None:
        """See :meth:`ioverbs.Collection.close`."""
        if self.closable():
            try:
                await self._run(Op.close(self))
            finally:
                # Behind it: who gets a lock then finds what was written under it. This waits for nobody.
                for owner in set(self._locks):
                    self.release_locks(owner)
                self._locks.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<ioverbs.aio.{type(self).__name__} {self._name!r} in {self._at.name!r}>"


class Lock:
    """An advisory lock, taken by :meth:`Collection.lock`. Leaving an ``async with`` block gives it back."""

    __slots__ = ("_handle", "offset", "length", "owner", "_held")

    def __init__(self, handle: Object, offset: int, length: int | None, owner: int) -> None:
        self._handle = handle
        self.offset = offset
        self.length = length
        self.owner = owner
        self._held = True

    @property
    def held(self) -> bool:
        """Whether it was not given back yet."""
        return self._held

    async def release(self) -> None:
        """Gives it back. Again: does nothing."""
        if self._held:
            self._held = False
            if self.owner in self._handle._locks:
                self._handle._locks.remove(self.owner)
            await self._handle._run(Op.unlock(self._handle, self.offset, self.length or 0, self.owner))

    async def __aenter__(self) -> Lock:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.release()


class Collection(Object):
    """See :class:`ioverbs.Collection`. Buffers are in use until the call has returned."""

    __slots__ = ()

    async def size(self) -> int:
        """Its present length in bytes."""
        return (await self.stat()).size

    async def write(self, offset: int, data: ReadableBuffer) -> int:
        """See :meth:`ioverbs.Collection.write`."""
        n: int = await self._run(Op.write(self, offset, data))
        return n

    async def writev(self, chunks: Iterable[tuple[int, ReadableBuffer]]) -> int:
        """See :meth:`ioverbs.Collection.writev`."""
        n: int = await self._run(Op.writev(self, list(chunks)))
        return n

    async def read(self, offset: int = 0, n: int | None = None) -> bytes:
        """See :meth:`ioverbs.Collection.read`."""
        if n is None:
            n = max(await self.size() - offset, 0)
        data: bytes = await self._run(Op.read(self, offset, n))
        return data

    async def readinto(self, offset: int, buffer: WriteableBuffer) -> int:
        """See :meth:`ioverbs.Collection.readinto`."""
        n: int = await self._run(Op.readinto(self, offset, buffer))
        return n

    async def readv(self, chunks: Iterable[tuple[int, WriteableBuffer]]) -> int:
        """See :meth:`ioverbs.Collection.readv`."""
        n: int = await self._run(Op.readv(self, list(chunks)))
        return n

    async def append(self, data: ReadableBuffer) -> int:
        """See :meth:`ioverbs.Collection.append`."""
        offset: int = await self._run(Op.append(self, data))
        return offset

    async def truncate(self, size: int) -> None:
        """See :meth:`ioverbs.Collection.truncate`."""
        await self._run(Op.truncate(self, size))

    async def punch(self, offset: int, length: int) -> None:
        """See :meth:`ioverbs.Collection.punch`."""
        await self._run(Op.punch(self, offset, length))

    async def allocate(self, offset: int, length: int, *, keep_size: bool = False) -> None:
        """See :meth:`ioverbs.Collection.allocate`."""
        await self._run(Op.allocate(self, offset, length, keep_size))

    async def extents(self, offset: int = 0, length: int | None = None) -> list[Extent]:
        """See :meth:`ioverbs.Collection.extents`."""
        end = max(await self.size(), offset) if length is None else offset + length
        found: list[Extent] = []
        while offset < end:
            page: list[Extent] = await self._run(Op.extents(self, offset, end - offset, EXTENTS))
            found += page
            if len(page) < EXTENTS:
                break
            offset = page[-1].offset + page[-1].length
        return found

    async def copy_from(self, src: Collection, src_offset: int = 0, offset: int = 0, length: int | None = None) -> int:
        """See :meth:`ioverbs.Collection.copy_from`."""
        length = max(await src.size() - src_offset, 0) if length is None else length
        n: int = await self._run(Op.copy(src, src_offset, self, offset, length))
        return n

    async def seal(self) -> None:
        """See :meth:`ioverbs.Collection.seal`."""
        await self._run(Op.seal(self))

    async def set(self, controls: str | Mapping[str, Any] | None = None, **keywords: Unpack[ControlKeywords]) -> None:
        """See :meth:`ioverbs.Collection.set`."""
        await self._run(Op.set(self, controls_text("set", controls, keywords) or ""))

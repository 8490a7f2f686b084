# SPDX-License-Identifier: Apache-2.0
"""Collections and groups, with blocking calls."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, Unpack, overload
from uuid import UUID

from . import _ioverbs, _pickle
from ._controls import ControlKeywords, Controls, controls_text
from ._errors import Invalid, NotFound
from ._file import CollectionFile, binary_mode
from ._ioverbs import BlockingHandle, Handle, Op, run
from ._metadata import MetadataView
from ._place import Place, name_text
from ._results import Extent, RangeLock, Stat
from ._values import lifetime_text, time_ns

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from ._buffers import ReadableBuffer, WriteableBuffer

    from ._search import Search
    from ._workspace import Workspace
    from ._values import Metadata, Value

_OWNERS = itertools.count((os.getpid() << 32) + 1)
EXTENTS = 1024
"""Extents to ask for at a time."""
_BUFFER = 1 << 20
"""Bytes that a buffered file moves at a time."""

LEASE = 30.0
"""What a dead owner still keeps a lock, in seconds."""


def lock_op(
    c: Handle, offset: int, length: int | None, exclusive: bool, wait: bool, lease: float, owner: int | None
) -> tuple[int, Op]:
    """The operation that takes a lock, and the lock's owner."""
    if length == 0:
        raise Invalid("a lock on no bytes: leave length out for a lock to the end", "O11")
    own = next(_OWNERS) if owner is None else owner
    return own, Op.lock(c, offset, length or 0, exclusive, not wait, own, round(lease * 1e9))


class _Object(BlockingHandle):
    """What collections and groups have in common."""

    __slots__ = ("_at", "_name", "_locks")
    _group: ClassVar[bool] = False
    _at: Workspace
    _name: str | None
    _locks: list[int]

    @classmethod
    def _pending(cls, workspace: Workspace, name: str | bytes | UUID | None) -> Self:
        """A pending handle: the operation that makes it is to follow."""
        self = cls(workspace._workspace(), cls._group)
        self._at = workspace
        self._name = name_text(name)
        self._locks = []
        return self

    @classmethod
    def _unopened(cls, workspace: Workspace, name: str | bytes, uuid: UUID) -> Self:
        """A handle that names what is there without opening it, so that it is in nobody's way: for names below it, and for facts."""
        self = cls(workspace._workspace(), cls._group, uuid)
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
        """The name by which it was created or opened; ``None`` = by UUID, or it has none."""
        return self._name

    @property
    def controls(self) -> Controls:
        """What was granted: a mapping, and as ``str()`` text. :class:`Busy` while the handle is pending."""
        return Controls(*self.effective())

    @property
    def metadata(self) -> MetadataView:
        """Its metadata: a mapping over the store."""
        return MetadataView(self, self._at.session._native)

    def stat(self) -> Stat:
        """The facts, as fresh as a read through this handle."""
        stat: Stat = run(Op.stat(self))
        return stat

    def setattr(
        self,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        mtime: datetime | None = None,
        lifetime: str | timedelta | None = None,
    ) -> None:
        """Sets permission bits, owner, group, time of the last change or lifetime, as the owner (O4).

        :param lifetime: When a collection goes if nobody deletes it: ``"process"`` with this process and those that
            joined it, a :class:`~datetime.timedelta` or ``"lease(10min)"`` so long after it was last open, ``"workspace"``
            never.
        :raises Denied:
        """
        run(Op.setattr(self, mode, uid, gid, None if mtime is None else time_ns(mtime), lifetime_text(lifetime)))

    def link(self, name: str | bytes, *, group: Group | None = None) -> None:
        """Gives it one more name, or its first, in `group` (``None`` = the root). :class:`Exists`."""
        run(Op.link(self, group, name))

    def commit(self) -> None:
        """Visibility: publishes what was written through this handle (C2). :class:`Fenced`."""
        run(Op.commit(self))

    def persist(self) -> None:
        """Survival: returns when what was written has its persistence level (P5). What failed once stays failed (P8)."""
        run(Op.persist(self))

    def lock(
        self,
        offset: int = 0,
        length: int | None = None,
        *,
        exclusive: bool = True,
        wait: bool = True,
        lease: float = LEASE,
        owner: int | None = None,
    ) -> Lock:
        """Takes an advisory lock on `length` bytes from `offset` on (``None``: to the end, wherever that moves), which
        reads and writes do not look at and which publishes nothing (O11). The result gives it back at the end of a
        ``with`` block, or by ``release()``.

        Each lock has an owner of its own, so that two in one process exclude each other too, unless `owner` says
        otherwise. ``wait=False``: :class:`Busy` instead of waiting, else :class:`Timeout` at the session's deadline."""
        own, op = lock_op(self, offset, length, exclusive, wait, lease, owner)
        run(op)
        self._locks.append(own)
        return Lock(self, offset, length, own)

    def locked(
        self, offset: int = 0, length: int | None = None, *, exclusive: bool = True, owner: int = 0
    ) -> RangeLock | None:
        """A lock that stands in the way of such a one; ``None``: there is none."""
        try:
            found: RangeLock = run(Op.lock_query(self, offset, length or 0, exclusive, owner))
        except NotFound:
            return None
        return found

    def close(self) -> None:
        """Commits, persists as the point says, and ends the handle, whatever happens; an error says what was not
        published or persisted (C3, P8). Its locks end with it. Closing again does nothing."""
        try:
            super().close()
        finally:
            # Behind it: who gets a lock then finds what was written under it.
            if self.closed:
                for owner in set(self._locks):
                    self.release_locks(owner)
                self._locks.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _pickle.handle(self)

    def __repr__(self) -> str:
        state = " closed" if self.closed else " pending" if self.pending else ""
        name = self._name if self._name is not None else "without a name"
        return f"<ioverbs.{type(self).__name__} {name!r} in {self._at.name!r}{state}>"


class Collection(_Object):
    """A byte-addressable object with typed metadata (O2). Any thread, any time.

    Made by :meth:`Workspace.create` and :meth:`Workspace.open`. Leaving a ``with`` block closes it. Buffers are any
    objects with contiguous memory: bytes, bytearray, memoryview, array, numpy arrays of any type; their bytes are moved
    without a copy and without the interpreter's lock, and may not be changed by others meanwhile.
    """

    __slots__ = ()

    @property
    def size(self) -> int:
        """Its present length in bytes; asks the store."""
        return self.length()

    def writev(self, chunks: Iterable[tuple[int, ReadableBuffer]]) -> int:
        """Writes several buffers, each at its offset, as one request, and returns the number of bytes."""
        n: int = run(Op.writev(self, list(chunks)))
        return n

    def readv(self, chunks: Iterable[tuple[int, WriteableBuffer]]) -> int:
        """Fills several buffers, each from its offset, as one request, and returns the number of bytes."""
        n: int = run(Op.readv(self, list(chunks)))
        return n

    def view(self, offset: int, n: int) -> memoryview:
        """Shows stored bytes in place, read-only and without a copy: at most `n` from `offset` on, fewer where they do not
        lie together, none behind the end. They stay as long as the view does; those of a collection that is not sealed
        may change meanwhile. :class:`Unsupported` where they are out of reach, as in every store that does not keep its
        bytes in shared memory: use :meth:`read` or :meth:`readinto`."""
        return super().view(offset, n)

    def truncate(self, size: int) -> None:
        """Cuts or extends (with a hole) to `size`."""
        run(Op.truncate(self, size))

    def punch(self, offset: int, length: int) -> None:
        """Makes a range a hole, which reads as zeros; the size stays."""
        run(Op.punch(self, offset, length))

    def allocate(self, offset: int, length: int, *, keep_size: bool = False) -> None:
        """Reserves space, so that writes to the range cannot lack it. :class:`Exhausted`."""
        run(Op.allocate(self, offset, length, keep_size))

    def extents(self, offset: int = 0, length: int | None = None) -> list[Extent]:
        """Data and holes of a range (``None``: to the end) in order."""
        end = max(self.size, offset) if length is None else offset + length
        found: list[Extent] = []
        while offset < end:
            page: list[Extent] = run(Op.extents(self, offset, end - offset, EXTENTS))
            found += page
            if len(page) < EXTENTS:
                break
            offset = page[-1].offset + page[-1].length
        return found

    def copy_from(self, src: Collection, src_offset: int = 0, offset: int = 0, length: int | None = None) -> int:
        """Copies `length` bytes (``None``: all) of another collection to `offset`, within the store where it can, and
        returns how many; less only at the other's end."""
        length = max(src.size - src_offset, 0) if length is None else length
        n: int = run(Op.copy(src, src_offset, self, offset, length))
        return n

    def seal(self) -> None:
        """Fixes bytes and size for good, for everybody and atomically against writes (M2). :class:`Fenced`."""
        run(Op.seal(self))

    def set(self, controls: str | Mapping[str, Any] | None = None, **keywords: Unpack[ControlKeywords]) -> None:
        """Changes controls, as an exclusive holder; makes a new revision. :class:`Refused`, :class:`Busy`."""
        run(Op.set(self, controls_text("set", controls, keywords) or ""))

    @overload
    def file(self, mode: str = "r", *, buffering: Literal[0]) -> CollectionFile: ...  # type: ignore[overload-overlap]
    @overload
    def file(self, mode: str = "r", *, buffering: int = -1) -> io.BufferedIOBase: ...
    def file(self, mode: str = "r", *, buffering: int = -1) -> CollectionFile | io.BufferedIOBase:
        """A binary file object over it, for ``numpy.save``, ``pickle`` and whoever else wants files.

        `mode` is ``r``, ``r+``, ``w`` (cuts it to nothing first), ``w+`` or ``a`` (each write is an append). Buffered by
        1 MiB, or `buffering` bytes; ``buffering=0``: each read and write is one request. Closing the file does not close
        the collection."""
        raw = CollectionFile(self, mode)
        if buffering == 0:
            return raw
        size = _BUFFER if buffering < 0 else buffering
        if "+" in binary_mode(mode):
            return io.BufferedRandom(raw, size)
        return io.BufferedReader(raw, size) if raw.readable() else io.BufferedWriter(raw, size)


class Group(_Object, Place[Collection, "Group"]):
    """A group of collections and groups: it holds names, but no bytes (O3). Any thread, any time.

    Made by :meth:`Workspace.group`. Its methods are the workspace's, for the names in it.
    """

    __slots__ = ()
    _group: ClassVar[bool] = True

    def _workspace(self) -> _ioverbs.Workspace:
        return self._at._workspace()

    def _parent(self) -> _ioverbs.Handle:
        return self

    def _new_collection(self, name: str | bytes | UUID | None) -> Collection:
        return Collection._pending(self._at, name)

    def _new_group(self, name: str | bytes | UUID | None) -> Group:
        return Group._pending(self._at, name)

    def create(
        self,
        name: str | bytes | None = None,
        metadata: Metadata | None = None,
        *,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> Collection:
        """See :meth:`Workspace.create`."""
        return self._at.create(name, metadata, group=self, controls=controls, **keywords)

    def open(
        self,
        name_or_uuid: str | bytes | UUID,
        *,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> Collection:
        """See :meth:`Workspace.open`."""
        return self._at.open(name_or_uuid, group=self, controls=controls, **keywords)

    def group(
        self,
        name: str | bytes,
        create: bool = True,
        metadata: Metadata | None = None,
        *,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> Group:
        """See :meth:`Workspace.group`."""
        return self._at.group(name, create, metadata, group=self, controls=controls, **keywords)

    def __getitem__(self, name: str | bytes | UUID) -> Collection:
        return self.open(name)

    def find(
        self,
        predicate: str | None = None,
        *params: Value,
        deep: bool = False,
        order: str | None = None,
        limit: int | None = None,
        keys: str | Iterable[str] = (),
    ) -> Search:
        """See :meth:`Workspace.find`; ``deep=True`` also looks into groups below it."""
        return self._at.find(predicate, *params, group=self, deep=deep, order=order, limit=limit, keys=keys)

    def count(self, predicate: str | None = None, *params: Value, deep: bool = False) -> int:
        """See :meth:`Workspace.count`."""
        return self._at.count(predicate, *params, group=self, deep=deep)

    def list(self, *, order: str | None = None, keys: str | Iterable[str] = ()) -> Search:
        """See :meth:`Workspace.list`."""
        return self._at.list(self, order=order, keys=keys)

    def __iter__(self) -> Search:
        return self.list()

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return any(True for _ in self.find("iov.name = ?", name, limit=1))

    def look(self, name_or_uuid: str | bytes | UUID) -> Stat:
        """See :meth:`Workspace.look`."""
        return self._at.look(name_or_uuid, group=self)

    def delete(self, name_or_uuid: str | bytes | UUID) -> None:
        """See :meth:`Workspace.delete`."""
        self._at.delete(name_or_uuid, group=self)

    def rename(
        self,
        old: str | bytes,
        new: str | bytes,
        *,
        to: Workspace | Group | None = None,
        replace: bool = True,
        exchange: bool = False,
    ) -> None:
        """See :meth:`Workspace.rename`."""
        self._at.rename(old, new, group=self, to=to, replace=replace, exchange=exchange)


class Lock:
    """An advisory lock, taken by :meth:`Collection.lock`. Leaving a ``with`` block gives it back."""

    __slots__ = ("_handle", "offset", "length", "owner", "_held")

    def __init__(self, handle: _Object, offset: int, length: int | None, owner: int) -> None:
        self._handle = handle
        self.offset = offset
        self.length = length
        self.owner = owner
        self._held = True

    @property
    def held(self) -> bool:
        """Whether it was not given back yet."""
        return self._held

    def release(self) -> None:
        """Gives it back. Again: does nothing."""
        if self._held:
            self._held = False
            # One owner may hold several, and closing, in whatever thread, may have given back all.
            with suppress(ValueError):
                self._handle._locks.remove(self.owner)
            run(Op.unlock(self._handle, self.offset, self.length or 0, self.owner))

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.release()

# SPDX-License-Identifier: Apache-2.0
"""Batches: operations that start and complete together (O7)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, cast
from uuid import UUID

from . import _ioverbs
from ._controls import ControlKeywords, controls_text
from ._errors import BatchError, Error, Invalid, Outcome, Timeout
from ._ioverbs import Handle, Op
from ._place import C, G, Place
from ._reactor import Reactor
from ._results import Extent, Stat
from ._values import Metadata, Value, lifetime_text, time_ns

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from ._buffers import ReadableBuffer, WriteableBuffer

T = TypeVar("T")

State = Literal["pending", "ok", "failed", "skipped", "undone", "cancelled"]
OnError = Literal["continue", "stop", "rollback"]
Progress = Literal["auto", "caller", "background"]

_EXTENTS = 4096
"""Extents that one operation of a batch lists."""


def nanoseconds(seconds: float | None, what: str) -> int:
    """Nanoseconds of a time in seconds; ``None`` is 0."""
    if seconds is None:
        return 0
    if not 0 < seconds < 9e9:
        raise Invalid(f"{what}={seconds!r}: a time in seconds from now on, more than 0")
    return max(1, round(seconds * 1e9))


@dataclass(frozen=True, slots=True)
class Status:
    """How an operation ended."""

    index: int
    """Its place in the batch, from 0; barriers do not count."""
    verb: str
    """What it did, such as ``"write"``."""
    state: State
    """``"ok"``, ``"failed"``, ``"skipped"`` (B2), ``"undone"`` (B3) or ``"cancelled"``."""
    outcome: Outcome
    """Whether it has taken effect."""
    error: Error | None
    """What went wrong."""
    bytes: int
    """Bytes it moved."""
    result: Any
    """What the call would have returned by itself; ``None`` unless it is ok."""


class _Run:
    """One filling of a batch: its operations, and once it was started its request."""

    __slots__ = ("verbs", "request")

    def __init__(self) -> None:
        self.verbs: list[str] = []
        self.request: Request | None = None


class Operation(Generic[T]):
    """An operation in a batch."""

    __slots__ = ("_run", "index")

    def __init__(self, run: _Run, index: int) -> None:
        self._run = run
        self.index = index
        """Its place in the batch."""

    @property
    def verb(self) -> str:
        """What it does, such as ``"write"``."""
        return self._run.verbs[self.index]

    @property
    def done(self) -> bool:
        """Whether its batch has completed."""
        return self._run.request is not None and self._run.request.done

    @property
    def status(self) -> Status:
        """How it ended. :class:`Busy` before its batch has completed."""
        if self._run.request is None:
            return Status(self.index, self.verb, "pending", "pending", None, 0, None)
        return self._run.request.status(self.index)

    def result(self) -> T:
        """What the call would have returned by itself; raises what it would have raised."""
        if self._run.request is None:
            raise Invalid("the batch was not started: the result is there once it has completed")
        status = self.status
        if status.error is not None:
            raise status.error
        return cast(T, status.result)

    def __repr__(self) -> str:
        return f"<ioverbs.Operation {self.index} ({self.verb}), {'done' if self.done else 'pending'}>"


class Request:
    """A started batch. One thread at a time; it can also be awaited."""

    __slots__ = ("_native", "_reactor", "_run", "_drives", "_check", "__weakref__")

    def __init__(self, native: _ioverbs.Request, run: _Run, reactor: Reactor, drives: bool, check: bool) -> None:
        self._native = native
        self._run = run
        self._reactor = reactor
        self._drives = drives
        self._check = check

    @property
    def done(self) -> bool:
        """Whether it has completed."""
        return self._native.done

    def wait(self, timeout: float | None = None) -> list[Status]:
        """Waits until it has completed, at most `timeout` seconds (``None``: until its deadline), and returns
        :attr:`statuses`. :class:`Timeout`: it goes on, and its buffers are in use. :class:`BatchError`: not every
        operation is ok, unless the batch was made with ``check=False``."""
        limit = -1 if timeout is None else max(0, round(timeout * 1e9))
        if not self._native.wait(limit):
            raise Timeout("the request goes on; its buffers are in use: wait again", "O8", "pending")
        self._reactor.look()
        return self._end()

    def test(self) -> bool:
        """Whether it has completed. Never blocks."""
        if done := self._native.test():
            self._reactor.look()
        return done

    def cancel(self) -> None:
        """Asks to give up what has not taken effect. It completes as ever: wait for it."""
        self._native.cancel()

    def status(self, index: int) -> Status:
        """How operation `index` ended. :class:`Busy` before completion."""
        state, outcome, error, moved, result = self._native.status(index)
        return Status(index, self._run.verbs[index], state, outcome, error, moved, result)

    @property
    def statuses(self) -> list[Status]:
        """How each operation ended, in order. :class:`Busy` before completion."""
        return [self.status(i) for i in range(self._native.count())]

    def _end(self) -> list[Status]:
        statuses = self.statuses
        bad = [s for s in statuses if s.state != "ok"]
        if not bad or not self._check:
            return statuses
        first = next((s for s in bad if s.state == "failed"), bad[0])
        error = BatchError(
            f"{len(bad)} of {len(statuses)} operations are not ok; operation {first.index} ({first.verb}): {first.error}",
            first.error.clause if first.error else None,
            first.outcome,
        )
        error.statuses = statuses
        raise error from first.error

    def __await__(self) -> Generator[Any, None, list[Status]]:
        if self._drives and not self._native.done:
            # Nobody but who waits drives it, and the loop has other things to do.
            yield from asyncio.to_thread(self._native.wait, -1).__await__()
            self._reactor.look()
        yield from self._reactor.wait(self._native).__await__()
        return self._end()


class Batch:
    """Operations that start and complete together, made by :meth:`Session.batch`. One thread at a time.

    Its methods are those of collections and workspaces, with the handle as the first argument. Each appends an operation
    and does nothing yet; the result is in the :class:`Operation` that it returns once the batch has completed. What
    :meth:`create`, :meth:`open` and :meth:`group` return is a pending handle: for later operations of the batch, and for
    all use once it has completed.

    At the end of a ``with`` block the batch is started and waited for; :class:`BatchError` if not every operation is ok.
    An exception in the block drops it: nothing is started. Without the block, :meth:`start` returns a :class:`Request`.

    Operations on the same bytes, name or key take effect in batch order, all others in any; :meth:`barrier` orders (O9).
    """

    _native: _ioverbs.Batch

    def __init__(
        self,
        session: _ioverbs.Session,
        reactor: Reactor,
        error: OnError | None,
        progress: Progress,
        id: UUID | None,
        deadline: float | None,
        check: bool,
        controls: str | Mapping[str, Any] | None,
        keywords: Mapping[str, Any],
    ) -> None:
        text = controls_text("batch", controls, keywords)
        deadline_ns = nanoseconds(deadline, "deadline")
        self._native = _ioverbs.Batch(session, error, progress, id.bytes if id else None, deadline_ns, text)
        self._drives = progress == "caller"
        self._reactor = reactor
        self._check = check
        self._run = _Run()

    def _push(self, op: Op) -> Operation[Any]:
        verb = op.verb
        index = self._native.push(op)
        self._run.verbs.append(verb)
        return Operation(self._run, index)

    # -- Bytes

    def write(self, c: Handle, offset: int, data: ReadableBuffer) -> Operation[int]:
        """See :meth:`Collection.write`. `data` is in use until the batch has completed."""
        return self._push(Op.write(c, offset, data))

    def writev(self, c: Handle, chunks: Iterable[tuple[int, ReadableBuffer]]) -> Operation[int]:
        """See :meth:`Collection.writev`."""
        return self._push(Op.writev(c, list(chunks)))

    def read(self, c: Handle, offset: int, n: int) -> Operation[bytes]:
        """See :meth:`Collection.read`."""
        return self._push(Op.read(c, offset, n))

    def readinto(self, c: Handle, offset: int, buffer: WriteableBuffer) -> Operation[int]:
        """See :meth:`Collection.readinto`. `buffer` is in use until the batch has completed."""
        return self._push(Op.readinto(c, offset, buffer))

    def readv(self, c: Handle, chunks: Iterable[tuple[int, WriteableBuffer]]) -> Operation[int]:
        """See :meth:`Collection.readv`."""
        return self._push(Op.readv(c, list(chunks)))

    def append(self, c: Handle, data: ReadableBuffer) -> Operation[int]:
        """See :meth:`Collection.append`. `data` is in use until the batch has completed."""
        return self._push(Op.append(c, data))

    def truncate(self, c: Handle, size: int) -> Operation[None]:
        """See :meth:`Collection.truncate`."""
        return self._push(Op.truncate(c, size))

    def punch(self, c: Handle, offset: int, length: int) -> Operation[None]:
        """See :meth:`Collection.punch`."""
        return self._push(Op.punch(c, offset, length))

    def allocate(self, c: Handle, offset: int, length: int, *, keep_size: bool = False) -> Operation[None]:
        """See :meth:`Collection.allocate`."""
        return self._push(Op.allocate(c, offset, length, keep_size))

    def extents(self, c: Handle, offset: int, length: int) -> Operation[list[Extent]]:
        """See :meth:`Collection.extents`; here the first 4096."""
        return self._push(Op.extents(c, offset, length, _EXTENTS))

    def copy(self, src: Handle, src_offset: int, dst: Handle, dst_offset: int, length: int) -> Operation[int]:
        """See :meth:`Collection.copy_from`."""
        return self._push(Op.copy(src, src_offset, dst, dst_offset, length))

    # -- Publishing

    def commit(self, what: Handle | Place[Any, Any]) -> Operation[None]:
        """See :meth:`Collection.commit`, :meth:`Workspace.commit`."""
        if isinstance(what, Handle):
            return self._push(Op.commit(what))
        return self._push(Op.workspace_commit(what._workspace()))

    def persist(self, what: Handle | Place[Any, Any]) -> Operation[None]:
        """See :meth:`Collection.persist`, :meth:`Workspace.persist`."""
        if isinstance(what, Handle):
            return self._push(Op.persist(what))
        return self._push(Op.workspace_persist(what._workspace()))

    def seal(self, c: Handle) -> Operation[None]:
        """See :meth:`Collection.seal`."""
        return self._push(Op.seal(c))

    def close(self, c: Handle) -> Operation[None]:
        """See :meth:`Collection.close`: the handle ends when the batch completes."""
        return self._push(Op.close(c))

    # -- Names

    def create(
        self,
        where: Place[C, G],
        name: str | bytes | None = None,
        metadata: Metadata | None = None,
        *,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> C:
        """See :meth:`Workspace.create`; `where` is a workspace or group. Returns the pending handle."""
        out = where._new_collection(name)
        text = controls_text("create", controls, keywords)
        self._push(Op.create(cast(Handle, out), where._parent(), name, metadata, text))
        return out

    def open(
        self,
        where: Place[C, G],
        name_or_uuid: str | bytes | UUID,
        *,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> C:
        """See :meth:`Workspace.open`; `where` is a workspace or group. Returns the pending handle."""
        out = where._new_collection(name_or_uuid)
        text = controls_text("open", controls, keywords)
        self._push(Op.open(cast(Handle, out), where._parent(), name_or_uuid, text))
        return out

    def group(
        self,
        where: Place[C, G],
        name: str | bytes,
        metadata: Metadata | None = None,
        *,
        create: bool = True,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> G:
        """Creates a group, or opens one with ``create=False``; `where` is a workspace or group. Returns the pending
        handle."""
        out = where._new_group(name)
        text = controls_text("group", controls, keywords)
        if create:
            self._push(Op.create(cast(Handle, out), where._parent(), name, metadata, text))
        elif metadata is not None:
            raise Invalid("metadata are for a new group: put them with update")
        else:
            self._push(Op.open(cast(Handle, out), where._parent(), name, text))
        return out

    def delete(self, where: Place[Any, Any], name_or_uuid: str | bytes | UUID) -> Operation[None]:
        """See :meth:`Workspace.delete`; `where` is a workspace or group."""
        return self._push(Op.delete(where._workspace(), where._parent(), name_or_uuid))

    def rename(
        self,
        where: Place[Any, Any],
        old: str | bytes,
        new: str | bytes,
        *,
        to: Place[Any, Any] | None = None,
        replace: bool = True,
        exchange: bool = False,
    ) -> Operation[None]:
        """See :meth:`Workspace.rename`; `where` is a workspace or group, `to` where the name goes, if elsewhere."""
        target = where if to is None else to
        op = Op.rename(where._workspace(), where._parent(), old, target._parent(), new, replace, exchange)
        return self._push(op)

    def link(self, c: Handle, where: Place[Any, Any], name: str | bytes) -> Operation[None]:
        """See :meth:`Collection.link`."""
        return self._push(Op.link(c, where._parent(), name))

    # -- Facts

    def stat(self, what: Handle | Place[Any, Any]) -> Operation[Stat]:
        """See :meth:`Collection.stat`, :meth:`Workspace.stat`."""
        if isinstance(what, Handle):
            return self._push(Op.stat(what))
        return self._push(Op.workspace_stat(what._workspace()))

    def look(self, where: Place[Any, Any], name_or_uuid: str | bytes | UUID) -> Operation[Stat]:
        """See :meth:`Workspace.look`; `where` is a workspace or group."""
        return self._push(Op.look(where._workspace(), where._parent(), name_or_uuid))

    def set(
        self, c: Handle, controls: str | Mapping[str, Any] | None = None, **keywords: Unpack[ControlKeywords]
    ) -> Operation[None]:
        """See :meth:`Collection.set`. Behind a create in the same batch the collection is born so."""
        return self._push(Op.set(c, controls_text("set", controls, keywords) or ""))

    def setattr(
        self,
        c: Handle,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        mtime: datetime | None = None,
        lifetime: str | timedelta | None = None,
    ) -> Operation[None]:
        """See :meth:`Collection.setattr`. Behind a create in the same batch the collection is born so."""
        return self._push(Op.setattr(c, mode, uid, gid, None if mtime is None else time_ns(mtime), lifetime_text(lifetime)))

    def get(self, c: Handle, key: str) -> Operation[Value]:
        """Reads one metadata value, system keys too."""
        return self._push(Op.metadata_get(c, key))

    def update(self, c: Handle, metadata: Metadata) -> Operation[None]:
        """Adds or replaces metadata; others stay."""
        return self._push(Op.metadata_put(c, metadata))

    def remove(self, c: Handle, key: str) -> Operation[None]:
        """Removes one metadata pair."""
        return self._push(Op.metadata_remove(c, key))

    def metadata(self, c: Handle) -> Operation[dict[str, Value]]:
        """Reads all user metadata."""
        return self._push(Op.metadata_list(c))

    # -- The batch itself

    def barrier(self) -> None:
        """Everything appended so far takes effect before everything appended from now on (O9)."""
        self._native.barrier()

    def __len__(self) -> int:
        return self._native.count()

    def explain(self) -> Any:
        """The plan, before it runs: what is buffered, sent, published, persisted."""
        return json.loads(self._native.explain())

    def start(self) -> Request:
        """Starts it. An error means that nothing was started."""
        run = self._run
        run.request = Request(self._native.start(), run, self._reactor, self._drives, self._check)
        return run.request

    @property
    def request(self) -> Request | None:
        """The request, once it was started."""
        return self._run.request

    @property
    def statuses(self) -> list[Status]:
        """How each operation ended, in order. :class:`Busy` before completion."""
        if self._run.request is None:
            raise Invalid("the batch was not started")
        return self._run.request.statuses

    def reset(self) -> None:
        """Empties a completed batch for another start; its id is used up. :class:`Busy` while it is in flight."""
        self._native.reset()
        self._run = _Run()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None and self._run.request is None:
            self.start()
        if kind is None and self._run.request is not None:
            self._run.request.wait()

    def __repr__(self) -> str:
        request = self._run.request
        state = "not started" if request is None else "completed" if request.done else "in flight"
        return f"<ioverbs.Batch of {len(self)} operations, {state}>"

# SPDX-License-Identifier: Apache-2.0
"""Workspaces and groups of an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Unpack
from uuid import UUID

from .. import _ioverbs
from .._controls import ControlKeywords, controls_text
from .._errors import Exists, NotFound
from .._ioverbs import Cursor, Handle, Op
from .._place import Place
from .._results import Stat
from .._search import Search as _Search, key_list, most
from .._values import Metadata, Value, lifetime_text
from ._handles import Collection, MetadataView, Object
from ._run import run
from ._search import Search

if TYPE_CHECKING:
    from ._session import Session


class _Names(Place[Collection, "Group"]):
    """What workspaces and groups have in common. Names are those of the place itself: its root, or the group's."""

    __slots__ = ()

    def _home(self) -> Workspace:
        raise NotImplementedError

    def _workspace(self) -> _ioverbs.Workspace:
        return self._home()._native

    def _new_collection(self, name: str | bytes | UUID | None) -> Collection:
        return Collection._pending(self._home(), name)

    def _new_group(self, name: str | bytes | UUID | None) -> Group:
        return Group._pending(self._home(), name)

    def _do(self, op: Op) -> Awaitable[Any]:
        return run(self._home().session, op)

    async def create(
        self,
        name: str | bytes | None = None,
        metadata: Metadata | None = None,
        *,
        lifetime: str | timedelta | None = None,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> Collection:
        """See :meth:`ioverbs.Workspace.create`."""
        out = self._new_collection(name)
        create = Op.create(out, self._parent(), name, metadata, controls_text("create", controls, keywords))
        if lifetime is None:
            await self._do(create)
        else:
            born = Op.setattr(out, None, None, None, None, lifetime_text(lifetime))
            await run(self._home().session, create, born)
        return out

    async def open(
        self,
        name_or_uuid: str | bytes | UUID,
        *,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> Collection:
        """See :meth:`ioverbs.Workspace.open`."""
        out = self._new_collection(name_or_uuid)
        await self._do(Op.open(out, self._parent(), name_or_uuid, controls_text("open", controls, keywords)))
        return out

    async def group(
        self,
        name: str | bytes | UUID,
        create: bool = True,
        metadata: Metadata | None = None,
        *,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> Group:
        """See :meth:`ioverbs.Workspace.group`."""
        text = controls_text("group", controls, keywords)
        out = self._new_group(name)
        try:
            await self._do(Op.open(out, self._parent(), name, text))
            return out
        except NotFound:
            if not create or isinstance(name, UUID):
                raise
        out = self._new_group(name)
        try:
            await self._do(Op.create(out, self._parent(), name, metadata, text))
        except Exists:
            out = self._new_group(name)
            await self._do(Op.open(out, self._parent(), name, text))
        return out

    async def look(self, name_or_uuid: str | bytes | UUID) -> Stat:
        """See :meth:`ioverbs.Workspace.look`."""
        stat: Stat = await self._do(Op.look(self._workspace(), self._parent(), name_or_uuid))
        return stat

    async def delete(self, name_or_uuid: str | bytes | UUID) -> None:
        """See :meth:`ioverbs.Workspace.delete`."""
        await self._do(Op.delete(self._workspace(), self._parent(), name_or_uuid))

    async def rename(
        self,
        old: str | bytes,
        new: str | bytes,
        *,
        to: Workspace | Group | None = None,
        replace: bool = True,
        exchange: bool = False,
    ) -> None:
        """See :meth:`ioverbs.Workspace.rename`."""
        parent = self._parent() if to is None else to._parent()
        await self._do(Op.rename(self._workspace(), self._parent(), old, parent, new, replace, exchange))

    async def _search(
        self,
        predicate: str | None,
        params: tuple[Value, ...],
        deep: bool,
        order: str | None,
        limit: int | None,
        keys: str | Iterable[str],
        *,
        names: bool = False,
        count: bool = False,
    ) -> Cursor:
        cursor = Cursor(self._home().session.blocking._native)
        arguments = (predicate, list(params), deep, order, most(limit), key_list(keys), count)
        await self._do(Op.search(self._workspace(), cursor, self._parent(), names, *arguments))
        return cursor

    async def find(
        self,
        predicate: str | None = None,
        *params: Value,
        deep: bool = False,
        order: str | None = None,
        limit: int | None = None,
        keys: str | Iterable[str] = (),
    ) -> Search:
        """See :meth:`ioverbs.Workspace.find`; of a group, its members only."""
        return Search(_Search(await self._search(predicate, params, deep, order, limit, keys)))

    async def count(self, predicate: str | None = None, *params: Value, deep: bool = False) -> int:
        """See :meth:`ioverbs.Workspace.count`."""
        return (await self._search(predicate, params, deep, None, None, (), count=True)).count()

    async def list(self, *, order: str | None = None, keys: str | Iterable[str] = ()) -> Search:
        """See :meth:`ioverbs.Workspace.list`."""
        return Search(_Search(await self._search(None, (), False, order, None, keys, names=True)))


class Group(Object, _Names):
    """See :class:`ioverbs.Group`."""

    __slots__ = ()
    _group: ClassVar[bool] = True

    def _home(self) -> Workspace:
        return self._at

    def _parent(self) -> Handle:
        return self


class Workspace(_Names):
    """See :class:`ioverbs.Workspace`."""

    __slots__ = ("_session", "_native", "__weakref__")

    def __init__(self, session: Session, native: _ioverbs.Workspace) -> None:
        self._session = session
        self._native = native

    def _home(self) -> Workspace:
        return self

    def _parent(self) -> None:
        return None

    @property
    def session(self) -> Session:
        """The session."""
        return self._session

    @property
    def name(self) -> str:
        """Its name when it was opened."""
        return self._native.name

    @property
    def uuid(self) -> UUID:
        """Its identity."""
        return self._native.uuid

    async def metadata(self) -> MetadataView:
        """Its metadata, in the store."""
        root = self._new_group(None)
        await self._do(Op.open(root, None, None, None))
        return root.metadata

    async def stat(self) -> Stat:
        """See :meth:`ioverbs.Workspace.stat`."""
        stat: Stat = await self._do(Op.workspace_stat(self._native))
        return stat

    async def commit(self) -> None:
        """See :meth:`ioverbs.Workspace.commit`."""
        await self._do(Op.workspace_commit(self._native))

    async def persist(self) -> None:
        """See :meth:`ioverbs.Workspace.persist`."""
        await self._do(Op.workspace_persist(self._native))

    def close(self) -> None:
        """Ends the handle, not the workspace."""
        self._native.close()

    async def __aenter__(self) -> Workspace:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ioverbs.aio.Workspace {self.name!r} of {self._session.url}>"

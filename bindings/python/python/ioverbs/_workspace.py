# SPDX-License-Identifier: Apache-2.0
"""Workspaces, with blocking calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from . import _ioverbs, _pickle
from ._controls import ControlKeywords, controls_text
from ._errors import Exists, Invalid, NotFound
from ._handles import Collection, Group
from ._ioverbs import Cursor, Handle, Op, run
from ._metadata import MetadataView
from ._place import Place
from ._results import Stat
from ._search import Search, key_list, most
from ._segments import Segments
from ._values import Metadata, Value, lifetime_text, time_ns

if TYPE_CHECKING:
    from ._session import Session

UNLIMITED = (1 << 64) - 1
"""No quota."""


def workspace_attr(
    metadata: Metadata | None,
    indexes: str | Iterable[str] | None,
    quota_bytes: int | None,
    quota_collections: int | None,
    expires: datetime | None,
    access: str | None,
    owner: str | int | None,
) -> dict[str, object]:
    """Properties as the native half takes them."""
    keys = None if indexes is None else [indexes] if isinstance(indexes, str) else list(indexes)
    if keys and "" in keys:
        raise Invalid("an index is of a metadata key, and no key is empty; an empty list is for no index", "O5")
    return {
        "metadata": metadata,
        "indexes": keys,
        "quota_bytes": quota_bytes,
        "quota_collections": quota_collections,
        "expires_ns": None if expires is None else time_ns(expires),
        "access": access,
        "owner": owner,
    }


def _together(session: Session, *ops: Op) -> None:
    """Runs operations of which a failing one stops those behind it, and raises its error."""
    batch = _ioverbs.Batch(session._native, "stop", "caller", None, 0, None)
    for op in ops:
        batch.push(op)
    request = batch.start()
    request.wait(-1)
    for i in range(len(ops)):
        error = request.status(i)[2]
        if error is not None:
            raise error


class Workspace(Place[Collection, Group]):
    """An isolated namespace, allocation domain and unit of protection (O1), made by :meth:`Session.workspace`.
    Any thread, any time. Leaving a ``with`` block closes the handle, not what was opened through it."""

    __slots__ = ("_session", "_native", "__weakref__")

    def __init__(self, session: Session, native: _ioverbs.Workspace) -> None:
        self._session = session
        self._native = native

    def _workspace(self) -> _ioverbs.Workspace:
        return self._native

    def _parent(self) -> None:
        return None

    def _new_collection(self, name: str | bytes | UUID | None) -> Collection:
        return Collection._pending(self, name)

    def _new_group(self, name: str | bytes | UUID | None) -> Group:
        return Group._pending(self, name)

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

    @property
    def writable(self) -> bool:
        """Whether the caller may change what is in it."""
        return self._native.writable

    @property
    def indexes(self) -> list[str]:
        """Metadata keys of which an index was kept when it was opened: searches by them take time by their matches."""
        return self._native.indexes

    @property
    def defaults(self) -> str:
        """Default controls of what is created in it, as text."""
        return self._native.defaults()

    @property
    def metadata(self) -> MetadataView:
        """Its metadata: a mapping over the store."""
        root = self._new_group(None)
        run(Op.open(root, None, None, None))
        return MetadataView(root, self._session._native)

    @property
    def segments(self) -> Segments:
        """Bytes with an id instead of a name: put, get, and an endless space of blocks."""
        return Segments(self)

    # -- Names

    def create(
        self,
        name: str | bytes | None = None,
        metadata: Metadata | None = None,
        *,
        group: Group | None = None,
        lifetime: str | timedelta | None = None,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> Collection:
        """Creates and opens a collection.

        :param name: 1 to 255 bytes without NUL and ``/``; ``None``: it has none, and is found by UUID or metadata.
        :param metadata: What it is born with.
        :param group: The group that holds the name; ``None``: the root.
        :param lifetime: When it goes if nobody deletes it: see :meth:`Collection.setattr`. It is born so.
        :param controls: What is promised about it, as text, mapping or keywords; the workspace's defaults for the rest.
        :raises Exists: The name is taken. :raises Refused: A promise that cannot be given here; ``e.offer`` is nearest.
        """
        out = self._new_collection(name)
        create = Op.create(out, group, name, metadata, controls_text("create", controls, keywords))
        if lifetime is None:
            run(create)
        else:
            _together(self._session, create, Op.setattr(out, None, None, None, None, lifetime_text(lifetime)))
        return out

    def open(
        self,
        name_or_uuid: str | bytes | UUID,
        *,
        group: Group | None = None,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> Collection:
        """Opens a collection.

        :param name_or_uuid: A name in `group` (``None``: the root), or a UUID (also as ``"uuid:…"``), which needs no
            group.
        :param controls: The same as the collection's or stronger, and hints; a weaker consistency is for reading only.
        :raises NotFound: :raises Busy: It is held exclusively. :raises Refused:
        """
        out = self._new_collection(name_or_uuid)
        run(Op.open(out, group, name_or_uuid, controls_text("open", controls, keywords)))
        return out

    def look(self, name_or_uuid: str | bytes | UUID, *, group: Group | None = None) -> Stat:
        """The facts of what a name in `group` (``None``: the root) or a UUID stands for, whatever it is and whoever holds it, without
        opening it. :class:`NotFound`."""
        stat: Stat = run(Op.look(self._native, group, name_or_uuid))
        return stat

    def __getitem__(self, name: str | bytes | UUID) -> Collection:
        return self.open(name)

    def group(
        self,
        name: str | bytes | UUID,
        create: bool = True,
        metadata: Metadata | None = None,
        *,
        group: Group | None = None,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> Group:
        """Opens a group; makes it, with the given metadata, if it is not there.

        :param create: ``False``: it must be there. :raises NotFound:
        :param group: The group above; ``None``: the root.
        :param controls: ``concurrency="exclusive"`` covers all below it (X2). :raises Busy: It is held exclusively.
        """
        text = controls_text("group", controls, keywords)
        out = self._new_group(name)
        try:
            run(Op.open(out, group, name, text))
            return out
        except NotFound:
            if not create or isinstance(name, UUID):
                raise
        out = self._new_group(name)
        try:
            run(Op.create(out, group, name, metadata, text))
        except Exists:
            out = self._new_group(name)
            run(Op.open(out, group, name, text))
        return out

    def delete(self, name_or_uuid: str | bytes | UUID, *, group: Group | None = None) -> None:
        """Removes a name, and the collection or empty group with its last name; by UUID, all names. Open handles go on
        (O10). :class:`NotFound`, :class:`NotEmpty`, :class:`Busy`."""
        run(Op.delete(self._native, group, name_or_uuid))

    def rename(
        self,
        old: str | bytes,
        new: str | bytes,
        *,
        group: Group | None = None,
        to: Workspace | Group | None = None,
        replace: bool = True,
        exchange: bool = False,
    ) -> None:
        """Moves a name in one step, a group with all it holds.

        :param group: Where `old` is; ``None``: the root. :param to: Where `new` is; ``None``: the same.
        :param replace: ``False``: :class:`Exists` if `new` is taken; else it is replaced.
        :param exchange: Swaps the two.
        :raises NotFound: :raises NotEmpty: The replaced group. :raises Invalid: It would make a cycle.
        """
        parent = group if to is None else to._parent()
        run(Op.rename(self._native, group, old, parent, new, replace, exchange))

    # -- Searching

    def _search(
        self,
        predicate: str | None,
        params: tuple[Value, ...],
        group: Handle | None,
        deep: bool,
        order: str | None,
        limit: int | None,
        keys: str | Iterable[str],
        *,
        names: bool = False,
        count: bool = False,
    ) -> Cursor:
        cursor = Cursor(self._session._native)
        arguments = (predicate, list(params), deep, order, most(limit), key_list(keys), count)
        run(Op.search(self._native, cursor, group, names, *arguments))
        return cursor

    def find(
        self,
        predicate: str | None = None,
        *params: Value,
        group: Group | None = None,
        deep: bool = False,
        order: str | None = None,
        limit: int | None = None,
        keys: str | Iterable[str] = (),
    ) -> Search:
        """Searches collections and groups, and streams what matches (O5): ``docs/guide/search.md``.

        :param predicate: ``'temperature > 300 and experiment = "nacelle"'``; ``None``: everything.
        :param params: Values for each ``?`` of the predicate. Prefer them to putting text together.
        :param group: Only its members; ``None``: the whole workspace. :param deep: Also groups below `group`.
        :param order: ``"temperature desc, iov.name"``; ``None``: as they come, which is fastest.
        :param limit: Most results; ``None``: all.
        :param keys: Metadata to return, system keys too; ``"*"``: all user keys.
        :raises Invalid: The predicate; the detail has the position.
        """
        return Search(self._search(predicate, params, group, deep, order, limit, keys))

    def count(
        self, predicate: str | None = None, *params: Value, group: Group | None = None, deep: bool = False
    ) -> int:
        """The number of matches of such a search."""
        cursor = self._search(predicate, params, group, deep, None, None, (), count=True)
        try:
            return cursor.count()
        finally:
            cursor.close()

    def list(
        self, group: Group | None = None, *, order: str | None = None, keys: str | Iterable[str] = ()
    ) -> Search:
        """Lists the names in a group (``None``: the root), one result each, in the order of names unless `order` says
        otherwise."""
        return Search(self._search(None, (), group, False, order, None, keys, names=True))

    def __iter__(self) -> Search:
        return self.list()

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return any(True for _ in self.find("iov.name = ? and iov.group = ?", name, f"uuid:{UUID(int=0)}", limit=1))

    # -- Itself

    def stat(self) -> Stat:
        """Usage, quota and expiry."""
        stat: Stat = run(Op.workspace_stat(self._native))
        return stat

    def set(
        self,
        *,
        name: str | bytes | None = None,
        metadata: Metadata | None = None,
        indexes: str | Iterable[str] | None = None,
        quota_bytes: int | None = None,
        quota_collections: int | None = None,
        expires: datetime | None = None,
        access: str | None = None,
        owner: str | int | None = None,
        controls: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> None:
        """Changes properties; what is left out stays. ``quota_bytes=ioverbs.UNLIMITED`` lifts a quota; the indexes given
        replace those that were, ``indexes=[]`` drops all. New default controls are for collections created later.
        :class:`Exists` (name), :class:`Refused`, :class:`Denied`."""
        if name is not None:
            run(Op.workspace_rename(self._native, name))
        attr = workspace_attr(metadata, indexes, quota_bytes, quota_collections, expires, access, owner)
        attr["controls"] = controls_text("set", controls, keywords)
        if any(value is not None for value in attr.values()):
            run(Op.workspace_set(self._native, attr))

    def commit(self) -> None:
        """Publishes this session's creates, deletes, renames and metadata in it (C7)."""
        run(Op.workspace_commit(self._native))

    def persist(self) -> None:
        """Makes them, and all bytes this session wrote in it, survive what the persistence level says (P5, P7)."""
        run(Op.workspace_persist(self._native))

    def close(self) -> None:
        """Ends the handle, not the workspace."""
        self._native.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _pickle.workspace(self)

    def __repr__(self) -> str:
        return f"<ioverbs.Workspace {self.name!r} of {self._session.url}>"

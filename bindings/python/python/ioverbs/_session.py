# SPDX-License-Identifier: Apache-2.0
"""Sessions, with blocking calls."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Unpack
from uuid import UUID

from . import _ioverbs, _pickle, _properties
from ._batch import Batch, OnError, Progress, nanoseconds
from ._controls import ControlKeywords, Controls, controls_text
from ._errors import Busy, Invalid
from ._reactor import Reactor
from ._search import Search, key_list, most
from ._values import Metadata, Value
from ._workspace import Workspace, workspace_attr


def open(
    url: str | None = None,
    *,
    readonly: bool = False,
    direct: bool = True,
    cache: bool = True,
    start: bool = True,
    deadline: float = 60.0,
    program: str | None = None,
    background: bool = False,
) -> Session:
    """Opens a store.

    :param url: ``mem:`` (this process only), ``file:DIR`` (its daemon starts on demand), or ``None``: ``$IOVERBS_URL``,
        else this user's default store.
    :param readonly: No changes through this session.
    :param direct: ``False``: bytes go through the daemon, never past it.
    :param cache: ``False``: no caches in this process.
    :param start: ``False``: start no daemon; :class:`Unavailable` if none runs.
    :param deadline: What a call or batch that sets none may take, in seconds; then it ends with :class:`Timeout`.
    :param program: Shown to operators; ``None``: the executable's name.
    :param background: ``True``: a daemon serves this session behind what somebody waits for; ``IOVERBS_PRIORITY=background`` says so
        for all of a program.
    :raises NotFound: There is no such store. :raises Unsupported: This release has no stores of that scheme.
    """
    return Session(SessionArguments(url, readonly, direct, cache, start, deadline, program, background))


def absolute_url(url: str) -> str:
    """A URL that means the same in every directory: a ``file:`` store is where its path leads to now. All else stays as it is."""
    scheme, _, place = url.partition(":")
    if scheme != "file" or not place or os.path.isabs(place):
        return url
    # Behind a link .. leads elsewhere than the text says.
    whole = os.path.join(os.getcwd(), place)
    return f"file:{whole if '..' in place.split('/') else os.path.normpath(whole)}"


class SessionArguments:
    """What a session was opened with, to open another like it."""

    __slots__ = ("url", "readonly", "direct", "cache", "start", "deadline", "program", "background")

    def __init__(
        self,
        url: str | None,
        readonly: bool,
        direct: bool,
        cache: bool,
        start: bool,
        deadline: float,
        program: str | None,
        background: bool = False,
    ) -> None:
        self.url = None if url is None else absolute_url(url)
        self.readonly, self.direct, self.cache, self.start = readonly, direct, cache, start
        self.deadline = deadline
        self.program = program
        self.background = background

    def open(self) -> _ioverbs.Session:
        deadline_ns = nanoseconds(self.deadline, "deadline")
        return _ioverbs.Session(
            absolute_url(_ioverbs.default_url()) if self.url is None else self.url,
            self.readonly,
            not self.direct,
            not self.cache,
            not self.start,
            deadline_ns,
            self.program,
            self.background,
        )

    def tuple(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)


class Session:
    """One connection to one store, made by :func:`open`. Any thread, any time.

    Leaving a ``with`` block closes it; what is open in it lives on until it is closed. After a fork the child cannot use
    it (:class:`Forked`) and opens its own. A session of a ``file:`` store can be pickled: the other process opens the
    same store.
    """

    __slots__ = ("_native", "_arguments", "_reactor", "__weakref__")

    def __init__(self, arguments: SessionArguments) -> None:
        self._native = arguments.open()
        self._arguments = arguments
        self._reactor = Reactor(self._native)

    @property
    def url(self) -> str:
        """The store's URL."""
        return self._native.url

    def workspace(
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
        """Opens a workspace; makes it, with the given properties, if it is not there. One that is there must have those
        that are given, its metadata and its end apart, and keeps all others.

        :param create: ``False``: it must be there. :raises NotFound:
        :param exist_ok: ``False``: it must be new.
        :raises Exists: It is there with other properties, or ``exist_ok=False``. Open it without them, and change them
            with :meth:`Workspace.set`.
        :param metadata: What it is born with; those of one that is there stay.
        :param indexes: Metadata keys to keep an index of, so that searches for them take time proportional to what they
            find (O5).
        :param quota_bytes: Most bytes; ``None``: unlimited. :param quota_collections: Most collections.
        :param expires: When it ends; ``None``: never. One that is there keeps its own end, so that ranks and later runs
            may each count from their own now; :meth:`Workspace.set` changes it.
        :param access: Who else may do what: ``"user:bob=read,group:cfd=write,any=read"``; ``None``: the owner only.
        :param owner: ``"alice"``, ``"uid:1000"`` or a user id; ``None``: the caller.
        :param controls: Default controls of what is created in it, also as keywords. :raises Refused:
        """
        attr = workspace_attr(metadata, indexes, quota_bytes, quota_collections, expires, access, owner)
        attr["controls"] = controls_text("workspace", controls, keywords)
        if not create or exist_ok:
            native, made = (
                self._native.obtain_workspace(name, attr) if create else (self._native.load_workspace(name), False)
            )
            ws = Workspace(self, native)
            if not made:
                _properties.check(ws, attr)
            return ws
        if isinstance(name, UUID):
            raise Invalid("a new workspace has a name; its UUID is chosen for it")
        return Workspace(self, self._native.create_workspace(name, attr))

    def workspaces(
        self,
        predicate: str | None = None,
        *params: Value,
        order: str | None = None,
        limit: int | None = None,
        keys: str | Iterable[str] = (),
    ) -> Search:
        """Searches the workspaces that the caller may see; no predicate finds all. As :meth:`Workspace.find`."""
        cursor = self._native.search_workspaces(predicate, list(params), order, most(limit), key_list(keys))
        return Search(cursor)

    def delete_workspace(self, name: str | bytes | UUID) -> None:
        """Deletes an empty workspace (O11). :class:`NotFound`, :class:`NotEmpty`, :class:`Busy` (held exclusively)."""
        self._native.delete_workspace(name)

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
        """An empty batch.

        :param error: After a failure: the others run (``continue``, B1), what is behind it does not (``stop``, B2), or
            nothing takes effect (``rollback``, B3).
        :param id: From :func:`uuid7`; a retry with it applies once (B3).
        :param deadline: What it may take, in seconds from its start; ``None``: the session's.
        :param progress: Who drives it when nobody waits: small work at the start and large work in the background
            (``auto``), only who waits (``caller``), or a thread (``background``).
        :param check: ``False``: no :class:`BatchError`; read the statuses.
        :param controls: Hints and stronger promises for its operations, also as keywords.
        """
        return Batch(self._native, self._reactor, error, progress, id, deadline, check, controls, keywords)

    def check_controls(
        self,
        controls: str | Mapping[str, Any] | None = None,
        *,
        workspace: Workspace | None = None,
        **keywords: Unpack[ControlKeywords],
    ) -> Controls:
        """What a create with these controls would get, in `workspace` or anywhere in the store. :class:`Refused`, with
        the nearest :attr:`~Error.offer`."""
        text = controls_text("check_controls", controls, keywords) or ""
        return Controls(*self._native.check_controls(workspace._native if workspace else None, text))

    def counters(self) -> dict[str, int]:
        """What the session has cost so far: requests, bytes by transport, syncs, locks, caches."""
        return self._native.counters()

    def close(self) -> None:
        """Ends the session. :class:`Busy` while a request is in flight. Closing again does nothing."""
        self._native.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self.close()
        except Busy:
            # What ended the block, such as Ctrl-C, may have left a request behind, and is what is to be heard of.
            if e is None:
                raise

    def __reduce__(self) -> tuple[object, ...]:
        return _pickle.session(self)

    def __repr__(self) -> str:
        return f"<ioverbs.Session of {self.url}>"

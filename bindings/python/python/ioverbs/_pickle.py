# SPDX-License-Identifier: Apache-2.0
"""Handles on their way to other processes: what is pickled is how to open the same thing there."""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ._errors import Busy, NotFound, Stale, Unsupported
from ._ioverbs import Op, run

if TYPE_CHECKING:
    from ._handles import Collection, Group, _Object
    from ._session import Session
    from ._workspace import Workspace

_LEASE_NS = 30_000_000_000
"""How long what was pickled may travel, when it brings along an exclusive hold."""

_sessions: weakref.WeakValueDictionary[tuple[object, ...], Session] = weakref.WeakValueDictionary()
"""Sessions that were opened for what arrived here, so that all of one sender share one."""
_lock = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock(), _sessions=weakref.WeakValueDictionary()))


def _passport(session: Session, exclusive: bool) -> tuple[Any, ...]:
    session._native.check()
    arguments = list(session._arguments.tuple())
    # From the root on, since the session was opened.
    url = session.url
    if url.startswith("mem:"):
        raise Unsupported(
            "handles of a mem: store cannot leave their process, in which its bytes are: use a file: store, or pass the bytes"
        )
    arguments[0] = url
    token = session._native.export_token() if exclusive else b""
    # The clock is the same for all processes of this machine.
    return tuple(arguments), token, time.monotonic_ns() + _LEASE_NS


def _open(arguments: tuple[Any, ...], token: bytes, expires: int) -> Session:
    from ._session import Session, SessionArguments

    if token and time.monotonic_ns() > expires:
        raise Stale("the lease of what was pickled has ended: pickle the handle again")
    with _lock:
        key = (arguments, token)
        session = _sessions.get(key)
        if session is not None:
            try:
                session._native.check()
                return session
            except Exception:
                # It was closed meanwhile.
                pass
        session = Session(SessionArguments(*arguments))
        if token:
            session._native.join(token)
        _sessions[key] = session
        return session


def session(s: Session) -> tuple[object, ...]:
    """How a session is pickled."""
    return _open, _passport(s, False)


def workspace(w: Workspace) -> tuple[object, ...]:
    """How a workspace is pickled."""
    w._native.check()
    return _open_workspace, (_passport(w.session, False), w.uuid)


def handle(c: _Object) -> tuple[object, ...]:
    """How a collection or group is pickled."""
    c.check()
    if c.pending:
        raise Busy("the handle is pending: wait for the batch that opens it", None, "not applied")
    exclusive = c.controls["concurrency"] == "exclusive"
    return _open_handle, (_passport(c.workspace.session, exclusive), c.workspace.uuid, c.kind == "group", c.uuid, c.name)


def _load(passport: tuple[Any, ...], uuid: UUID) -> Workspace:
    from ._workspace import Workspace

    s = _open(*passport)
    return Workspace(s, s._native.load_workspace(uuid))


def _open_workspace(passport: tuple[Any, ...], uuid: UUID) -> Workspace:
    try:
        return _load(passport, uuid)
    except NotFound as e:
        raise Stale(f"what was pickled is gone: {e.detail}", e.clause) from e


def _open_handle(
    passport: tuple[Any, ...], workspace: UUID, group: bool, uuid: UUID, name: str | None
) -> Collection | Group:
    try:
        at = _load(passport, workspace)
        out: Collection | Group = at._new_group(name) if group else at._new_collection(name)
        run(Op.open(out, None, uuid, None))
        return out
    except NotFound as e:
        raise Stale(f"what was pickled is gone: {e.detail}", e.clause) from e

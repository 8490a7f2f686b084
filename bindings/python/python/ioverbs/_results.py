# SPDX-License-Identifier: Apache-2.0
"""What calls return: facts, extents, search results."""

from __future__ import annotations

from typing import Literal, NamedTuple
from uuid import UUID

from ._values import Timestamp, Value

Kind = Literal["workspace", "group", "collection"]
State = Literal["staging", "open", "sealed"]


class Stat(NamedTuple):
    """Facts about a workspace, group or collection; what does not apply is 0 or ``None``."""

    kind: Kind
    """What it is."""
    state: State | None
    """Of a collection: may change (``open``), not sealed yet (``staging``), fixed for good (``sealed``)."""
    uuid: UUID
    """Its identity."""
    size: int
    """Length of a collection, use of a workspace, in bytes."""
    allocated: int
    """Space taken, redundancy included, in bytes."""
    entries: int
    """Members of a group, collections of a workspace."""
    abandoned: int
    """Holes left by dead appenders (M4)."""
    ctime: Timestamp | None
    """When it was made."""
    mtime: Timestamp | None
    """When its bytes last changed."""
    staleness: float
    """The answer may be this old, in seconds (C4)."""
    revision: int
    """Revision of the layout."""
    version: int
    """Version of the content; grows with each publication."""
    mode: int
    """Permission bits."""
    links: int
    """Number of names."""
    uid: int
    """Owner."""
    gid: int
    """Owning group."""
    quota_bytes: int | None
    """Of a workspace; ``None`` = unlimited."""
    quota_collections: int | None
    """Of a workspace; ``None`` = unlimited."""
    expires: Timestamp | None
    """Of a workspace; ``None`` = never."""
    lifetime: str | None = None
    """Of a collection that goes by itself: ``process``, or ``lease(10min)``."""
    filetype: int = 0
    """Of a collection: what a mount or ``iov run`` has made it as, such as ``stat.S_IFLNK`` for a symbolic link, whose bytes are where it
    leads; 0 = a file."""


class Extent(NamedTuple):
    """A stretch of a collection that is all of one kind."""

    offset: int
    length: int
    kind: Literal["data", "hole", "allocated", "abandoned"]
    """Bytes that somebody wrote; nothing; reserved space; the reservation of an appender that died (M4). All but data
    read as zeros."""
    target: int
    """The target that holds it."""


class Entry(NamedTuple):
    """A search result."""

    uuid: UUID
    """Its identity: ``ws.open(entry.uuid)`` opens it."""
    name: str | None
    """The name under which it was found; ``None`` = it has none."""
    kind: Kind
    """What it is."""
    group: UUID | None
    """The group it was found in; ``None`` = the root of the workspace."""
    metadata: dict[str, Value]
    """The keys that were asked for."""


class RangeLock(NamedTuple):
    """An advisory lock that somebody has."""

    offset: int
    length: int | None
    """``None`` = to the end, wherever that moves."""
    exclusive: bool
    owner: int
    """Tells owners within one session apart."""

# SPDX-License-Identifier: Apache-2.0
"""IOVerbs: storage whose promises the program chooses.

A store has workspaces, a workspace has collections: byte-addressable objects with typed metadata, whose controls say what
is promised about them.

>>> import ioverbs
>>> with ioverbs.open("mem:") as session:
...     ws = session.workspace("simulation", indexes=["temperature"])
...     with ws.create("run_1", {"temperature": 310}, consistency="session") as c:
...         _ = c.write(0, b"hello")
...     [entry.name for entry in ws.find("temperature > 300")]
...     ws["run_1"].read(0, 5)
['run_1']
b'hello'

``bindings/python/README.md`` is the guide. :mod:`ioverbs.aio` has the same with ``await``.
"""

from uuid import UUID as _UUID

from . import _ioverbs
from ._batch import Batch, Operation, Request, Status
from ._controls import ControlKeywords, Controls, normal_controls, profiles
from ._errors import (
    BatchError,
    Busy,
    Cancelled,
    Conflict,
    Corrupt,
    Denied,
    Error,
    Exhausted,
    Exists,
    Fenced,
    FileTooBig,
    Forked,
    Immutable,
    Internal,
    Invalid,
    Lost,
    NotEmpty,
    NotFound,
    Refused,
    Stale,
    Timeout,
    TooBig,
    Unavailable,
    Unsupported,
    Version,
)
from ._file import CollectionFile
from ._handles import Collection, Group, Lock
from ._ioverbs import __version__, daemon_shutdown, daemon_status, default_url
from ._metadata import MetadataView
from ._results import Entry, Extent, RangeLock, Stat
from ._search import Search
from ._session import Session, open
from ._values import Metadata, Timestamp, Value
from ._segments import Segments
from ._workspace import UNLIMITED, Workspace


def uuid7() -> _UUID:
    """A new UUID of version 7, as batch ids need."""
    return _UUID(bytes=_ioverbs.new_uuid())


def check_predicate(predicate: str, *params: Value) -> None:
    """Fails with :class:`Invalid`, and the position, if the predicate cannot be read. Asks no store."""
    _ioverbs.check_predicate(predicate, list(params))


__all__ = [
    "UNLIMITED",
    "Batch",
    "BatchError",
    "Busy",
    "Cancelled",
    "Collection",
    "CollectionFile",
    "Conflict",
    "ControlKeywords",
    "Controls",
    "Corrupt",
    "Denied",
    "Entry",
    "Error",
    "Exhausted",
    "Exists",
    "Extent",
    "Fenced",
    "FileTooBig",
    "Forked",
    "Group",
    "Immutable",
    "Internal",
    "Invalid",
    "Lock",
    "Lost",
    "Metadata",
    "MetadataView",
    "NotEmpty",
    "NotFound",
    "Operation",
    "RangeLock",
    "Refused",
    "Request",
    "Search",
    "Session",
    "Stale",
    "Stat",
    "Status",
    "Timeout",
    "Timestamp",
    "TooBig",
    "Unavailable",
    "Unsupported",
    "Value",
    "Version",
    "Segments",
    "Workspace",
    "__version__",
    "check_predicate",
    "daemon_shutdown",
    "daemon_status",
    "default_url",
    "normal_controls",
    "open",
    "profiles",
    "uuid7",
]

for _name in __all__:
    _public = globals()[_name]
    if isinstance(_public, type) and _public.__module__.startswith("ioverbs._"):
        # Where programs find it, so that messages and pickles say so.
        _public.__module__ = "ioverbs"
del _name, _public

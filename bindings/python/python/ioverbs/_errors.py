# SPDX-License-Identifier: Apache-2.0
"""The exceptions: one class for each kind of error, under :class:`Error`, and under a built-in one where there is one."""

from __future__ import annotations

import errno as _errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from ._batch import Status

Outcome = Literal["pending", "applied", "not applied", "unknown"]
"""Whether an operation has taken effect. After ``"unknown"`` a retry needs the same batch id."""

_OUTCOMES: tuple[Outcome, ...] = ("pending", "applied", "not applied", "unknown")


class Error(Exception):
    """Something went wrong. The class says what to do, :attr:`detail` what happened."""

    kind: ClassVar[str] = ""
    """The kind's name in C, such as ``"IOV_ENOTFOUND"``."""
    code: ClassVar[int] = 0
    """The kind's number."""
    detail: str
    """What happened and what to do."""
    clause: str | None
    """The clause of the semantics behind it, such as ``"C2"``; ``None`` if none is."""
    outcome: Outcome
    """Whether the operation has taken effect all the same."""

    def __init__(self, detail: str, clause: str | None = None, outcome: Outcome = "not applied") -> None:
        super().__init__(detail)
        this: Exception = self
        if isinstance(this, OSError):
            this.errno, this.strerror = _CLASSES[self.kind][2], detail
        self.detail = detail
        self.clause = clause
        self.outcome = outcome

    @property
    def offer(self) -> str | None:
        """What could be had instead of what was refused, as controls in text."""
        _, found, offer = self.detail.rpartition("; offer: ")
        return offer if found else None

    def __str__(self) -> str:
        clause = f", clause {self.clause}" if self.clause else ""
        return f"{self.detail} ({self.kind}{clause})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.detail, self.clause, self.outcome)


class Invalid(Error, ValueError):
    """An argument, text or handle is wrong. Correct the call; the detail says where."""


class Refused(Error):
    """This promise cannot be given here. Take the :attr:`~Error.offer`, or ask for less."""


class Unsupported(Error, NotImplementedError):
    """This backend, path or release cannot do it. Go another way; repeating is useless."""


class Version(Error):
    """Program, library and store do not fit together. Update the older one."""


class Forked(Error, RuntimeError):
    """The handle is of the process that this one was forked from. Open anew in this process."""


class NotFound(Error, FileNotFoundError, KeyError):
    """No such store, name, UUID or key. Check it, or create it."""


class Exists(Error, FileExistsError):
    """The name is taken. Look it up, or choose another."""


class NotEmpty(Error, OSError):
    """The group or workspace still holds something. Remove that first."""


class Conflict(Error):
    """Somebody else's change came first. Read again, then decide again."""


class Busy(Error, OSError):
    """Held exclusively, locked, pending or in flight. Wait, then repeat."""


class Denied(Error, PermissionError):
    """Not allowed to this identity. Ask the workspace's owner."""


class Immutable(Error, PermissionError):
    """Sealed, or append only. Write to a new collection."""


class Stale(Error, OSError):
    """Handle, cursor, token or batch id has outlived its lease. Look up anew."""


class Fenced(Error, OSError):
    """The exclusive hold has passed on; nothing from here applies. Close, then reopen."""


class Unavailable(Error, ConnectionError):
    """A server cannot be reached. Repeat later, with the same batch id."""


class Timeout(Error, TimeoutError):
    """Time is up. See the outcome, and repeat later with the same batch id."""


class Cancelled(Error):
    """Cancelled on request. The outcome says whether it took effect."""


class BatchError(Error):
    """Completed, but not every operation is ok. :attr:`statuses` tell which; the cause is the first that failed."""

    statuses: Sequence[Status] = ()
    """How each operation of the batch ended, in order."""


class Exhausted(Error, OSError):
    """Quota, space, memory or descriptors are used up. Free some, or get more."""


class TooBig(Error, OSError):
    """Too much for one batch, publication or buffer. Split it, or offer more room."""


class FileTooBig(Error, OSError):
    """Beyond the largest ``collection_size``. Use a collection with a larger limit."""


class Corrupt(Error, OSError):
    """These are not the bytes that were written. Do not use them; restore them from a copy."""


class Lost(Error, OSError):
    """Gone with a medium that did not promise to keep them. Make them again."""


class Internal(Error, RuntimeError):
    """A defect of library or server. Report it with its detail."""


_CLASSES: dict[str, tuple[int, type[Error], int]] = {
    "IOV_EINVALID": (1010, Invalid, _errno.EINVAL),
    "IOV_EREFUSED": (1011, Refused, _errno.EOPNOTSUPP),
    "IOV_EUNSUPPORTED": (1012, Unsupported, _errno.EOPNOTSUPP),
    "IOV_EVERSION": (1013, Version, _errno.EPROTO),
    "IOV_EFORKED": (1014, Forked, _errno.ECHILD),
    "IOV_ENOTFOUND": (1020, NotFound, _errno.ENOENT),
    "IOV_EEXISTS": (1021, Exists, _errno.EEXIST),
    "IOV_ENOTEMPTY": (1022, NotEmpty, _errno.ENOTEMPTY),
    "IOV_ECONFLICT": (1023, Conflict, _errno.EAGAIN),
    "IOV_EBUSY": (1024, Busy, _errno.EBUSY),
    "IOV_EDENIED": (1025, Denied, _errno.EACCES),
    "IOV_EIMMUTABLE": (1026, Immutable, _errno.EPERM),
    "IOV_ESTALE": (1027, Stale, _errno.ESTALE),
    "IOV_EFENCED": (1028, Fenced, _errno.ESTALE),
    "IOV_EUNAVAILABLE": (1040, Unavailable, _errno.EAGAIN),
    "IOV_ETIMEOUT": (1041, Timeout, _errno.ETIMEDOUT),
    "IOV_ECANCELLED": (1042, Cancelled, _errno.ECANCELED),
    "IOV_EPARTIAL": (1043, BatchError, _errno.EIO),
    "IOV_EEXHAUSTED": (1050, Exhausted, _errno.ENOSPC),
    "IOV_ETOOBIG": (1051, TooBig, _errno.E2BIG),
    "IOV_EFILETOOBIG": (1052, FileTooBig, _errno.EFBIG),
    "IOV_ECORRUPT": (1060, Corrupt, _errno.EIO),
    "IOV_ELOST": (1061, Lost, _errno.EIO),
    "IOV_EINTERNAL": (1090, Internal, _errno.EIO),
}

_BY_CODE = {code: class_ for code, class_, _ in _CLASSES.values()}
for _kind, (_code, _class, _) in _CLASSES.items():
    _class.kind, _class.code = _kind, _code


def make(code: int, outcome: int, clause: str | None, detail: str) -> Error:
    """The exception for an error of the native half."""
    return _BY_CODE.get(code, Internal)(detail, clause, _OUTCOMES[outcome])

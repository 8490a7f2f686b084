# SPDX-License-Identifier: Apache-2.0
"""A store as a tree of paths: workspaces, the groups in them as directories, collections as files."""

from __future__ import annotations

import errno
import os
import stat as modes
import threading
from dataclasses import dataclass
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Literal, NoReturn, TypeVar
from uuid import UUID

from .._batch import Batch, OnError
from .._errors import Busy, Error, Exists, Invalid, NotFound, Stale, Unavailable
from .._handles import Group
from .._results import Entry, Stat
from .._session import Session, SessionArguments
from .._values import Timestamp
from .._workspace import Workspace
from ._drive import Drive
from ._paths import PROTOCOL, Parts, follow, path_of

T = TypeVar("T")
Kind = Literal["directory", "file", "link", "other"]

KEYS = ("iov.size", "iov.mode", "iov.owner", "iov.mtime", "iov.ctime")
"""What a listing asks for."""
MOST_LINKS = 40
"""Symbolic links that one path may go through."""
FRESH = 1.0
"""How long workspaces and directories are taken to be where they were found, in seconds; what this file system changes itself is
seen at once."""
_TRIES = 16
"""How often others may change what is just being made."""
_GROUPS = 4096
"""Directories that are remembered."""


def missing(path: str, why: Error | None = None) -> NoReturn:
    """There is no such path."""
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from why


def not_a_directory(path: str) -> NoReturn:
    """Something in the path holds no names."""
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def is_a_directory(path: str) -> NoReturn:
    """It holds names, and no bytes."""
    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


def exists(path: str, why: Error | None = None) -> NoReturn:
    """The path is taken."""
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from why


@dataclass(slots=True)
class Found:
    """What a path leads to."""

    parts: Parts
    kind: Kind
    uuid: UUID | None
    size: int
    mode: int
    uid: int
    gid: int | None
    links: int
    ctime: Timestamp | None
    mtime: Timestamp | None
    version: int | None
    """Grows with each publication; ``None``: a listing, which does not tell."""

    def info(self) -> dict[str, Any]:
        """As fsspec tells it."""
        out: dict[str, Any] = {
            "name": path_of(self.parts),
            "size": self.size,
            "type": self.kind,
            "mode": self.mode,
            "uid": self.uid,
            "created": None if self.ctime is None else self.ctime.timestamp(),
            "mtime": None if self.mtime is None else self.mtime.timestamp(),
            "uuid": None if self.uuid is None else str(self.uuid),
        }
        if self.version is not None:
            out |= {"gid": self.gid, "nlink": self.links, "version": self.version}
        return out


def kind_of(mode: int) -> Kind:
    """What a front door of POSIX has made of a collection."""
    match modes.S_IFMT(mode):
        case 0 | modes.S_IFREG:
            return "file"
        case modes.S_IFLNK:
            return "link"
        case _:
            return "other"


def directory(parts: Parts) -> Found:
    """The store or a workspace."""
    return Found(parts, "directory", None, 0, modes.S_IFDIR | 0o700, os.geteuid(), None, 1, None, None, None)


def of_stat(parts: Parts, stat: Stat) -> Found:
    """What the facts say."""
    kind: Kind = "directory" if stat.kind == "group" else kind_of(stat.filetype)
    mode = stat.mode | (modes.S_IFDIR if kind == "directory" else stat.filetype or modes.S_IFREG)
    return Found(
        parts, kind, stat.uuid, stat.size, mode, stat.uid, stat.gid, stat.links, stat.ctime, stat.mtime, stat.version
    )


def of_entry(above: Parts, entry: Entry) -> Found:
    """What a listing says."""
    got: dict[str, Any] = entry.metadata
    parts = (*above, os.fsencode(entry.name or f"uuid:{entry.uuid}"))
    mode = int(got.get("iov.mode", 0))
    kind: Kind = "directory" if entry.kind == "group" else kind_of(mode)
    mode |= modes.S_IFDIR if kind == "directory" else 0 if modes.S_IFMT(mode) else modes.S_IFREG
    size = int(got.get("iov.size", 0)) if kind != "directory" else 0
    owner = int(got.get("iov.owner", 0))
    return Found(parts, kind, entry.uuid, size, mode, owner, None, 1, got.get("iov.ctime"), got.get("iov.mtime"), None)


_lock = threading.Lock()
"""Held while a session is opened, so that all who want it first get the same."""
os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock()))


class Store:
    """A session in this process, and the workspaces and directories that were used. Any thread. A child of a fork opens its own."""

    def __init__(self, arguments: SessionArguments) -> None:
        self._arguments = arguments
        self._pid = 0
        self._session: Session | None = None
        self._workspaces: dict[bytes, tuple[Workspace, float]] = {}
        self._groups: dict[Parts, tuple[Group, float]] = {}

    @property
    def url(self) -> str | None:
        """The store that was asked for."""
        return self._arguments.url

    @property
    def opened(self) -> Session | None:
        """The session, if this process has one."""
        return self._session if self._pid == os.getpid() else None

    def session(self) -> Session:
        """The session, which is opened when it is needed."""
        with _lock:
            if (session := self.opened) is not None:
                return session
            self._workspaces, self._groups = {}, {}
            try:
                self._session = session = Session(self._arguments)
            except (Invalid, NotFound, Unavailable) as e:
                if (self.url or "").startswith(f"{PROTOCOL}://"):
                    e.add_note(f"{self.url} names a host; {PROTOCOL}:///WORKSPACE/PATH is in the default store")
                raise
            self._pid = os.getpid()
            return session

    def known(self, name: bytes) -> Workspace | None:
        """A workspace that was opened a moment ago."""
        ws, until = self._workspaces.get(name, (None, 0.0))
        return ws if ws is not None and monotonic() < until and self.opened else None

    def workspace(self, name: bytes) -> Workspace:
        """Opens a workspace."""
        since = monotonic()
        ws = self.session().workspace(name, create=False)
        self._workspaces[name] = (ws, since + FRESH)
        return ws

    def group(self, parts: Parts) -> Group | None:
        """A directory that was looked up a moment ago."""
        group, until = self._groups.get(parts, (None, 0.0))
        return group if group is not None and monotonic() < until and self.opened else None

    def note(self, parts: Parts, group: Group, since: float) -> None:
        """A directory was looked up."""
        if len(self._groups) >= _GROUPS:
            self._groups = {}
        self._groups[parts] = (group, since + FRESH)

    def remembers(self, parts: Parts) -> bool:
        """Whether something on the way to a path was looked up before, so that it may be elsewhere by now."""
        return bool(parts) and self.known(parts[0]) is not None

    def forget_all(self) -> None:
        """Workspaces and directories may be elsewhere."""
        self._workspaces, self._groups = {}, {}

    def forget(self, name: bytes) -> None:
        """A workspace may be gone, and directories be elsewhere."""
        self._workspaces.pop(name, None)
        self._groups = {}


class Tree:
    """What all operations on paths need. Any thread."""

    def __init__(self, store: Store, drive: Drive) -> None:
        self.store = store
        self.drive = drive

    # -- Steps

    async def batch(self, error: OnError | None = None) -> Batch:
        """An empty batch, whose operations tell themselves how they ended."""
        session = self.store.opened
        if session is None:
            session = await self.drive.call(self.store.session)
        return session.batch(error=error, progress=self.drive.progress, check=False)

    async def workspace(self, parts: Parts) -> Workspace:
        """The workspace of a path."""
        if (known := self.store.known(parts[0])) is not None:
            return known
        if self.store.opened is None:
            await self.drive.call(self.store.session)
        try:
            return await self.drive.call(self.store.workspace, parts[0])
        except NotFound as e:
            e.add_note(f"{path_of(parts)}: make the workspace first, by mkdir or with iov ws create")
            missing(path_of(parts), e)

    async def place(self, parts: Parts) -> Workspace | Group:
        """The workspace or group of a directory."""
        if len(parts) == 1:
            return await self.workspace(parts)
        if (known := self.store.group(parts)) is not None:
            return known
        since = monotonic()
        above = await self.place(parts[:-1])
        batch = await self.batch()
        asked = batch.look(above, parts[-1])
        await self.drive.batch(batch)
        try:
            stat = asked.result()
        except (NotFound, Stale) as e:
            self.gone(parts, e)
        if kind_of(stat.filetype) == "link":
            return await self.place(await self.resolve(parts))
        if stat.kind != "group":
            not_a_directory(path_of(parts))
        group = Group._unopened(await self.workspace(parts), parts[-1], stat.uuid)
        self.store.note(parts, group, since)
        return group

    def gone(self, parts: Parts, why: Error) -> NoReturn:
        """There is no such path, now. A workspace that was made anew under its old name is found the next time."""
        self.store.forget(parts[0])
        missing(path_of(parts), why)

    # -- Facts

    async def fresh(self, parts: Parts, action: Callable[[], Awaitable[T]]) -> T:
        """What an action says of a path. That something is not there is said by what is looked up anew only."""
        known = self.store.remembers(parts)
        try:
            return await action()
        except (FileNotFoundError, NotADirectoryError, Stale):
            if not known:
                raise
        self.store.forget(parts[0])
        return await action()

    async def look(self, parts: Parts) -> Found:
        """What a path leads to; its last name is not followed."""
        return await self.fresh(parts, lambda: self._look(parts))

    async def _look(self, parts: Parts) -> Found:
        if not parts:
            return directory(parts)
        if len(parts) == 1:
            return await self._look_at_workspace(parts)
        at = await self.place(parts[:-1])
        batch = await self.batch()
        asked = batch.look(at, parts[-1])
        await self.drive.batch(batch)
        try:
            return of_stat(parts, asked.result())
        except (NotFound, Stale) as e:
            missing(path_of(parts), e)

    async def _look_at_workspace(self, parts: Parts) -> Found:
        ws = await self.workspace(parts)
        batch = await self.batch()
        asked = batch.stat(ws)
        await self.drive.batch(batch)
        try:
            asked.result()
        except (NotFound, Stale):
            # It was deleted, and may have been made again.
            self.store.forget(parts[0])
            await self.workspace(parts)
        return directory(parts)

    async def info(self, parts: Parts) -> Found:
        """What a path leads to. Symbolic links are followed; a dangling one is told as ``link``."""
        found = await self.look(parts)
        return found if found.kind != "link" else await self._follow(found)

    async def resolve(self, parts: Parts) -> Parts:
        """The path without symbolic links."""
        done, rest = parts[:1], parts[1:]
        links = 0
        while rest:
            here = (*done, rest[0])
            found = await self.look(here)
            if found.kind != "link":
                if len(rest) > 1 and found.kind != "directory":
                    not_a_directory(path_of(parts))
                done, rest = here, rest[1:]
                continue
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path_of(parts))
            batch = await self.batch()
            link = batch.open(await self.place(done), rest[0])
            target = batch.read(link, 0, 4096)
            batch.close(link)
            await self.drive.batch(batch)
            onward = follow(here, target.result(), rest[1:])
            if onward is None:
                why = "the symbolic link leads out of the workspace"
                raise FileNotFoundError(errno.ENOENT, why, path_of(here), None, path_of(parts))
            done, rest = onward[:1], onward[1:]
        return done

    async def entries(self, parts: Parts) -> list[Found]:
        """What a directory holds, in the order of names; of a file, itself. Symbolic links to files are told as what they lead to, those to
        directories as links, so that who goes through a tree comes to its end."""
        found = await self.fresh(parts, lambda: self._entries(parts))
        for i, one in enumerate(found):
            if one.kind == "link":
                real = await self._follow(one)
                found[i] = one if real.kind == "directory" else real
        return found

    async def _follow(self, found: Found) -> Found:
        """What a symbolic link leads to, under its name; itself if that is nothing."""
        try:
            real = await self.look(await self.resolve(found.parts))
        except OSError as e:
            if isinstance(e, (FileNotFoundError, NotADirectoryError)) or e.errno == errno.ELOOP:
                return found
            raise
        real.parts = found.parts
        return real

    async def _entries(self, parts: Parts) -> list[Found]:
        if not parts:
            session = await self.drive.call(self.store.session)
            entries = await self.drive.call(lambda: session.workspaces(order="iov.name").all())
            return [directory((os.fsencode(entry.name or ""),)) for entry in entries]
        try:
            place = await self.place(parts)
        except NotADirectoryError:
            return [await self.info(parts)]
        try:
            entries = await self.drive.call(lambda: place.list(keys=KEYS).all())
        except (NotFound, Stale) as e:
            self.gone(parts, e)
        return [of_entry(parts, entry) for entry in entries]

    # -- Directories

    async def make(
        self, parts: Parts, *, parents: bool = True, exist_ok: bool = True, workspaces: bool = True
    ) -> Workspace | Group:
        """Makes a directory, and those above it. A path of one name is a workspace; without `workspaces` none is made."""
        if not parts:
            raise Invalid("a path begins with a workspace")
        for _ in range(_TRIES):
            try:
                there = await self.place(parts)
            except FileNotFoundError:
                if len(parts) == 1 and not workspaces:
                    raise
            except NotADirectoryError:
                await self.look(parts)
                exists(path_of(parts))
            else:
                if not exist_ok:
                    exists(path_of(parts))
                return there
            if len(parts) == 1:
                session = await self.drive.call(self.store.session)
                try:
                    await self.drive.call(lambda: session.workspace(parts[0], exist_ok=False))
                    return await self.workspace(parts)
                except Exists:
                    continue
            try:
                above = await self.place(parts[:-1])
            except FileNotFoundError:
                if not parents:
                    raise
                above = await self.make(parts[:-1], workspaces=workspaces)
            since = monotonic()
            batch = await self.batch()
            made = batch.group(above, parts[-1])
            batch.close(made)
            await self.drive.batch(batch)
            match first_error(batch)[1]:
                case None:
                    group = Group._unopened(await self.workspace(parts), parts[-1], made.uuid)
                    self.store.note(parts, group, since)
                    return group
                case Exists():
                    # Somebody was faster, or it is no directory.
                    self.store.forget(parts[0])
                    if (await self.look(parts)).kind == "link":
                        missing(path_of(parts))
                case NotFound() | Stale():
                    self.store.forget(parts[0])
                case error:
                    raise error
        raise Busy(f"{path_of(parts)}: others change it all the time")


def first_error(batch: Batch) -> tuple[int, Error | None]:
    """The operation that failed first, and its error."""
    bad = [status for status in batch.statuses if status.error is not None]
    if not bad:
        return len(batch), None
    first = next((status for status in bad if status.state == "failed"), bad[0])
    return first.index, first.error

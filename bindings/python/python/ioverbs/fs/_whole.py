# SPDX-License-Identifier: Apache-2.0
"""Whole files: made, replaced, copied, moved and removed, each in as few requests as can be.

What is written is a new collection, which takes the name when it is complete: who reads sees the old bytes or the new ones, and
what a program that died has begun goes with it.
"""

from __future__ import annotations

import errno
import gc
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from time import sleep
from typing import TYPE_CHECKING
from uuid import uuid4

from .._batch import Batch
from .._buffers import bytes_of
from .._errors import Busy, Error, Exists, Invalid, NotFound, Stale
from .._handles import Collection, Group
from .._results import Stat
from .._values import Metadata
from .._workspace import Workspace
from ._paths import Parts, path_of
from ._reading import FILES, PIECE, Controls, Reading
from ._tree import exists, first_error, is_a_directory, missing, not_a_directory

if TYPE_CHECKING:
    from .._buffers import ReadableBuffer

WHOLE = 4 << 20
"""What goes in one batch with the name; more goes in pieces into a collection that has no name yet."""
COPY = 256 << 20
"""Bytes that the store copies at a time, so that no request lasts long."""
_TRIES = 16
"""How often others may change what is just being replaced."""


class Files(Reading):
    """Operations on whole files. Any thread."""

    make_parents = True
    """Whether directories are made for what is written in them."""

    # -- Writing

    async def write(
        self,
        parts: Parts,
        data: ReadableBuffer,
        *,
        exclusive: bool = False,
        metadata: Metadata | None = None,
        controls: Controls = None,
    ) -> None:
        """Writes a file, new or in the place of one that is there."""
        whole = bytes_of(data)
        if whole.nbytes <= WHOLE:
            await self.whole(parts, lambda batch, new: batch.write(new, 0, whole), exclusive, metadata, controls)
            return
        async with self._made(parts, exclusive, metadata, controls) as new:
            for offset in range(0, whole.nbytes, PIECE):
                batch = await self.batch()
                written = batch.write(new, offset, whole[offset : offset + PIECE])
                await self.drive.batch(batch)
                written.result()

    async def whole(
        self,
        parts: Parts,
        fill: Callable[[Batch, Collection], object],
        exclusive: bool,
        metadata: Metadata | None,
        controls: Controls,
    ) -> None:
        """Makes or replaces a file by what `fill` puts into a batch, which is all there is to do if the file is new. Until it has its
        name it goes with this process."""
        if len(parts) < 2:
            is_a_directory(path_of(parts))
        for last in (False, True):
            at = await self._place(parts[:-1])
            batch = await self.batch("stop")
            new = self._nameless(batch, await self.workspace(parts), metadata, controls)
            fill(batch, new)
            # What does not fit, or may not be, is told before the name is given.
            batch.commit(new)
            batch.setattr(new, lifetime="workspace")
            batch.link(new, at, parts[-1])
            try:
                await self.drive.batch(batch)
            except BaseException:
                await self.discard(new)
                raise
            index, error = first_error(batch)
            if error is None:
                await self._close(new)
                return
            if index == len(batch) - 1:
                # The name is taken, or the directory is not where it was.
                await self.publish(new, parts, exclusive)
                return
            if index == 0 and isinstance(error, (NotFound, Stale)) and not last:
                # The workspace is not the one that it was.
                self.store.forget(parts[0])
                continue
            await self.discard(new)
            raise error

    @staticmethod
    def _nameless(batch: Batch, ws: Workspace, metadata: Metadata | None, controls: Controls) -> Collection:
        new = batch.create(ws, None, metadata, controls=controls)
        batch.setattr(new, lifetime="process")
        return new

    async def _close(self, new: Collection) -> None:
        batch = await self.batch()
        closed = batch.close(new)
        await self.drive.batch(batch)
        closed.result()

    async def begin(
        self, parts: Parts, exclusive: bool, metadata: Metadata | None, controls: Controls
    ) -> Collection:
        """A new collection that has no name yet, and goes with this process if it gets none. What would keep it from its name is told
        now where it can be."""
        if len(parts) < 2:
            is_a_directory(path_of(parts))
        await self._place(parts[:-1])
        ws = await self.workspace(parts)
        if exclusive and await self.is_there(parts):
            exists(path_of(parts))
        batch = await self.batch("stop")
        new = self._nameless(batch, ws, metadata, controls)
        try:
            await self.drive.batch(batch)
        except BaseException:
            await self.discard(new)
            raise
        _, error = first_error(batch)
        if error is not None:
            raise error
        return new

    @asynccontextmanager
    async def _made(
        self, parts: Parts, exclusive: bool, metadata: Metadata | None, controls: Controls
    ) -> AsyncIterator[Collection]:
        """A new collection, which gets its name at the end of the block, and is dropped if that fails."""
        new = await self.begin(parts, exclusive, metadata, controls)
        try:
            yield new
        except BaseException:
            await self.discard(new)
            raise
        await self.publish(new, parts, exclusive)

    async def open_or_make(
        self, parts: Parts, metadata: Metadata | None, controls: Controls
    ) -> tuple[Collection, Stat]:
        """Opens a file; one that is not there is made, by whoever comes first."""
        try:
            return await self.open(parts)
        except FileNotFoundError:
            with suppress(FileExistsError):
                await self.write(parts, b"", exclusive=True, metadata=metadata, controls=controls)
        return await self.open(parts)

    async def publish(self, new: Collection, parts: Parts, exclusive: bool) -> None:
        """Gives a new collection its name, in the place of what has it, and closes it; drops it where that fails."""
        try:
            batch = await self.batch()
            committed = batch.commit(new)
            await self.drive.batch(batch)
            committed.result()
            await self._name(new, parts, exclusive)
        except BaseException:
            await self.discard(new)
            raise
        await self._close(new)

    async def discard(self, new: Collection) -> None:
        """Drops a new collection, unless it has got its name all the same: then it has taken the place of what was there before."""
        with suppress(Error):
            uuid = new.uuid
            batch = await self.batch()
            batch.close(new)
            asked = batch.look(new.workspace, uuid)
            await self.drive.batch(batch)
            if asked.result().links == 0:
                batch = await self.batch()
                batch.delete(new.workspace, uuid)
                await self.drive.batch(batch)

    async def _name(self, new: Collection, parts: Parts, exclusive: bool) -> None:
        replace = False
        for _ in range(_TRIES):
            at = await self._place(parts[:-1])
            batch = await self.batch("rollback")
            batch.setattr(new, lifetime="workspace")
            if replace:
                # Only a file is replaced: what is a directory by now is not opened.
                batch.open(at, parts[-1])
                before = f".{uuid4()}.new".encode()
                batch.link(new, at, before)
                batch.rename(at, before, parts[-1])
            else:
                batch.link(new, at, parts[-1])
            await self.drive.batch(batch)
            match first_error(batch)[1]:
                case None:
                    return
                case Exists() as error if exclusive:
                    exists(path_of(parts), error)
                case Exists() | Invalid() as error:
                    try:
                        there = await self.look(parts)
                    except FileNotFoundError:
                        continue
                    if there.kind == "directory":
                        is_a_directory(path_of(parts))
                    if isinstance(error, Invalid):
                        raise error
                    replace = there.kind != "link"
                    parts = parts if replace else await self.resolve(parts)
                case NotFound() | Stale():
                    # The file that was to be replaced, or a directory that was there a moment ago.
                    replace = False
                    self.store.forget(parts[0])
                case error:
                    raise error
        raise Busy(f"{path_of(parts)}: others change it all the time")

    async def expect(self, parts: Parts, *, exclusive: bool) -> None:
        """Tells early what would keep a file from being made."""
        if len(parts) < 2:
            is_a_directory(path_of(parts))
        try:
            found = await self.info(parts)
        except FileNotFoundError:
            await self._place(parts[:-1])
            return
        if found.kind == "link" and not exclusive:
            missing(path_of(parts))
        if found.kind == "directory":
            is_a_directory(path_of(parts))
        if exclusive:
            exists(path_of(parts))

    async def is_there(self, parts: Parts) -> bool:
        """Whether a path leads somewhere. What cannot be a name leads nowhere."""
        try:
            found = await self.info(parts)
        except (FileNotFoundError, NotADirectoryError, Invalid):
            return False
        return found.kind != "link"

    async def _place(self, parts: Parts) -> Workspace | Group:
        """The directory for a new file."""
        try:
            return await self.place(parts)
        except FileNotFoundError:
            if not self.make_parents or len(parts) < 2:
                raise
            # Who writes a file does not say that there is to be a workspace: its name may be a mistake.
            return await self.make(parts, workspaces=False)

    # -- Names

    async def copy(self, source: Parts, target: Parts, controls: Controls = None) -> Stat | None:
        """Copies a file with its metadata, within the store, and tells the facts of what was copied; of a directory, makes one. A path of
        one name is a workspace, which is made only if it is the target itself."""
        try:
            old, stat = await self.open(source)
        except IsADirectoryError:
            await self.no_link_to_a_directory(source)
            await self.make(target, workspaces=len(target) == 1)
            return None
        batch = await self.batch()
        metadata = batch.metadata(old)
        await self.drive.batch(batch)
        try:
            await self._copy(old, stat.size, target, metadata.result(), controls)
        finally:
            await self._close(old)
        return stat

    async def _copy(self, old: Collection, size: int, target: Parts, pairs: Metadata, controls: Controls) -> None:
        if size <= WHOLE:
            await self.whole(target, lambda b, new: b.copy(old, 0, new, 0, size), False, pairs, controls)
            return
        async with self._made(target, False, pairs, controls) as new:
            for offset in range(0, size, COPY):
                batch = await self.batch()
                copied = batch.copy(old, offset, new, offset, min(COPY, size - offset))
                await self.drive.batch(batch)
                copied.result()

    async def no_link_to_a_directory(self, parts: Parts) -> None:
        """A copy of a tree has what is in it: what is left out is told of."""
        if len(parts) > 1 and (await self.look(parts)).kind == "link":
            why = "a symbolic link to a directory is not copied: name what it leads to"
            raise IsADirectoryError(errno.EISDIR, why, path_of(parts))

    async def move(self, source: Parts, target: Parts) -> None:
        """Moves a file or directory within a workspace, in one step; replaces a file or an empty directory."""
        if source == target:
            await self.look(source)
            return
        self.store.forget(source[0])
        is_directory = (await self.look(source)).kind == "directory"
        try:
            there = await self.look(target)
        except FileNotFoundError:
            await self._place(target[:-1])
        else:
            if there.kind == "directory" and not is_directory:
                is_a_directory(path_of(target))
            if there.kind != "directory" and is_directory:
                not_a_directory(path_of(target))
        at, to = await self.place(source[:-1]), await self.place(target[:-1])
        batch = await self.batch()
        batch.rename(at, source[-1], target[-1], to=to)
        await self.drive.batch(batch)
        self.store.forget(source[0])
        _, error = first_error(batch)
        if isinstance(error, (NotFound, Stale)):
            missing(path_of(source), error)
        if error is not None:
            raise error

    async def remove(self, parts: Parts) -> None:
        """Removes a file, or a symbolic link."""
        if len(parts) < 2:
            is_a_directory(path_of(parts))
        # What others have moved away is theirs: nothing that was looked up before counts here.
        self.store.forget(parts[0])
        if (await self.look(parts)).kind == "directory":
            is_a_directory(path_of(parts))
        await self._remove([parts])

    async def remove_directory(self, parts: Parts) -> None:
        """Removes an empty directory; of a path with one name, an empty workspace."""
        if not parts:
            raise Invalid("the store cannot be removed")
        self.store.forget(parts[0])
        if (await self.look(parts)).kind != "directory":
            not_a_directory(path_of(parts))
        if len(parts) > 1:
            await self._remove([parts])
            self.store.forget(parts[0])
            return
        session = await self.drive.call(self.store.session)
        self.store.forget(parts[0])
        for pause in (0.0, 0.01, 0.1):
            try:
                await self.drive.call(session.delete_workspace, parts[0])
                return
            except Busy:
                # Exceptions keep the handles that they passed by until the collector comes, and what that gives back is on its way.
                gc.collect()
                await self.drive.call(sleep, pause)
        await self.drive.call(session.delete_workspace, parts[0])

    async def remove_tree(self, roots: Iterable[Parts], *, directories_too: bool, below: bool) -> None:
        """Removes files and, if that is asked for, directories, with all below them: first the files, then the deepest directories.
        What is gone already is no error."""
        self.store.forget_all()
        files: list[Parts] = []
        directories: list[Parts] = []
        todo = [await self.look(parts) for parts in roots]
        if any(not found.parts for found in todo):
            raise Invalid("the store cannot be removed: name workspaces")
        while todo:
            found = todo.pop()
            if found.kind != "directory":
                files.append(found.parts)
                continue
            if not directories_too:
                is_a_directory(path_of(found.parts))
            directories.append(found.parts)
            if below:
                todo += await self.entries(found.parts)
        await self._remove(files)
        deep: dict[int, list[Parts]] = {}
        for parts in directories:
            deep.setdefault(len(parts), []).append(parts)
        for _, level in sorted(deep.items(), reverse=True):
            if len(level[0]) > 1:
                await self._remove(level)
                continue
            for parts in level:
                await self.remove_directory(parts)
        for name in {level[0][0] for level in deep.values()}:
            self.store.forget(name)

    async def _remove(self, names: Iterable[Parts]) -> None:
        """Removes names, in any order."""
        todo = list(names)
        for i in range(0, len(todo), FILES):
            batch = await self.batch()
            gone = []
            for parts in todo[i : i + FILES]:
                gone.append(batch.delete(await self.place(parts[:-1]), parts[-1]))
            await self.drive.batch(batch)
            for one in gone:
                try:
                    one.result()
                except (NotFound, Stale):
                    pass

# SPDX-License-Identifier: Apache-2.0
"""What the file system does with trees: walks, copies, moves, and what goes from and to the local file system."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

from fsspec.asyn import AsyncFileSystem, sync
from fsspec.callbacks import NoOpCallback

from ._drive import now
from ._local import receive, send
from ._moving import Moves, apart
from ._paths import Parts, path_of
from ._reading import Controls
from ._walking import Step, walk

_QUIET = NoOpCallback()
"""Tells nobody how far a transfer is."""


class Transfers(AsyncFileSystem):  # type: ignore[misc]
    """The part of :class:`IOVFileSystem` that goes through trees. fsspec says what a path with patterns means, and what is copied where."""

    controls: Controls
    _blocking: Moves
    _awaiting: Moves

    def _parts(self, path: Any) -> Parts:
        raise NotImplementedError

    def _named(self, path: Any) -> Parts:
        raise NotImplementedError

    def _born(self, mode: str, options: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    # -- Walks

    async def _walk(
        self, path: Any, maxdepth: int | None = None, topdown: bool = True, on_error: Any = None, **options: Any
    ) -> AsyncIterator[Step]:
        detail = options.get("detail", False)
        async for step in walk(self._awaiting, self._named(path), maxdepth, topdown, on_error, detail):
            yield step

    def walk(
        self, path: Any, maxdepth: int | None = None, topdown: bool = True, on_error: Any = None, **options: Any
    ) -> Iterator[Step]:
        """Each directory from `path` on with the names in it, as :func:`os.walk`. A directory that cannot be listed is an error, unless it
        is not there; ``on_error="omit"`` leaves it out, ``"raise"`` and a function that takes the error are as of fsspec.
        `find`, `glob` and `du` take it as well. ``detail=True``: facts by name."""
        steps = walk(self._blocking, self._named(path), maxdepth, topdown, on_error, options.get("detail", False))
        while True:
            try:
                yield now(steps.__anext__())  # type: ignore[arg-type]
            except StopAsyncIteration:
                return

    # -- From and to the local file system

    async def _get_file(self, rpath: str, lpath: Any, callback: Any = _QUIET, **_: Any) -> None:
        if await self._isdir(rpath):
            await self._awaiting.no_link_to_a_directory(self._parts(rpath))
            os.makedirs(lpath, exist_ok=True)
            return
        opened = await self._awaiting.open(self._parts(rpath))
        await self._awaiting.drive.call(receive, opened, lpath, callback)

    async def _put(self, lpath: Any, rpath: Any, *arguments: Any, **options: Any) -> Any:
        for one in rpath if isinstance(rpath, list) else [rpath]:
            await self._workspace_for(self._parts(one))
        return await super()._put(lpath, rpath, *arguments, **options)

    async def _put_file(
        self, lpath: Any, rpath: str, callback: Any = _QUIET, mode: str = "overwrite", **options: Any
    ) -> None:
        parts = self._parts(rpath)
        if os.path.isdir(lpath):
            await self._awaiting.make(parts, workspaces=len(parts) == 1)
            return
        born = self._born(mode, options)
        await self._awaiting.drive.call(send, self._blocking, lpath, parts, callback, born)

    async def _workspace_for(self, parts: Parts) -> None:
        """What is put into a workspace does not make it: fsspec makes whatever directories there are, and may take what is missing for
        something that has gone meanwhile."""
        if len(parts) > 1:
            await self._awaiting.workspace(parts[:1])

    # -- Copies

    async def _cp_file(self, path1: str, path2: str, plan: list[tuple[str, str]] | None = None, **_: Any) -> None:
        if plan is not None:
            plan.append((path1, path2))
            return
        await self._awaiting.copy(self._parts(path1), self._parts(path2), self.controls)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copies a file with its metadata, within the store."""
        now(self._blocking.copy(self._parts(path1), self._parts(path2), self.controls))

    async def _plan(self, path1: Any, path2: Any, recursive: bool, maxdepth: int | None) -> list[tuple[str, str]]:
        """What a copy would make of what."""
        plan: list[tuple[str, str]] = []
        await super()._copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error="raise", plan=plan)
        return plan

    async def _copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        on_error: str | None = None,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        plan = await self._plan(path1, path2, recursive, maxdepth)
        new = {self._parts(target) for _, target in plan}
        made = {parts[0] for parts in new if len(parts) == 1}
        for name in {parts[0] for parts in new if parts} - made:
            await self._awaiting.workspace((name,))
        # A directory that becomes a workspace is there before what is in it: all others are copied in any order.
        for source, target in plan:
            if len(self._parts(target)) < 2:
                await self._cp_file(source, target)
        rest = [pair for pair in plan if len(self._parts(pair[1])) > 1]
        if rest:
            on_error = on_error or ("ignore" if recursive else "raise")
            await super()._copy([old for old, _ in rest], [new for _, new in rest], on_error=on_error, **options)

    # -- Moves

    def mv_file(self, path1: str, path2: str, **_: Any) -> None:
        """Moves a file or directory; within a workspace in one step, else by a copy, and what was copied is removed then. It replaces a file
        or an empty directory.

        :raises Invalid: It would lie in itself. :raises Busy: Files that somebody changed meanwhile are in both places."""
        old, new = self._named(path1), self._parts(path2)
        if old == new and old:
            now(self._blocking.look(old))
        elif len(old) > 1 and len(new) > 1 and old[0] == new[0]:
            apart([(old, new)])
            now(self._blocking.move(old, new))
        else:
            now(self._blocking.transfer(old, new, self.controls))

    async def _mv_file(self, path1: str, path2: str) -> None:
        await self._awaiting.drive.call(self.mv_file, path1, path2)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Moves what a path leads to, into `path2` if that is a directory; within a workspace in one step. What lists and patterns name is
        moved to where a copy would be, file by file; nothing is removed that was not moved. See :meth:`mv_file` for the errors."""
        plain = isinstance(path1, str) and isinstance(path2, str) and not any(c in path1 for c in "*?[")
        if not plain or maxdepth is not None:
            plan = sync(self.loop, self._plan, path1, path2, recursive, maxdepth)
            pairs = [(self._named(old), self._parts(new)) for old, new in plan]
            partly = maxdepth is not None
            now(self._blocking.move_all(pairs, directories=recursive, partly=partly, controls=self.controls))
            return
        old, new = self._named(path1), self._parts(path2)
        if old and old != new and (path2.endswith("/") or self.isdir(path2)):
            new = (*new, old[-1])
        self.mv_file(path1, path_of(new))

    rename = move = mv

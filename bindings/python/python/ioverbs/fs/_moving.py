# SPDX-License-Identifier: Apache-2.0
"""What is moved: by another name where that will do, else by a copy and the removal of exactly what was copied."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from .._errors import Busy, Invalid, NotEmpty
from .._results import Stat
from ._paths import Parts, path_of
from ._reading import Controls
from ._tree import Found, Kind, is_a_directory, not_a_directory
from ._whole import Files

Pair = tuple[Parts, Parts]
"""What is moved, and where to."""


def apart(pairs: Sequence[Pair]) -> None:
    """Refuses targets that are sources, or lie below one, and targets that two sources have: what was moved would be lost."""
    sources = {source for source, _ in pairs}
    targets: set[Parts] = set()
    for source, target in pairs:
        if not source:
            raise Invalid("the store cannot be moved: name workspaces")
        if not target:
            raise Invalid(f"{path_of(source)} cannot take the place of the store: name a workspace")
        if b".." in target:
            raise Invalid(f"{path_of(target)}: mounts could not show what has the name ..: move that elsewhere first")
        for n in range(1, len(target) + 1):
            if target[:n] in sources:
                why = "it is moved itself" if n == len(target) else f"that lies in {path_of(target[:n])}, which is moved itself"
                raise Invalid(f"{path_of(source)} cannot be moved to {path_of(target)}: {why}")
        if target in targets:
            raise Invalid(f"two files cannot both be moved to {path_of(target)}")
        targets.add(target)


class Moves(Files):
    """Operations on whole files and trees. Any thread."""

    async def transfer(self, source: Parts, target: Parts, controls: Controls = None) -> None:
        """Moves a file, or a directory with all below it, to another workspace; replaces a file or an empty directory. A path of one
        name is a workspace. Where it fails what was to be moved is still there, and some of it perhaps in both places.

        Errors: Invalid for a target that lies in the source; NotEmpty for a directory that holds something; Busy for files that were
        changed meanwhile, which are in both places."""
        apart([(source, target)])
        self.store.forget(source[0])
        found = await self.look(source)
        pairs = [(source, target)]
        if found.kind == "directory":
            for below in await self._below(source):
                pairs.append((below.parts, (*target, *below.parts[len(source) :])))
        try:
            there = await self.look(target)
        except FileNotFoundError:
            pass
        else:
            if there.kind == "directory" and found.kind != "directory":
                is_a_directory(path_of(target))
            if there.kind != "directory" and found.kind == "directory":
                not_a_directory(path_of(target))
            if there.kind == "directory" and await self.entries(target):
                raise NotEmpty(f"{path_of(target)} is a directory that holds something, and cannot be replaced")
        await self.move_all(pairs, directories=True, controls=controls)

    async def _below(self, parts: Parts) -> list[Found]:
        """All that is below a directory. What cannot be listed is an error."""
        out: list[Found] = []
        todo = [parts]
        while todo:
            entries = await self.entries(todo.pop())
            out += entries
            todo += [one.parts for one in entries if one.kind == "directory"]
        return out

    async def move_all(
        self, pairs: Sequence[Pair], *, directories: bool, partly: bool = False, controls: Controls = None
    ) -> None:
        """Moves files, each to its target: within a workspace in one step each, else by a copy. Of directories, which are made where
        they are to be, only what is among the pairs is moved; they are removed behind it.

        `directories`: whether there may be any. `partly`: those that still hold something stay, without an error."""
        apart(pairs)
        for name in {parts[0] for pair in pairs for parts in pair}:
            self.store.forget(name)
        kinds: list[Kind] = [(await self.look(source)).kind for source, _ in pairs]
        trees = [pair for pair, kind in zip(pairs, kinds, strict=True) if kind == "directory"]
        if trees and not directories:
            is_a_directory(path_of(trees[0][0]))
        for (source, target), kind in zip(pairs, kinds, strict=True):
            if kind == "other" and not _within(source, target):
                why = "it is neither a file nor a directory, and cannot be copied to another workspace"
                raise OSError(errno.EXDEV, why, path_of(source))
        for _, target in sorted(trees, key=lambda pair: len(pair[1])):
            await self.make(target, workspaces=len(target) == 1)
        copied: list[tuple[Parts, Stat]] = []
        for (source, target), kind in zip(pairs, kinds, strict=True):
            if kind == "directory":
                continue
            if _within(source, target):
                await self.move(source, target)
                continue
            stat = await self.copy(source, target, controls)
            if stat is None:
                # It has become a directory.
                is_a_directory(path_of(source))
            copied.append((source, stat))
        await self._remove_copied(copied)
        for source, _ in sorted(trees, key=lambda pair: -len(pair[0])):
            try:
                await self.remove_directory(source)
            except NotEmpty:
                if not partly:
                    raise

    async def _remove_copied(self, copied: Sequence[tuple[Parts, Stat]]) -> None:
        """Removes what was copied, as it was then."""
        same: list[Parts] = []
        changed: list[Parts] = []
        for parts, stat in copied:
            # Through links, as the copy went: what is removed is the link.
            now = await self.info(parts)
            untouched = (now.uuid, now.version, now.size, now.mtime) == (stat.uuid, stat.version, stat.size, stat.mtime)
            (same if untouched else changed).append(parts)
        await self._remove(same)
        if changed:
            names = ", ".join(path_of(parts) for parts in changed[:3]) + (", …" if len(changed) > 3 else "")
            raise Busy(f"{names}: changed while it was moved, and is in both places")


def _within(source: Parts, target: Parts) -> bool:
    """Whether a new name is all that a move takes."""
    return len(source) > 1 and len(target) > 1 and source[0] == target[0]

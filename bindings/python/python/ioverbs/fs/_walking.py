# SPDX-License-Identifier: Apache-2.0
"""Going through trees, as ``walk`` and all that is made of it do."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

from ._paths import Parts, path_of
from ._tree import Tree

Step = tuple[str, Any, Any]
"""A directory, the directories in it, and its files: names, or facts by name."""


async def walk(
    tree: Tree, top: Parts, maxdepth: int | None, topdown: bool, on_error: Any, detail: bool
) -> AsyncIterator[Step]:
    """Each directory from `top` on, as :func:`os.walk` has it.

    `on_error`: what becomes of directories that cannot be listed. ``"raise"``, ``"omit"``, or who is called with the error, say so of all.
    ``None``: those that are not there, by now perhaps, are left out, and everything else is an error: who copies a tree would take what
    did not answer for empty."""
    if maxdepth is not None and maxdepth < 1:
        raise ValueError("maxdepth must be at least 1")
    path = path_of(top)
    try:
        entries = await tree.entries(top)
    except OSError as e:
        if on_error == "raise" or (on_error is None and not isinstance(e, (FileNotFoundError, NotADirectoryError))):
            raise
        if callable(on_error):
            on_error(e)
        yield (path, {}, {}) if detail else (path, [], [])
        return
    found: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for one in entries:
        inside = one.kind == "directory" and one.parts != top
        # Of a file the entry is itself, which has no name in itself.
        name = "" if one.parts == top else os.fsdecode(one.parts[-1])
        found[0 if inside else 1][name] = one.info()
    directories: Any = found[0] if detail else list(found[0])
    files: Any = found[1] if detail else list(found[1])
    if topdown:
        yield path, directories, files
    if maxdepth is None or maxdepth > 1:
        deeper = None if maxdepth is None else maxdepth - 1
        for name in directories:
            async for step in walk(tree, (*top, os.fsencode(name)), deeper, topdown, on_error, detail):
                yield step
    if not topdown:
        yield path, directories, files

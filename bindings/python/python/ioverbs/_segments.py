# SPDX-License-Identifier: Apache-2.0
"""Segments: bytes with an id instead of a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from . import _ioverbs
from ._controls import ControlKeywords, controls_text
from ._handles import Collection

if TYPE_CHECKING:
    from ._buffers import ReadableBuffer, WriteableBuffer
    from ._workspace import Workspace

GROUP = ".segments"
"""The group of a workspace that holds them, as collections named by their id in hex."""


class Segments:
    """Bytes that have an identity and nothing else, as :attr:`Workspace.segments`: made, filled, read and removed as memory is,
    by whatever process of the workspace knows their id. Any thread, any time."""

    __slots__ = ("_workspace", "_native")

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._native = _ioverbs.Segments(workspace._native)

    def create(
        self, size: int, *, controls: str | Mapping[str, Any] | None = None, **keywords: Unpack[ControlKeywords]
    ) -> UUID:
        """Makes a segment of ``size`` bytes, all zeros, with its space reserved; its id.

        :param controls: What is promised about it; ``consistency="sequential"`` if nothing is said, as memory has it.
        :raises Exhausted: There is no room for all of it; then there is no segment.
        """
        return self._native.create(size, controls_text("create", controls, keywords))

    def remove(self, segment: UUID) -> None:
        """Removes it and gives its space back. :raises NotFound: There is none."""
        self._native.remove(segment)

    def put(self, segment: UUID, offset: int, data: ReadableBuffer) -> None:
        """Stores bytes in it. :raises FileTooBig: They reach beyond its end. :raises NotFound: There is none."""
        self._native.put(segment, offset, data)

    def get(self, segment: UUID, offset: int, n: int) -> bytes:
        """Reads ``n`` bytes of it. :raises Invalid: It ends before. :raises NotFound: There is none."""
        return self._native.get(segment, offset, n)

    def get_into(self, segment: UUID, offset: int, buffer: WriteableBuffer) -> None:
        """Fills a buffer from it, as :meth:`get`."""
        self._native.get_into(segment, offset, buffer)

    def write(self, segment: UUID, offset: int, data: ReadableBuffer) -> None:
        """Stores bytes in an endless space: under any id, at any offset. What is not there is made, and grows."""
        self._native.write(segment, offset, data)

    def read(self, segment: UUID, offset: int, n: int) -> bytes:
        """Reads ``n`` bytes of that space: what nobody has written is zeros."""
        return self._native.read(segment, offset, n)

    def size(self, segment: UUID) -> int:
        """How many bytes it has. :raises NotFound: There is none."""
        return self._native.size(segment)

    def list(self) -> list[tuple[UUID, int]]:
        """Id and size of every segment, as they were last published."""
        return self._native.list()

    def open(self, segment: UUID) -> Collection:
        """The segment as a collection, for batches, views and seals."""
        return self._workspace.open(segment.hex, group=self._workspace.group(GROUP))

# SPDX-License-Identifier: Apache-2.0
"""A collection as a file object, for whoever reads and writes files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from ._errors import Invalid

if TYPE_CHECKING:
    from ._buffers import ReadableBuffer, WriteableBuffer

    from ._handles import Collection

_MODES = {"r": (True, False), "r+": (True, True), "w": (False, True), "w+": (True, True), "a": (False, True)}


def binary_mode(mode: str) -> str:
    """The mode without its ``b``, which is meant anyway: a collection holds bytes."""
    plain = mode.replace("b", "", 1)
    if plain not in _MODES:
        raise Invalid(f"mode {mode!r} is none of {', '.join(_MODES)}: a collection holds bytes; wrap it for text")
    return plain


class CollectionFile(io.RawIOBase):
    """A collection as an unbuffered binary file, made by :meth:`Collection.file`.

    Each read and write is one request. Closing the file does not close the collection, so that it publishes nothing by
    itself; commit or close the collection.
    """

    def __init__(self, collection: Collection, mode: str = "r") -> None:
        super().__init__()
        self.mode = binary_mode(mode) + "b"
        self.name = f"{collection.name or collection.uuid}"
        self._collection = collection
        self._reads, self._writes = _MODES[binary_mode(mode)]
        self._appends = mode.startswith("a")
        self._position = 0
        if mode.startswith("w"):
            collection.truncate(0)

    @property
    def collection(self) -> Collection:
        """The collection behind it."""
        return self._collection

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def seekable(self) -> bool:
        return True

    def _check(self, allowed: bool, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not allowed:
            raise io.UnsupportedOperation(f"the file was opened with mode {self.mode!r}, not for {what}")

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fills `buffer` from the position on; 0 at the end."""
        self._check(self._reads, "reading")
        got = self._collection.readinto(self._position, buffer)
        self._position += got
        return got

    def readall(self) -> bytes:
        """All from the position to the end, in one request."""
        self._check(self._reads, "reading")
        data = self._collection.read(self._position)
        self._position += len(data)
        return data

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes all of `data` at the position, or at the end in mode ``a``."""
        self._check(self._writes, "writing")
        if self._appends:
            n = memoryview(data).nbytes  # type: ignore[arg-type]
            self._position = self._collection.append(data) + n
            return n
        n = self._collection.write(self._position, data)
        self._position += n
        return n

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check(True, "seeking")
        if whence == io.SEEK_SET:
            position = offset
        elif whence == io.SEEK_CUR:
            position = self._position + offset
        elif whence == io.SEEK_END:
            position = self._collection.size + offset
        else:
            raise ValueError(f"whence={whence} is none of 0, 1, 2")
        if position < 0:
            raise ValueError(f"the position {position} is before the start")
        self._position = position
        return position

    def tell(self) -> int:
        self._check(True, "seeking")
        return self._position

    def truncate(self, size: int | None = None, /) -> int:
        """Cuts or extends to `size`, by default the position."""
        self._check(self._writes, "writing")
        size = self._position if size is None else size
        self._collection.truncate(size)
        return size

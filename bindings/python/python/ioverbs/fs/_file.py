# SPDX-License-Identifier: Apache-2.0
"""Files of the file system: for reading, for writing anew, for appending, and for changing in place."""

from __future__ import annotations

import errno
import io
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractBufferedFile

from .._buffers import bytes_of
from .._errors import Error
from .._file import CollectionFile
from .._handles import Collection
from .._results import Stat
from ._drive import now
from ._paths import Parts
from ._reading import PIECE, Controls, fill, read
from ._tree import of_stat
from ._whole import WHOLE, Files

if TYPE_CHECKING:
    from .._buffers import ReadableBuffer, WriteableBuffer
    from .._values import Metadata
    from ._filesystem import IOVFileSystem

_SMALL = 64 << 10
"""Reads of less, one behind the other, are served from what was read ahead."""
_LINES = 8 << 10
"""Bytes in which the end of a line is looked for at a time."""
_LARGE = 256 << 10
"""Writes of as much go to the store from where they are."""


class IOVFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file of :class:`IOVFileSystem` for reading (``rb``), writing anew (``wb``, ``xb``) or appending (``ab``). One thread at a time.

    Reads go straight to the collection; small ones, one behind the other, are served from what is read ahead, unless a `cache_type` of
    fsspec's is given. What is written takes the name when the file is closed, all at once; it is there whole or not at all.
    """

    DEFAULT_BLOCK_SIZE = 4 << 20
    blocksize: int
    buffer: io.BytesIO

    def __init__(
        self,
        fs: IOVFileSystem,
        path: str,
        mode: str,
        block_size: int | None,
        autocommit: bool,
        cache_type: str | None,
        cache_options: dict[str, Any] | None,
        metadata: Metadata | None,
        controls: Controls,
        files: Files,
        parts: Parts,
        opened: tuple[Collection, Stat] | None,
    ) -> None:
        self._files = files
        self._parts = parts
        self._collection: Collection | None = None
        self._born: tuple[Metadata | None, Controls] = (metadata, controls)
        self._own = opened is None
        self._failed: BaseException | None = None
        self._plain = cache_type is None
        self._ahead = b""
        self._ahead_at = 0
        self._last = -1
        size = None
        if opened is not None:
            self._collection, stat = opened
            size = stat.size
            self._details = of_stat(parts, stat).info() | {"name": path}
        super().__init__(
            fs,
            path,
            mode,
            "default" if block_size is None else block_size,
            autocommit,
            cache_type or "none",
            cache_options,
            size,
        )
        if mode == "ab":
            assert size is not None
            self.loc = size
            self.offset = 0
        # At most what one request takes.
        if mode != "rb":
            self.blocksize = min(self.blocksize, WHOLE)

    @property
    def collection(self) -> Collection:
        """The collection behind it; one that is written has it from its first flush on."""
        if self._collection is None:
            raise ValueError("the file has no collection yet: nothing of it was sent")
        return self._collection

    # -- Reading

    def _fetch_range(self, start: int, end: int) -> bytes:
        return read(self.collection, start, end - start)

    def _check_reading(self) -> None:
        if self.mode != "rb":
            raise ValueError("File not in read mode")
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def read(self, length: int | None = -1) -> bytes:
        """The next `length` bytes, all that are left by default; less only at the end."""
        if not self._plain:
            got: bytes = super().read(length)
            return got
        self._check_reading()
        left = max(self.size - self.loc, 0)
        n = left if length is None or length < 0 else min(int(length), left)
        if n == 0:
            return b""
        at = self.loc - self._ahead_at
        if 0 <= at and at + n <= len(self._ahead):
            out = self._ahead[at : at + n]
        elif n < _SMALL and (self.loc == self._last or 0 <= at <= len(self._ahead) > 0):
            self._look_ahead(n, left, grows=True)
            out = self._ahead[:n]
        else:
            out = read(self.collection, self.loc, n)
        self.loc += len(out)
        self._last = self.loc
        return out

    def _look_ahead(self, n: int, left: int, *, grows: bool) -> None:
        """Reads the next `n` of the `left` bytes, and some more if it `grows`: one behind the other each time twice as much as before."""
        more = min(max(2 * len(self._ahead), _SMALL), self.blocksize) if grows else 0
        ahead = min(max(n, more), left)
        self._ahead = read(self.collection, self.loc, ahead)
        self._ahead_at = self.loc

    def readinto(self, b: WriteableBuffer) -> int:
        """Fills a buffer with the next bytes, without a copy in between; less only at the end."""
        into = bytes_of(b)
        if not self._plain or into.nbytes < _SMALL:
            data = self.read(into.nbytes)
            into[: len(data)] = data
            return len(data)
        self._check_reading()
        got = fill(self.collection, self.loc, into[: max(self.size - self.loc, 0)])
        self.loc += got
        self._last = self.loc
        return got

    readinto1 = readinto

    def readuntil(self, char: bytes = b"\n", blocks: int | None = None) -> bytes:
        """All up to `char`, that included, from what is read ahead; what is left if it does not come. `blocks`: how much to read at a time, at least."""
        if not self._plain:
            found: bytes = super().readuntil(char, blocks or _LINES)
            return found
        self._check_reading()
        if not char:
            raise ValueError("what to read up to has no bytes")
        pieces: list[bytes] = []
        # The mark may begin in what came before.
        tail = b""
        while True:
            at = self.loc - self._ahead_at
            if not 0 <= at < len(self._ahead):
                left = max(self.size - self.loc, 0)
                if left > 0:
                    follows = self.loc in (self._last, self._ahead_at + len(self._ahead))
                    self._look_ahead(min(blocks or _LINES, left), left, grows=follows)
                if left == 0 or not self._ahead:
                    break
                at = 0
            across = (tail + self._ahead[at : at + len(char) - 1]).find(char) if tail else -1
            if across >= 0:
                end = at + across + len(char) - len(tail)
            else:
                begin = self._ahead.find(char, at)
                end = len(self._ahead) if begin < 0 else begin + len(char)
            piece = self._ahead[at:end]
            self.loc = self._ahead_at + end
            pieces.append(piece)
            tail = tail + piece
            if tail.endswith(char):
                break
            tail = tail[max(len(tail) - len(char) + 1, 0) :]
        self._last = self.loc
        return b"".join(pieces)

    # -- Writing

    def write(self, data: ReadableBuffer) -> int:
        """Writes at the end. Large buffers go to the store from where they are."""
        whole = bytes_of(data)
        if whole.nbytes < _LARGE or self.closed or self.forced or self.mode == "rb":
            written: int = super().write(whole)
            return written
        if self.offset is None and self.loc + whole.nbytes <= self.blocksize:
            # It may be all of a file that goes in one request.
            return int(super().write(whole))
        self.offset = self.offset or 0
        before = memoryview(self.buffer.getvalue())
        for piece in (before, *(whole[at : at + PIECE] for at in range(0, whole.nbytes, PIECE))):
            self._send(piece)
            self.offset += piece.nbytes
        self.buffer = io.BytesIO()
        self.loc += whole.nbytes
        return whole.nbytes

    def _send(self, data: memoryview) -> None:
        """Sends the bytes that follow those which were sent. If that fails there will be no such file: it would lack them."""
        self._check_whole()
        try:
            if self._collection is None:
                metadata, controls = self._born
                self._collection = now(self._files.begin(self._parts, "x" in self.mode, metadata, controls))
            if data.nbytes == 0:
                return
            if self.mode == "ab":
                self._collection.append(data)
            else:
                self._collection.write(self.offset, data)
        except BaseException as e:
            self._failed = e
            self.discard()
            raise

    def _check_whole(self) -> None:
        if self._failed is not None:
            raise OSError(errno.EIO, "a write has failed before, so that the file would lack bytes", self.path) from self._failed

    def flush(self, force: bool = False) -> None:
        """Sends what is in the buffer if that is full; what is appended, whatever there is, and others see it then."""
        if self.mode == "ab" and not force and not self.closed and not self.forced:
            data = self.buffer.getvalue()
            if data:
                self._send(memoryview(data))
                self.buffer = io.BytesIO()
                self.collection.commit()
            return
        super().flush(force)

    def _upload_chunk(self, final: bool = False) -> bool:
        """Sends what is in the buffer; at the end the file gets its name."""
        self._check_whole()
        data = self.buffer.getbuffer()
        if self._collection is None and final and self.autocommit:
            metadata, controls = self._born
            exclusive = "x" in self.mode
            now(self._files.write(self._parts, data, exclusive=exclusive, metadata=metadata, controls=controls))
            return True
        self._send(data)
        if final and self.mode == "ab":
            self.collection.close()
        elif final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        """Gives what was written its name; a transaction does at its end."""
        if self._collection is not None and not self._collection.closed:
            now(self._files.publish(self._collection, self._parts, "x" in self.mode))

    def discard(self) -> None:
        """Drops what was written, unless it was appended to what was there."""
        if self._collection is not None and self._own and not self._collection.closed:
            now(self._files.discard(self._collection))

    def close(self) -> None:
        """Ends the file; what was written takes its name."""
        reading = self.mode == "rb"
        try:
            super().close()
        finally:
            if reading and self._collection is not None:
                # It has nothing to publish, and nobody can do anything about it.
                with suppress(Error):
                    self._collection.close()


class UpdateFile(CollectionFile):
    """A file that is changed in place (``r+b``), which closes its collection, so that others see what was written."""

    def close(self) -> None:
        """Publishes what was written, and ends the file."""
        if not self.closed:
            try:
                self.collection.close()
            finally:
                super().close()


def check_mode(mode: str) -> str:
    """A mode with its letters in order; it is for bytes."""
    plain = mode.replace("b", "").replace("t", "")
    ordered = "".join(sorted(plain, key="rwxa+".index)) if set(plain) <= set("rwxa+") else plain
    if ordered not in ("r", "w", "x", "a", "r+", "w+", "x+"):
        raise ValueError(f"mode {mode!r} is none of rb, wb, xb, ab, r+b, w+b, x+b")
    return ordered

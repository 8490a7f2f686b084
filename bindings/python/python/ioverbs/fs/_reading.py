# SPDX-License-Identifier: Apache-2.0
"""Reading: files that are opened, and ranges of many files in one batch."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from .._batch import Batch, Operation
from .._errors import Error, Invalid, NotFound, Stale
from .._handles import Collection
from .._results import Stat
from ._paths import Parts, path_of
from ._tree import Tree, first_error, is_a_directory, kind_of, missing

SMALL = 64 << 10
"""Bytes of a file that are asked for together with its size."""
PIECE = 8 << 20
"""Bytes that are moved at a time."""
FILES = 500
"""Files of one batch."""
TOGETHER = 256 << 20
"""Bytes that one request reads: all of them have to come within its deadline."""
_FEW = 4
"""Files of a batch that are not closed together."""

Range = tuple[Parts, int | None, int | None]
"""A file, and from where to where, as in a slice."""
Controls = str | Mapping[str, Any] | None


@dataclass(slots=True)
class _Opened:
    """A file that a batch of reads has opened."""

    collection: Collection
    stat: Operation[Stat]


@dataclass(slots=True)
class _Late:
    """What was not read together with the size."""

    index: int
    collection: Collection
    offset: int
    length: int


class _Room:
    """Memory for bytes that come in pieces, each to where it stays."""

    def __init__(self, size: int) -> None:
        # What is behind such a stream is bytes already.
        self._stream = io.BytesIO()
        self._stream.seek(size - 1)
        self._stream.write(b"\0")
        self.memory = self._stream.getbuffer()

    def bytes(self, size: int) -> bytes:
        """The first `size` bytes of it. There is no room any more then."""
        self.memory.release()
        self._stream.truncate(size)
        return self._stream.getvalue()


def fill(collection: Collection, offset: int, into: memoryview) -> int:
    """Reads into memory, in as many requests as it takes; how many bytes came."""
    at = 0
    while at < into.nbytes:
        piece = into[at : at + TOGETHER]
        got = collection.readinto(offset + at, piece)
        at += got
        if got < piece.nbytes:
            break
    return at


def read(collection: Collection, offset: int, length: int) -> bytes:
    """Reads bytes, in as many requests as it takes."""
    if length <= TOGETHER:
        return collection.read(offset, length)
    room = _Room(length)
    return room.bytes(fill(collection, offset, room.memory))


class Reading(Tree):
    """Operations that read. Any thread."""

    async def open(self, parts: Parts, controls: Controls = None) -> tuple[Collection, Stat]:
        """Opens a file, and tells its facts."""
        return await self.fresh(parts, lambda: self._open(parts, controls))

    async def _open(self, parts: Parts, controls: Controls) -> tuple[Collection, Stat]:
        if len(parts) < 2:
            is_a_directory(path_of(parts))
        at = await self.place(parts[:-1])
        batch = await self.batch()
        asked = batch.look(at, parts[-1])
        collection = batch.open(at, parts[-1], controls=controls)
        await self.drive.batch(batch)
        _, error = first_error(batch)
        if error is not None:
            await self._not_opened(parts, error)
        stat = asked.result()
        if kind_of(stat.filetype) == "link":
            return await self.open(await self.resolve(parts), controls)
        return collection, stat

    async def ranges(self, asked: Sequence[Range]) -> list[bytes | Exception]:
        """Bytes of files, or what went wrong with each. Those of up to 500 files are one batch, and one more where they are many."""
        out: list[bytes | Exception] = []
        for i in range(0, len(asked), FILES):
            out += await self._ranges(asked[i : i + FILES])
        return out

    async def _ranges(self, asked: Sequence[Range]) -> list[bytes | Exception]:
        known = any(self.store.remembers(parts) for parts, _, _ in asked)
        out = await self._read(asked)
        missed = [i for i, got in enumerate(out) if isinstance(got, (FileNotFoundError, NotADirectoryError, Stale))]
        if missed and known:
            # That something is not there is said by what is looked up anew only.
            self.store.forget_all()
            for i, got in zip(missed, await self._read([asked[i] for i in missed]), strict=True):
                out[i] = got
        return out

    async def _read(self, asked: Sequence[Range]) -> list[bytes | Exception]:
        out: list[bytes | Exception] = [b""] * len(asked)
        batch = await self.batch()
        opened: dict[Parts, _Opened] = {}
        early: dict[int, Operation[bytes]] = {}
        total = 0
        for i, (parts, start, end) in enumerate(asked):
            try:
                file = opened.get(parts) or await self._open_in(batch, parts)
            except Exception as e:
                out[i] = e
                continue
            opened[parts] = file
            if (start or 0) < 0 or (end or 0) < 0:
                continue
            n = SMALL if end is None else end - (start or 0)
            if 0 < n <= PIECE and total + n <= TOGETHER:
                early[i] = batch.read(file.collection, start or 0, n)
                total += n
        if opened:
            await self.drive.batch(batch)
        late: list[_Late] = []
        for i, (parts, start, end) in enumerate(asked):
            if parts not in opened:
                continue
            file = opened[parts]
            try:
                stat = file.stat.result()
                if stat.kind == "group":
                    is_a_directory(path_of(parts))
                if kind_of(stat.filetype) == "link":
                    out[i] = await self._one((await self.resolve(parts), start, end))
                    continue
                begin, stop, _ = slice(start, end).indices(stat.size)
                got = early[i].result() if i in early else b""
                out[i] = got
                if len(got) < stop - begin and not (i in early and end is not None):
                    # From the beginning: to put two parts together would cost a copy of both.
                    late.append(_Late(i, file.collection, begin, stop - begin))
            except Exception as e:
                out[i] = await self._why(parts, e)
        await self._rest(late, out)
        if len(opened) > _FEW:
            # All of them in one request; a few are given back by and by.
            batch = await self.batch()
            for file in opened.values():
                batch.close(file.collection)
            await self.drive.batch(batch)
        return out

    async def _one(self, asked: Range) -> bytes | Exception:
        return (await self._read([asked]))[0]

    async def _open_in(self, batch: Batch, parts: Parts) -> _Opened:
        """Opens a file in a batch."""
        if len(parts) < 2:
            is_a_directory(path_of(parts))
        at = await self.place(parts[:-1])
        asked = batch.look(at, parts[-1])
        return _Opened(batch.open(at, parts[-1]), asked)

    async def _why(self, parts: Parts, error: Exception) -> Exception:
        """What is told of a file that could not be read."""
        try:
            if isinstance(error, Error):
                await self._not_opened(parts, error)
        except Exception as e:
            return e
        return error

    async def _rest(self, late: list[_Late], out: list[bytes | Exception]) -> None:
        """Reads what was not read with the sizes."""
        while late:
            if late[0].length > TOGETHER:
                one = late.pop(0)
                try:
                    out[one.index] = await self._large(one)
                except Exception as e:
                    out[one.index] = e
                continue
            batch, total = await self.batch(), 0
            reads: list[tuple[int, Operation[bytes]]] = []
            while late and total + late[0].length <= TOGETHER:
                one = late.pop(0)
                reads.append((one.index, batch.read(one.collection, one.offset, one.length)))
                total += one.length
            await self.drive.batch(batch)
            for i, read in reads:
                try:
                    out[i] = read.result()
                except Exception as e:
                    out[i] = e

    async def _large(self, one: _Late) -> bytes:
        """Reads what is too much for one request."""
        room = _Room(one.length)
        at = 0
        while at < one.length:
            length = min(TOGETHER, one.length - at)
            batch = await self.batch()
            read = batch.readinto(one.collection, one.offset + at, room.memory[at : at + length])
            await self.drive.batch(batch)
            got = read.result()
            # It lets go of the memory.
            del batch, read
            at += got
            if got < length:
                break
        return room.bytes(at)

    async def _not_opened(self, parts: Parts, error: Error) -> NoReturn:
        """Why a file could not be opened."""
        if isinstance(error, (NotFound, Stale)):
            missing(path_of(parts), error)
        if isinstance(error, Invalid) and (await self.look(parts)).kind == "directory":
            is_a_directory(path_of(parts))
        raise error

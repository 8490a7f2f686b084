# SPDX-License-Identifier: Apache-2.0
"""Any contiguous buffer, in and out, without a copy."""

from __future__ import annotations

import array
import gc
import mmap
import sys
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import ioverbs

MIB = 1 << 20


@pytest.mark.parametrize(
    "buffer",
    [
        b"12345678",
        bytearray(b"12345678"),
        memoryview(b"xx12345678")[2:],
        array.array("I", [0x34333231, 0x38373635]),
        np.frombuffer(b"12345678", dtype=np.uint16),
        np.frombuffer(b"12345678", dtype="<f8").reshape(1, 1),
        np.frombuffer(b"12345678", dtype=[("a", "<u4"), ("b", "<u4")]),
        np.frombuffer(b"12345678", dtype="datetime64[ns]"),
        np.asfortranarray(np.frombuffer(b"15263748", dtype=np.uint8).reshape(4, 2)).T,
        np.frombuffer(b"12345678", dtype="S8"),
    ],
    ids=lambda b: type(b).__name__ + str(getattr(b, "dtype", "")),
)
def test_what_can_be_written(c: ioverbs.Collection, buffer: bytes) -> None:
    assert c.write(0, buffer) == 8
    assert c.read() == b"12345678"
    assert c.append(buffer) == 8
    assert c.writev([(16, buffer), (24, buffer)]) == 16
    assert c.read() == b"12345678" * 4


@pytest.mark.parametrize(
    "buffer",
    [
        bytearray(16),
        memoryview(bytearray(20))[2:18],
        array.array("d", [0, 0]),
        np.zeros((2, 2), np.float32),
        np.zeros(2, np.complex64),
        np.zeros((4, 4), np.uint8, order="F").T,
        np.zeros(8, np.float16)[::1],
    ],
    ids=lambda b: type(b).__name__ + str(getattr(b, "dtype", "")),
)
def test_what_can_be_filled(c: ioverbs.Collection, buffer: bytearray) -> None:
    c.write(0, b"0123456789abcdef")
    assert c.readinto(0, buffer) == 16
    assert bytes(buffer.T if isinstance(buffer, np.ndarray) and not buffer.flags.c_contiguous else buffer) == (
        b"0123456789abcdef"
    )
    assert c.readinto(10, buffer) == 6
    assert bytes(memoryview(buffer).cast("B"))[:8] == b"abcdef67"
    assert c.readv([(0, buffer)]) == 16


def test_what_is_not_contiguous_is_refused(c: ioverbs.Collection) -> None:
    rows = np.arange(16, dtype=np.uint8).reshape(4, 4)
    for scattered in (rows[:, 1], rows[::2], memoryview(bytes(8))[::2]):
        with pytest.raises(ValueError, match=r"not contiguous: pass a contiguous copy"):
            c.write(0, scattered)
    with pytest.raises(ioverbs.Invalid, match=r"Fortran's: pass its transpose \(a.T\)"):
        c.write(0, np.asfortranarray(rows))
    with pytest.raises(ioverbs.Invalid, match="not contiguous"):
        c.readinto(0, rows[:, 1])
    with pytest.raises(ioverbs.Invalid, match="not contiguous"):
        c.writev([(0, b"fine"), (4, rows[:, 1])])
    assert c.size == 0


def test_what_is_no_buffer_is_refused(c: ioverbs.Collection) -> None:
    with pytest.raises(TypeError, match="not str: encode text first"):
        c.write(0, "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not int"):
        c.append(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="memory of this bytes is read-only"):
        c.readinto(0, b"xx")  # type: ignore[arg-type]
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    with pytest.raises(TypeError, match="memory of this ndarray is read-only"):
        c.readinto(0, frozen)
    assert c.write(0, frozen) == 32


def test_empty_buffers(c: ioverbs.Collection) -> None:
    assert c.write(0, b"") == 0
    assert c.write(0, np.zeros(0)) == 0
    assert c.readinto(0, bytearray()) == 0
    assert c.writev([]) == 0
    assert c.size == 0


def test_references_are_given_back(c: ioverbs.Collection) -> None:
    data, room = b"some bytes that nobody shares" * 2, bytearray(64)
    before = sys.getrefcount(data), sys.getrefcount(room)
    for _ in range(10):
        c.write(0, data)
        c.readinto(0, room)
        c.append(data)
        with pytest.raises(TypeError):
            c.readinto(0, data)  # type: ignore[arg-type]
    assert (sys.getrefcount(data), sys.getrefcount(room)) == before
    room.extend(b"it can be resized again")


def test_a_batch_holds_its_buffers(session: ioverbs.Session, c: ioverbs.Collection) -> None:
    room = bytearray(8)
    array_ = np.arange(8, dtype=np.uint8)
    held = weakref.ref(array_)
    batch = session.batch(progress="caller")
    batch.write(c, 0, array_)
    batch.barrier()
    batch.readinto(c, 0, room)
    del array_
    gc.collect()
    assert held() is not None
    with pytest.raises(BufferError):
        room.extend(b"x")
    batch.start().wait()
    assert room == bytes(range(8))
    assert held() is None
    room.extend(b"x")


def test_buffers_of_a_forgotten_request_are_kept_until_it_is_done(
    session: ioverbs.Session, c: ioverbs.Collection
) -> None:
    room = bytearray(8)
    c.write(0, b"01234567")
    batch = session.batch(progress="caller")
    batch.readinto(c, 0, room)
    batch.start()
    del batch
    gc.collect()
    with pytest.raises(BufferError):
        room.extend(b"x")
    # Calls of anybody drive it to its end, which may take some answers of a daemon, and then let them go.
    end = time.monotonic() + 30
    while len(room) == 8:
        c.read(0, 1)
        try:
            room.extend(b"x")
        except BufferError:
            assert time.monotonic() < end
    assert room == b"01234567x"


def test_a_batch_that_is_dropped_gives_its_buffers_back(session: ioverbs.Session, c: ioverbs.Collection) -> None:
    room = bytearray(8)
    with pytest.raises(RuntimeError, match="on purpose"):
        with session.batch() as batch:
            batch.write(c, 0, room)
            raise RuntimeError("on purpose")
    del batch
    room.extend(b"x")
    assert c.size == 0


def peak_growth(action: object) -> int:
    """Bytes by which the resident memory peaks above its present size while `action` runs."""

    def kib(key: str) -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1])
        raise LookupError(key)

    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as e:
        pytest.skip(f"the peak of resident memory cannot be reset here: {e}")
    before = kib("VmRSS:")
    action()  # type: ignore[operator]
    return (kib("VmHWM:") - before) * 1024


def test_bytes_move_without_a_copy(c: ioverbs.Collection) -> None:
    size = 64 * MIB
    source, room = np.ones(size // 8), np.ones(size // 8)
    c.write(0, source)
    # An overwrite in place, and a read into memory that is there: nothing new but what the medium itself needs.
    assert peak_growth(lambda: c.write(0, source)) < size // 4
    assert peak_growth(lambda: c.readinto(0, room)) < size // 4
    # A read into new bytes: these and nothing else.
    assert size * 3 // 4 < peak_growth(lambda: c.read(0, size)) < size * 5 // 4
    assert c.workspace.session.counters()["bytes_copied"] == 0


def test_a_mapped_file_is_a_buffer(c: ioverbs.Collection, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"mapped" * 1000)
    with path.open("r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        assert c.write(0, m) == 6000
        m[:] = bytes(6000)
        assert c.readinto(0, m) == 6000
        m.flush()
    assert path.read_bytes() == b"mapped" * 1000


def test_arrays_of_objects_are_refused(c: ioverbs.Collection) -> None:
    for dtype in (object, [("Onset", "<f8"), ("who", object)]):
        with pytest.raises(TypeError, match="array of Python objects"):
            c.write(0, np.empty(2, dtype=dtype))
        with pytest.raises(TypeError, match="array of Python objects"):
            c.readinto(0, np.empty(2, dtype=dtype))
    assert c.size == 0
    # A name of a field is no type.
    assert c.write(0, np.zeros(1, dtype=[("O", "<f8")])) == 8

# SPDX-License-Identifier: Apache-2.0
"""Nothing grows when the same is done again and again."""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ioverbs
from ioverbs import aio

KIB = 1 << 10


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


GRANTS = 256
"""Descriptors of files that a session keeps, whatever it opens."""


def check(action: Callable[[], object], times: int, allowed: int = 512 * KIB, grants: int = 0) -> None:
    """Runs it `times` times, twice to warm up and once to measure."""
    for _ in range(2 * times):
        action()
    gc.collect()
    objects, fds, memory = len(gc.get_objects()), descriptors(), resident()
    for _ in range(times):
        action()
    gc.collect()
    assert descriptors() - fds <= grants
    assert len(gc.get_objects()) - objects < 50
    assert resident() - memory < allowed, f"{resident() - memory} bytes more after {times} times"


def test_collections(ws: ioverbs.Workspace) -> None:
    data = np.ones(64 * KIB, np.uint8)

    def action() -> None:
        with ws.create("c", {"a": 1, "t": ioverbs.Timestamp.from_ns(5)}) as c:
            c.write(0, data)
            c.read()
            c.readinto(0, data)
            c.metadata.copy()
            c.stat()
            c.controls  # noqa: B018
        ws.delete("c")

    # 300 times 64 KiB would be 19 MiB. The catalog of mem: remembers deletes for a while: allow for it.
    check(action, 300, 4 << 20, GRANTS)


def test_reads_and_errors(c: ioverbs.Collection) -> None:
    c.write(0, bytes(64 * KIB))

    def action() -> None:
        c.read(0, 64 * KIB)
        c.read(60 * KIB, 64 * KIB)
        for wrong in (lambda: c.write(0, "x"), lambda: c.readinto(0, b""), lambda: c.workspace["absent"]):
            with pytest.raises((TypeError, ioverbs.Error)):
                wrong()  # type: ignore[no-untyped-call]

    check(action, 400)


def test_batches_and_searches(session: ioverbs.Session, ws: ioverbs.Workspace, c: ioverbs.Collection) -> None:
    data = bytes(16 * KIB)

    def action() -> None:
        with session.batch() as b:
            b.write(c, 0, data)
            b.read(c, 0, 16 * KIB)
        forgotten = session.batch()
        forgotten.write(c, 0, data)
        session.batch().start()
        list(ws.find(keys="*"))
        next(ws.find())
        with pytest.raises(ioverbs.BatchError), session.batch() as b:
            b.open(ws, "absent")

    check(action, 200)


def test_sessions(url: str) -> None:
    ioverbs.open(url).workspace("w").create("c").close()

    def action() -> None:
        with ioverbs.open(url) as session, session.workspace("w")["c"] as c, c.file() as f:
            f.read()

    check(action, 100, 2 << 20)


def test_event_loops(url: str) -> None:
    async def main() -> None:
        async with await aio.open(url) as session:
            ws = await session.workspace("w")
            async with await (ws.create if await ws.count() == 0 else ws.open)("c") as c:
                await c.write(0, bytes(512 * KIB))
                await c.read(0, 512 * KIB)

    check(lambda: asyncio.run(main()), 30, 4 << 20)


def test_python_memory(c: ioverbs.Collection) -> None:
    """No block that Python allocated stays behind."""
    data = bytes(4 * KIB)

    def action() -> None:
        for _ in range(200):
            c.write(0, data)
            c.read(0, 4 * KIB)
            c.metadata.update({"a": "b" * 100})
            c.metadata.copy()

    tracemalloc.start()
    try:
        action()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        action()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 4 * KIB
    finally:
        tracemalloc.stop()

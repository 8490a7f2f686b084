# SPDX-License-Identifier: Apache-2.0
"""Whole files from and to the local file system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .._handles import Collection
from .._results import Stat
from ._drive import now
from ._paths import Parts
from ._reading import PIECE
from ._whole import WHOLE, Files


def receive(opened: tuple[Collection, Stat], lpath: Any, callback: Any) -> None:
    """Writes a collection's bytes into a local file."""
    collection, stat = opened
    callback.set_size(stat.size)
    buffer = memoryview(bytearray(min(PIECE, max(stat.size, 1))))
    if not hasattr(lpath, "write"):
        Path(lpath).parent.mkdir(parents=True, exist_ok=True)
    out = lpath if hasattr(lpath, "write") else open(lpath, "wb", buffering=0)
    try:
        offset = 0
        while offset < stat.size and (got := collection.readinto(offset, buffer)):
            at = 0
            while at < got:
                at += out.write(buffer[at:got]) or 0
            offset += got
            callback.relative_update(got)
    finally:
        collection.close()
        if out is not lpath:
            out.close()


def send(files: Files, lpath: Any, parts: Parts, callback: Any, born: dict[str, Any]) -> None:
    """Writes a local file into the store."""
    with open(lpath, "rb", buffering=0) as source:
        size = os.fstat(source.fileno()).st_size
        callback.set_size(size)
        # One byte more tells the end. What is no plain file says 0.
        buffer = memoryview(bytearray(min(PIECE, max(size + 1, 64 << 10))))
        got = source.readinto(buffer)
        if got == size and size <= WHOLE:
            now(files.write(parts, buffer[:got], **born))
            callback.relative_update(got)
            return
        new = now(files.begin(parts, born["exclusive"], born["metadata"], born["controls"]))
        offset = 0
        try:
            while got:
                new.write(offset, buffer[:got])
                offset += got
                callback.relative_update(got)
                got = source.readinto(buffer)
        except BaseException:
            now(files.discard(new))
            raise
        now(files.publish(new, parts, born["exclusive"]))

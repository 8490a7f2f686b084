# SPDX-License-Identifier: Apache-2.0
"""What can be stored from and filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Array(Protocol):
    """A numpy array, which type checkers know to be a buffer from Python 3.12 on only."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


if TYPE_CHECKING:
    ReadableBuffer = Buffer | Array
    """Contiguous memory: bytes, bytearray, memoryview, array, numpy arrays."""
    WriteableBuffer = Buffer | Array
    """The same, which can be filled: not bytes."""


def bytes_of(buffer: ReadableBuffer) -> memoryview:
    """Its memory as bytes."""
    view = memoryview(cast("Buffer", buffer))
    # The shape of an array without items has a zero, which cannot be cast.
    return view.cast("B") if view.nbytes else memoryview(bytearray())

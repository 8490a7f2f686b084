# SPDX-License-Identifier: Apache-2.0
"""Where names are: a workspace, which is the root, or a group in it."""

from __future__ import annotations

from typing import Generic, TypeVar
from uuid import UUID

from . import _ioverbs

C = TypeVar("C")
"""What a collection there opens as."""
G = TypeVar("G")
"""What a group there opens as."""


def name_text(name: str | bytes | UUID | None) -> str | None:
    """A name as text; ``None`` for a UUID."""
    if isinstance(name, bytes):
        name = name.decode("utf-8", "surrogateescape")
    return None if not isinstance(name, str) or name.startswith("uuid:") else name


class Place(Generic[C, G]):
    """A workspace or group, as what takes one sees it."""

    __slots__ = ()

    def _workspace(self) -> _ioverbs.Workspace:
        raise NotImplementedError

    def _parent(self) -> _ioverbs.Handle | None:
        """The group; ``None`` is the root."""
        raise NotImplementedError

    def _new_collection(self, name: str | bytes | UUID | None) -> C:
        """A pending handle."""
        raise NotImplementedError

    def _new_group(self, name: str | bytes | UUID | None) -> G:
        """A pending handle."""
        raise NotImplementedError

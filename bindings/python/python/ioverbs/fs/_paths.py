# SPDX-License-Identifier: Apache-2.0
"""URLs and paths: ``iov://HOST/WORKSPACE/DIRECTORY/FILE``, and ``WORKSPACE/DIRECTORY/FILE`` within a file system."""

from __future__ import annotations

import os

PROTOCOL = "iov"

Parts = tuple[bytes, ...]
"""A path: the workspace, groups, a name. Empty: the store."""


def split_url(url: str) -> tuple[str | None, str]:
    """The store that a URL names (``None``: none, so that it is the default one), and the path in it."""
    if not url.startswith(f"{PROTOCOL}:"):
        return None, url.strip("/")
    rest = url[len(PROTOCOL) + 1 :]
    if not rest.startswith("//"):
        return None, rest.strip("/")
    host, _, path = rest[2:].partition("/")
    return f"{PROTOCOL}://{host}" if host else None, path.strip("/")


def parts_of(path: str) -> Parts:
    """The names of a path. Those that are not UTF-8 are as :func:`os.fsdecode` shows them."""
    return tuple(os.fsencode(name) for name in path.split("/") if name not in ("", "."))


def path_of(parts: Parts) -> str:
    """The path of names."""
    return "/".join(os.fsdecode(name) for name in parts)


def follow(link: Parts, target: bytes, rest: Parts) -> Parts | None:
    """Where a path goes on behind a symbolic link; ``None``: out of the workspace."""
    if target.startswith(b"/"):
        return None
    at = list(link[:-1])
    for name in target.split(b"/"):
        if name == b"..":
            if len(at) == 1:
                return None
            at.pop()
        elif name not in (b"", b"."):
            at.append(name)
    return (*at, *rest)

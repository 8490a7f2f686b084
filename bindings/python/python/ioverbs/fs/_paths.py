# SPDX-License-Identifier: Apache-2.0
"""URLs and paths: ``iov://HOST/WORKSPACE/DIRECTORY/FILE``, and ``WORKSPACE/DIRECTORY/FILE`` within a file system."""

from __future__ import annotations

import os
import re

PROTOCOL = "iov"

Parts = tuple[bytes, ...]
"""A path: the workspace, groups, a name. Empty: the store."""


_OPTIONS = re.compile(r"\?(?:secret|tls)=")
"""Where a path ends, and what is said of its store begins."""


def split_url(url: str) -> tuple[str | None, str]:
    """The store that a URL names (``None``: none, so that it is the default one), and the path in it. Behind the path of a URL with a host
    may stand what the store's URL says of secret and TLS."""
    if not url.startswith(f"{PROTOCOL}:"):
        return None, url.strip("/")
    rest = url[len(PROTOCOL) + 1 :]
    if not rest.startswith("//"):
        return None, rest.strip("/")
    rest = rest[2:]
    options = None if rest.startswith("/") else _OPTIONS.search(rest)
    end = options.start() if options else len(rest)
    host, _, path = rest[:end].partition("/")
    return f"{PROTOCOL}://{host}{rest[end:]}" if host else None, path.strip("/")


def host_of(store: str) -> str:
    """What tells whether URLs are of the same store: the hosts of one that is reached over a network, any other as a whole."""
    return store.partition("?")[0].rstrip("/") if store.startswith(f"{PROTOCOL}://") else store


def canonical(store: str) -> str:
    """The URL of a store over a network in the form that :func:`split_url` has it in; any other as it is."""
    found, path = split_url(store)
    return store if found is None or path else found


def url_of(store: str | None, path: str) -> str:
    """The URL of a path: of the store if that has hosts, else of the default one."""
    if store is None or not store.startswith(f"{PROTOCOL}://"):
        return f"{PROTOCOL}:///{path}"
    hosts = host_of(store)
    return f"{hosts}/{path}{canonical(store)[len(hosts):]}"


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

# SPDX-License-Identifier: Apache-2.0
"""Of which store a file system is, however that is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspec.asyn import AsyncFileSystem
from fsspec.config import apply_config
from fsspec.utils import stringify_path

from .._ioverbs import default_url
from .._session import absolute_url
from ._paths import canonical, host_of, split_url

if TYPE_CHECKING:
    from ._filesystem import IOVFileSystem


class DefaultStore:
    """The store that is opened where none is named, whenever it is asked for."""

    def __get__(self, instance: object, owner: type) -> str:
        return absolute_url(default_url())


class Inside:
    """Takes from a URL what is before the path. A file system of one store refuses the URLs of others; the class knows none."""

    def __get__(self, instance: IOVFileSystem | None, owner: type) -> Inside:
        return self if instance is None else _InsideOf(instance)

    def __call__(self, path: Any) -> Any:
        if isinstance(path, list):
            return [self(one) for one in path]
        store, inside = split_url(stringify_path(path))
        self.check(store, path)
        return inside

    def check(self, store: str | None, path: Any) -> None:
        """Whether a path of that store will do."""


class _InsideOf(Inside):
    def __init__(self, fs: IOVFileSystem) -> None:
        self.fs = fs

    def check(self, store: str | None, path: Any) -> None:
        if store is not None and host_of(store) != host_of(self.fs._blocking.store.url or ""):
            raise ValueError(f"{path}: this file system is of {self.fs.store or 'the default store'}")


class OfOneStore(type(AsyncFileSystem)):  # type: ignore[misc]
    """Makes file systems. What says of which store is brought into one form before fsspec looks whether it has such a one, and before
    it keeps it for those who get the file system by pickle: a relative directory is that of now, and the host of a URL, which fsspec
    passes as `host`, adds nothing to a `store` with that host."""

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        if len(arguments) == 1 and "store" not in options:
            options["store"], arguments = arguments[0], ()
        host = options.pop("host", None)
        if options.get("store") is None and host is not None:
            options["store"] = host
        options = apply_config(cls, options)
        store = options.get("store")
        if store is not None:
            if host is not None and host_of(host) != host_of(store):
                raise ValueError(f"the URL is of {host}, but store={store!r} is another one: leave out one of them")
            options["store"] = absolute_url(canonical(store))
        return super().__call__(*arguments, **options)

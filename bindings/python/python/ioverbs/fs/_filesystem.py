# SPDX-License-Identifier: Apache-2.0
"""The file system that fsspec knows as ``iov``."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fsspec.asyn import get_loop
from fsspec.utils import tokenize

from .._errors import Invalid
from .._ioverbs import default_url
from .._session import SessionArguments
from ._drive import Awaiting, Blocking, now
from ._file import IOVFile, UpdateFile, check_mode
from ._moving import Moves
from ._paths import PROTOCOL, Parts, parts_of, path_of, split_url, url_of
from ._reading import Controls
from ._store_of import DefaultStore, Inside, OfOneStore
from ._tree import Store
from ._transfers import Transfers

if TYPE_CHECKING:
    from .._buffers import ReadableBuffer
    from .._values import Metadata


class IOVFileSystem(Transfers, metaclass=OfOneStore):
    """A store as a file system for fsspec, and so for pandas, xarray, Zarr, Dask, PyArrow and PyTorch.

    ``iov://HOST/WORKSPACE/PATH`` is a path of a running store, ``iov:///WORKSPACE/PATH`` one of the default store, or of `store`.
    Directories are groups, files are collections: the same that mounts and ``iov run`` show.

    :param store: The store's URL; ``None``: the URL's host, else ``$IOVERBS_URL``, else this user's default store. A relative ``file:DIR``
        is in the directory that is the current one when it is said. Of a URL with a host, `store` has the same host, and may add
        ``?secret=…``; everything else is a ``ValueError``, and so are paths of other stores in all methods.
    :param controls: What is promised of files that are made, such as ``"profile=checkpoint"``; ``None``: what their workspace says.
    :param auto_mkdir: Whether directories are made for what is written in them; workspaces never are.
    :param readonly: No changes. :param direct: :param deadline: :param background: As of :func:`ioverbs.open`.

    Any thread; in a child of a fork it opens a session of its own. Blocking calls need no event loop; the methods with an underscore
    are for those who have one (``asynchronous=True``).
    """

    protocol = PROTOCOL
    root_marker = ""
    cachable = True
    async_impl = True
    mirror_sync_methods = True
    _default_store = DefaultStore()
    _strip_protocol = Inside()
    # Who asks for the default store gets that of now, not one that was the default before.
    _extra_tokenize_attributes = ("_default_store",)
    _pid: int

    def __init__(
        self,
        store: str | None = None,
        *,
        controls: str | Mapping[str, Any] | None = None,
        auto_mkdir: bool = True,
        readonly: bool = False,
        direct: bool = True,
        deadline: float = 60.0,
        background: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.store = store
        self.controls: Controls = controls
        self.auto_mkdir = auto_mkdir
        self.readonly = readonly
        arguments = SessionArguments(store or default_url(), readonly, direct, True, True, deadline, None, background)
        opened = Store(arguments)
        self._blocking = Moves(opened, Blocking())
        self._awaiting = Moves(opened, Awaiting())
        self._blocking.make_parents = self._awaiting.make_parents = auto_mkdir

    # -- URLs

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        store, _ = split_url(path)
        return {} if store is None else {"host": store}

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path."""
        return url_of(self.store, self._strip_protocol(name))

    @property
    def fsid(self) -> str:
        """Tells file systems apart: the store's URL."""
        return f"{PROTOCOL}:{self._blocking.store.session().url}"

    @property
    def loop(self) -> Any:
        """The event loop of blocking calls that are made of others; after a fork it is a new one."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._loop = None if self.asynchronous else get_loop()
        return self._loop or get_loop()

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forgets where directories were found."""
        self._blocking.store.forget_all()
        super().invalidate_cache(path)

    def _parts(self, path: Any) -> Parts:
        parts = self._named(path)
        if b".." in parts:
            why = "in a store .. is not the directory above, and mounts could not show what has that name: say the path without it"
            raise Invalid(f"{path}: {why}")
        return parts

    def _named(self, path: Any) -> Parts:
        """The names of what may be there already, to be looked at, moved away and removed, whatever they are."""
        return parts_of(self._strip_protocol(path))

    # -- Facts

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        return (await self._awaiting.info(self._named(path))).info()

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """What a path leads to: ``name``, ``size``, ``type`` (``file``, ``directory``, ``link`` for a dangling one, ``other``),
        ``mode``, ``uid``, ``created``, ``mtime`` in seconds since 1970, ``uuid`` and ``version``."""
        return now(self._blocking.info(self._named(path))).info()

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        return _listed(await self._awaiting.entries(self._named(path)), detail)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """What a directory holds; of a file, itself."""
        return _listed(now(self._blocking.entries(self._named(path))), detail)

    async def _exists(self, path: str, **_: Any) -> bool:
        return await self._awaiting.is_there(self._named(path))

    def exists(self, path: str, **_: Any) -> bool:
        """Whether a path leads somewhere."""
        return now(self._blocking.is_there(self._named(path)))

    def isdir(self, path: str) -> bool:
        """Whether it is a directory."""
        return self._is(path, "directory")

    def isfile(self, path: str) -> bool:
        """Whether it is a file."""
        return self._is(path, "file")

    def _is(self, path: str, kind: str) -> bool:
        try:
            return bool(self.info(path)["type"] == kind)
        except (OSError, Invalid):
            return False

    async def _isdir(self, path: str) -> bool:
        return await self._is_now(path, "directory")

    async def _isfile(self, path: str) -> bool:
        return await self._is_now(path, "file")

    async def _is_now(self, path: str, kind: str) -> bool:
        try:
            return bool((await self._info(path))["type"] == kind)
        except (OSError, Invalid):
            return False

    def created(self, path: str) -> datetime:
        """When it was made."""
        return self._time(path, "created")

    def modified(self, path: str) -> datetime:
        """When it was last changed."""
        return self._time(path, "mtime")

    def _time(self, path: str, key: str) -> datetime:
        seconds = self.info(path)[key]
        if seconds is None:
            raise ValueError(f"{path}: nobody keeps that time of the store or a workspace")
        return datetime.fromtimestamp(seconds, UTC)

    def ukey(self, path: str) -> str:
        """Changes with each publication of a file."""
        info = self.info(path)
        return f"{info['uuid']}-{info.get('version')}"

    def checksum(self, path: str) -> int:
        """A number that changes with each publication of a file."""
        return int(tokenize(self.ukey(path)), 16)

    # -- Reading

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return _bytes((await self._awaiting.ranges([(self._parts(path), start, end)]))[0])

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """The bytes of a file from `start` to `end`, as in a slice."""
        return _bytes(now(self._blocking.ranges([(self._parts(path), start, end)]))[0])

    async def _cat_ranges(
        self, paths: list[str], starts: Any, ends: Any, max_gap: int | None = None, on_error: str = "return", **_: Any
    ) -> list[Any]:
        return _told(await self._awaiting.ranges(self._ranges(paths, starts, ends)), on_error)

    def cat_ranges(
        self, paths: list[str], starts: Any, ends: Any, max_gap: int | None = None, on_error: str = "return", **_: Any
    ) -> list[Any]:
        """Ranges of files, of up to 500 in one batch. `max_gap` says nothing here: neighbours cost no request of their own."""
        return _told(now(self._blocking.ranges(self._ranges(paths, starts, ends))), on_error)

    def _ranges(self, paths: list[str], starts: Any, ends: Any) -> list[tuple[Parts, int | None, int | None]]:
        if not isinstance(paths, list):
            raise TypeError("paths is a list")
        starts = starts if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = ends if isinstance(ends, Iterable) else [ends] * len(paths)
        return [(self._parts(path), start, end) for path, start, end in zip(paths, starts, ends, strict=True)]

    async def _cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", batch_size: int | None = None, **_: Any
    ) -> Any:
        paths = await self._expand_path(path, recursive=recursive)
        if recursive:
            paths = [one for one in paths if not await self._isdir(one)]
        got = await self._awaiting.ranges([(self._parts(one), None, None) for one in paths])
        if on_error == "raise":
            _told(got, on_error)
        if len(paths) != 1 or isinstance(path, list) or paths[0] != self._strip_protocol(path):
            pairs = zip(paths, got, strict=True)
            return {one: found for one, found in pairs if on_error != "omit" or not isinstance(found, Exception)}
        return got[0]

    # -- Writing

    async def _pipe_file(self, path: str, value: ReadableBuffer, mode: str = "overwrite", **options: Any) -> None:
        await self._awaiting.write(self._parts(path), value, **self._born(mode, options))

    def pipe_file(self, path: str, value: ReadableBuffer, mode: str = "overwrite", **options: Any) -> None:
        """Writes a file, all at once. ``mode="create"``: it must be new.

        :param metadata: What the collection is born with. :param controls: What is promised about it.
        """
        now(self._blocking.write(self._parts(path), value, **self._born(mode, options)))

    def _born(self, mode: str, options: dict[str, Any]) -> dict[str, Any]:
        if mode not in ("overwrite", "create"):
            raise ValueError(f"mode {mode!r} is neither overwrite nor create")
        metadata: Metadata | None = options.pop("metadata", None)
        controls: Controls = options.pop("controls", self.controls)
        return {"exclusive": mode == "create", "metadata": metadata, "controls": controls}

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """Makes an empty file; ``truncate=False``: one that is there keeps its bytes, and has been changed now."""
        if truncate:
            self.pipe_file(path, b"", **options)
            return
        try:
            self.pipe_file(path, b"", mode="create", **options)
        except FileExistsError:
            with now(self._blocking.open(self._parts(path)))[0] as there:
                there.setattr(mtime=datetime.now(UTC))

    # -- Directories

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        await self._awaiting.make(self._parts(path), parents=create_parents, exist_ok=False)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Makes a directory; a path of one name is a workspace."""
        now(self._blocking.make(self._parts(path), parents=create_parents, exist_ok=False))

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        if exist_ok and not self._parts(path):
            return
        await self._awaiting.make(self._parts(path), exist_ok=exist_ok)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory, and those above it."""
        if exist_ok and not self._parts(path):
            return
        now(self._blocking.make(self._parts(path), exist_ok=exist_ok))

    mkdirs = makedirs

    async def _rmdir(self, path: str) -> None:
        await self._awaiting.remove_directory(self._named(path))

    def rmdir(self, path: str) -> None:
        """Removes an empty directory, or an empty workspace."""
        now(self._blocking.remove_directory(self._named(path)))

    async def _rm_file(self, path: str, **_: Any) -> None:
        await self._awaiting.remove(self._named(path))

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        now(self._blocking.remove(self._named(path)))

    async def _rm(
        self, path: Any, recursive: bool = False, batch_size: int | None = None, maxdepth: int | None = None, **_: Any
    ) -> None:
        # What is below a directory goes with it, to whatever depth.
        deep = recursive and maxdepth is None
        paths = await self._expand_path(path, recursive=recursive and not deep, maxdepth=maxdepth)
        roots = [self._named(one) for one in paths]
        await self._awaiting.remove_tree(roots, directories_too=recursive, below=deep)

    # -- Open files

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_type: str | None = None,
        cache_options: dict[str, Any] | None = None,
        metadata: Metadata | None = None,
        controls: Controls = None,
        **_: Any,
    ) -> Any:
        parts, plain = self._parts(path), check_mode(mode)
        files = self._blocking
        controls = self.controls if controls is None else controls
        if plain != "r" and self.readonly:
            raise PermissionError(errno.EROFS, os.strerror(errno.EROFS), path)
        if not autocommit and plain not in ("r", "w", "x"):
            raise ValueError(f"mode {mode!r} changes what is there at once, and cannot be part of a transaction: write a new file")
        if plain in ("w+", "x+"):
            now(files.write(parts, b"", exclusive=plain == "x+", metadata=metadata, controls=controls))
        if "+" in plain:
            return io.BufferedRandom(UpdateFile(now(files.open(parts))[0], "r+"))
        opened = None
        if plain == "r":
            opened = now(files.open(parts))
        elif plain == "a":
            opened = now(files.open_or_make(parts, metadata, controls))
        else:
            now(files.expect(parts, exclusive=plain == "x"))
        return IOVFile(
            self,
            path,
            f"{plain}b",
            block_size,
            autocommit,
            cache_type,
            cache_options,
            metadata,
            controls,
            files,
            parts,
            opened,
        )


def _listed(found: list[Any], detail: bool) -> list[Any]:
    return [one.info() if detail else path_of(one.parts) for one in found]


def _bytes(got: bytes | Exception) -> bytes:
    if isinstance(got, Exception):
        raise got
    return got


def _told(got: list[bytes | Exception], on_error: str) -> list[bytes | Exception]:
    if on_error == "raise":
        for one in got:
            _bytes(one)
    return got

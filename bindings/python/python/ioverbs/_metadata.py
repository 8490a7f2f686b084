# SPDX-License-Identifier: Apache-2.0
"""The metadata of a collection, group or workspace, as a mapping over the store."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, MutableMapping, ValuesView
from typing import Any, TypeVar, overload

from ._errors import NotFound
from ._ioverbs import Batch, Handle, Op, Session, run
from ._values import Metadata, Value

_T = TypeVar("_T")


class MetadataView(MutableMapping[str, Value]):
    """The metadata of one object, in the store: each call asks it, nothing is kept here.

    ``md[key]``, ``md[key] = value``, ``del md[key]``, :meth:`get` and :meth:`update` are one request each, as are
    :meth:`items`, :meth:`keys`, :meth:`values` and :meth:`copy`, which show one state. ``dict(md)`` asks once per key:
    use ``md.copy()``. System keys (``iov.size`` …) can be read by name; they are not among the items.

    A missing key raises :class:`NotFound`, which is a ``KeyError``.
    """

    __slots__ = ("_handle", "_session")

    def __init__(self, handle: Handle, session: Session) -> None:
        self._handle = handle
        self._session = session

    def copy(self) -> dict[str, Value]:
        """All user pairs, in the order of keys."""
        pairs: dict[str, Value] = run(Op.metadata_list(self._handle))
        return pairs

    def __getitem__(self, key: str) -> Value:
        value: Value = run(Op.metadata_get(self._handle, key))
        return value

    def __setitem__(self, key: str, value: Value) -> None:
        run(Op.metadata_put(self._handle, {key: value}))

    def __delitem__(self, key: str) -> None:
        run(Op.metadata_remove(self._handle, key))

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.copy())

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            return False
        try:
            self[key]
        except NotFound:
            return False
        return True

    @overload
    def get(self, key: str, /, default: None = None) -> Value | None: ...
    @overload
    def get(self, key: str, /, default: Value | _T) -> Value | _T: ...
    def get(self, key: str, /, default: Value | _T | None = None) -> Value | _T | None:
        """The value of `key`, or `default`."""
        try:
            return self[key]
        except NotFound:
            return default

    def keys(self) -> KeysView[str]:
        return self.copy().keys()

    def values(self) -> ValuesView[Value]:
        return self.copy().values()

    def items(self) -> ItemsView[str, Value]:
        return self.copy().items()

    def update(self, other: Metadata | Iterable[tuple[str, Value]] = (), /, **pairs: Value) -> None:  # type: ignore[override]
        """Adds or replaces all the given pairs in one request; others stay."""
        both = {**dict(other), **pairs}
        if both:
            run(Op.metadata_put(self._handle, both))

    def clear(self) -> None:
        """Removes all user pairs, in one batch."""
        batch = Batch(self._session, "rollback", "auto", None, 0, None)
        for key in self.copy():
            batch.push(Op.metadata_remove(self._handle, key))
        request = batch.start()
        request.wait(-1)
        for i in range(request.count()):
            if (error := request.status(i)[2]) is not None:
                raise error

    def __repr__(self) -> str:
        return f"<ioverbs.MetadataView of {self._handle!r}>"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MetadataView):
            return self.copy() == other.copy()
        return self.copy() == other

    __hash__: Any = None

# SPDX-License-Identifier: Apache-2.0
"""Stores as file systems for fsspec: ``iov://HOST/WORKSPACE/PATH``, ``iov:///WORKSPACE/PATH``.

>>> import fsspec
>>> fs = fsspec.filesystem("iov", store="mem:fs-example")
>>> fs.mkdir("runs")
>>> fs.pipe("runs/a/first.txt", b"hello")
>>> fs.cat("runs/a/first.txt")
b'hello'
>>> with fs.open("runs/a/second.txt", "w") as f:
...     _ = f.write("world")
>>> fs.ls("runs/a", detail=False)
['runs/a/first.txt', 'runs/a/second.txt']

Needs ``fsspec`` (``pip install ioverbs[fsspec]``). The guide is ``docs/guide/fsspec.md``.
"""

from ._file import IOVFile
from ._filesystem import IOVFileSystem

__all__ = ["IOVFile", "IOVFileSystem"]

for _public in (IOVFile, IOVFileSystem):
    _public.__module__ = "ioverbs.fs"
del _public

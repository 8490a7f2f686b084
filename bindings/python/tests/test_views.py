# SPDX-License-Identifier: Apache-2.0
"""Views: stored bytes in place, of stores in shared memory."""

import gc
from collections.abc import Iterator
from pathlib import Path

import ioverbs
import pytest

from conftest import end_daemon

BYTES = bytes(i * 7 % 251 for i in range(3_000_000))


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_url: str) -> Iterator[ioverbs.Workspace]:
    """A workspace of a new store in shared memory."""
    del file_url  # there are `file:` stores here
    monkeypatch.setenv("IOVD_STORAGE", "shmem:64MiB")
    url = f"file:{tmp_path / 'shared'}"
    with ioverbs.open(url) as session:
        yield session.workspace("w", create=True)
    end_daemon(url)
    import os
    import subprocess

    subprocess.run([os.environ["IOVERBS_IOVD"], "--dir", tmp_path / "shared", "--release"], check=True)


def test_a_view_is_what_is_stored(shared: ioverbs.Workspace) -> None:
    with shared.create("c") as c:
        c.write(0, BYTES)
        shown, at = [], 0
        while at < len(BYTES):
            view = c.view(at, len(BYTES))
            assert view.readonly and view.format == "B" and view.ndim == 1 and view.nbytes > 0
            shown.append(bytes(view))
            at += view.nbytes
        assert b"".join(shown) == BYTES
        assert c.view(len(BYTES), 10).nbytes == 0
        with pytest.raises(TypeError):
            c.view(0, 10)[0] = 1  # type: ignore[index]


def test_a_view_keeps_its_bytes(shared: ioverbs.Workspace) -> None:
    with shared.create("c") as c:
        c.write(0, BYTES)
        view = c.view(100, 50_000)
    shared.delete("c")
    gc.collect()
    with shared.create("other") as other:
        other.write(0, b"\xee" * 8_000_000)
    assert view == BYTES[100 : 100 + view.nbytes]
    view.release()


def test_numpy_looks_without_a_copy(shared: ioverbs.Workspace) -> None:
    numpy = pytest.importorskip("numpy")
    with shared.create("c") as c:
        data = numpy.arange(100_000, dtype="<f8")
        c.write(0, data)
        c.seal()
        array = numpy.frombuffer(c.view(0, data.nbytes), dtype="<f8")
        assert not array.flags.owndata and not array.flags.writeable
        assert (array == data[: len(array)]).all()

# SPDX-License-Identifier: Apache-2.0
"""Stores for the tests: `mem:`, and `file:` where this tree has it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ioverbs

if TYPE_CHECKING:
    from ioverbs.fs import IOVFileSystem

NUMBERS = itertools.count(1)
TOP = Path(__file__).resolve().parents[3]


def built_daemon() -> Path | None:
    """The newest daemon that this tree has built."""
    target = Path(os.environ.get("TARGET", "target"))
    found = [path for kind in ("debug", "release") if (path := TOP / target / kind / "iovd").is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


if "IOVERBS_IOVD" not in os.environ and (daemon := built_daemon()) is not None:
    os.environ["IOVERBS_IOVD"] = str(daemon)


def end_daemon(url: str) -> None:
    """Ends a store's daemon and waits until it has let go of the directory."""
    try:
        ioverbs.daemon_shutdown(url)
    except ioverbs.Unavailable:
        # It was just about to end.
        pass


@cache
def file_stores() -> str | None:
    """Why there are no `file:` stores here; `None`: there are."""
    with tempfile.TemporaryDirectory() as directory:
        url = f"file:{directory}"
        try:
            ioverbs.open(url, deadline=20.0).close()
        except ioverbs.Error as e:
            return f"file: stores do not work here: {e}"
        end_daemon(url)
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    why = file_stores()
    daemon = os.environ.get("IOVERBS_IOVD", "found by the library")
    terminalreporter.write_line(f"file: stores: {f'the daemon is {daemon}' if why is None else f'NOT TESTED: {why}'}")


def new_store(directory: Path) -> Iterator[str]:
    """A new `file:` store, and its end."""
    if why := file_stores():
        # Whoever names a daemon wants it tested.
        (pytest.fail if "IOVERBS_IOVD" in os.environ else pytest.skip)(why)
    url = f"file:{directory / 'store'}"
    yield url
    end_daemon(url)


@pytest.fixture
def file_url(tmp_path: Path) -> Iterator[str]:
    """A new `file:` store."""
    yield from new_store(tmp_path)


@pytest.fixture(scope="module")
def shared_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A `file:` store for all tests of a file, which leave nothing in it."""
    yield from new_store(tmp_path_factory.mktemp("shared"))


@pytest.fixture(params=["mem", "file"])
def url(request: pytest.FixtureRequest) -> str:
    """A new store of each kind."""
    if request.param == "mem":
        return f"mem:test-{os.getpid()}-{next(NUMBERS)}"
    found: str = request.getfixturevalue("file_url")
    return found


@pytest.fixture
def session(url: str) -> Iterator[ioverbs.Session]:
    with ioverbs.open(url) as session:
        yield session


@pytest.fixture
def ws(session: ioverbs.Session) -> ioverbs.Workspace:
    return session.workspace("test", indexes=["temperature"])


@pytest.fixture
def c(ws: ioverbs.Workspace) -> Iterator[ioverbs.Collection]:
    with ws.create("c") as c:
        yield c


Script = Callable[..., str]


@pytest.fixture
def script() -> Script:
    """Runs a Python program in a process of its own, which must end well, and returns what it printed."""

    def run(text: str, *arguments: str, timeout: float = 60) -> str:
        command = [sys.executable, "-W", "error", "-c", text, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def fs(url: str) -> Iterator[IOVFileSystem]:
    """A file system for fsspec with a workspace `w`."""
    pytest.importorskip("fsspec")
    from ioverbs.fs import IOVFileSystem

    fs = IOVFileSystem(store=url, skip_instance_cache=True)
    fs.mkdir("w")
    yield fs
    fs._blocking.store.session().close()

# SPDX-License-Identifier: Apache-2.0
"""The suite that fsspec has for file systems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fsspec")

from fsspec.tests import abstract  # noqa: E402

from ioverbs.fs import IOVFileSystem  # noqa: E402


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture(params=["past the daemon", "through the daemon"])
    def fs(self, request: pytest.FixtureRequest, shared_url: str) -> Iterator[IOVFileSystem]:
        fs = IOVFileSystem(store=shared_url, skip_instance_cache=True, direct=request.param == "past the daemon")
        fs.mkdir("work")
        yield fs
        fs.rm("work", recursive=True)
        fs._blocking.store.session().close()

    @pytest.fixture
    def fs_path(self) -> str:
        return "work/abstract"

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *names: "/".join(names)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return True


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc]
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc]
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc]
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc]
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc]
    pass

# SPDX-License-Identifier: Apache-2.0
"""The types that programs are checked against are those of the package."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import ioverbs
from ioverbs import aio

HERE = Path(__file__).resolve().parent

PROGRAM = """
import numpy as np
import ioverbs
from ioverbs import aio

def main(session: ioverbs.Session) -> None:
    ws = session.workspace("w", indexes=["t"], profile="checkpoint")
    c = ws.create("c", {"t": 1.5}, consistency="session", collection_size=(0, 8192))
    reveal_type(c.read(0, 5))
    reveal_type(c.readinto(0, np.zeros(5)))
    reveal_type(c.file(buffering=0))
    reveal_type(ws.find("t > ?", 1).one().metadata["t"])
    reveal_type(c.metadata.get("t"))
    reveal_type(c.stat().mtime)
    with session.batch(error="rollback") as b:
        reveal_type(b.create(ws))
        reveal_type(b.read(c, 0, 5).result())
        reveal_type(b.group(ws, "g"))

async def amain(session: aio.Session) -> None:
    ws = await session.workspace("w")
    async with await ws.create() as c:
        reveal_type(await c.read())
    reveal_type(session.batch().open(ws, "c"))

def wrong(c: ioverbs.Collection, session: ioverbs.Session) -> None:
    c.write("0", b"x")
    c.write(0, "x")
    session.batch(error="retry")
    c.workspace.create("x", consistancy="session")
"""

REVEALED = [
    "bytes",
    "int",
    "ioverbs._file.CollectionFile",
    "str | int | float | bool | bytes | datetime.datetime",
    "str | int | float | bytes | datetime.datetime | None",
    "ioverbs._values.Timestamp | None",
    "ioverbs._handles.Collection",
    "bytes",
    "ioverbs._handles.Group",
    "bytes",
    "ioverbs.aio._handles.Collection",
]


def mypy(*arguments: str) -> str:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent, timeout=300)
    return done.stdout + done.stderr


def test_the_package_is_typed_strictly() -> None:
    assert "Success: no issues found" in mypy("mypy")


def test_stubs_agree_with_the_native_half(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text("ioverbs._ioverbs.__all__\n")
    assert "Success" in mypy("mypy.stubtest", "ioverbs._ioverbs", "--allowlist", str(allowed))


def test_what_a_program_sees(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    out = mypy("mypy", "--strict", "--config-file", "", str(path))
    revealed = [line.split('"')[1] for line in out.splitlines() if "Revealed type is" in line]
    assert revealed == REVEALED, out
    errors = [line for line in out.splitlines() if ": error:" in line]
    assert len(errors) == 4, out
    for error, part in zip(errors, ['incompatible type "str"', 'incompatible type "str"', "'retry'", '"consistancy"']):
        assert part in error, out


@pytest.mark.parametrize("module", [ioverbs, aio])
def test_examples_in_docstrings(module: object) -> None:
    failed, tried = doctest.testmod(module)  # type: ignore[arg-type]
    assert failed == 0 and tried > 0


def test_everything_public_is_documented() -> None:
    missing = []
    for module in (ioverbs, aio):
        for name in module.__all__:
            thing = getattr(module, name)
            if isinstance(thing, type):
                members = [
                    f"{name}.{member}"
                    for member, value in vars(thing).items()
                    if not member.startswith("_")
                    and (inspect.isfunction(value) or isinstance(value, property))
                    and not inspect.getdoc(getattr(thing, member))
                ]
                missing += members
            if (isinstance(thing, type) or callable(thing)) and not inspect.getdoc(thing):
                missing.append(name)
    assert not missing

# SPDX-License-Identifier: Apache-2.0
"""What README.md shows is what happens."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
PRINTED = ["part_6 1000000\npart_7 1000000\n", "32000\n[0. 1. 2. 3.]\n"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def test_the_session(file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOVERBS_URL", file_url)
    text = "\n".join(blocks("pycon"))
    test = doctest.DocTestParser().get_doctest(text, {}, README.name, str(README), 0)
    said: list[str] = []
    # The messages are compared in full, and the frames above them are not.
    doctest.DocTestRunner(verbose=False).run(test, out=said.append, clear_globs=False)
    for name in ("c", "safe", "session"):
        test.globs[name].close()
    assert len(test.examples) > 30 and not said, "".join(said)


@pytest.mark.parametrize("i", range(len(PRINTED)))
def test_programs(file_url: str, tmp_path: Path, i: int) -> None:
    programs = blocks("python")
    assert len(programs) == len(PRINTED)
    path = tmp_path / "program.py"
    path.write_text(programs[i])
    env = {**os.environ, "IOVERBS_URL": file_url}
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert (done.returncode, done.stdout) == (0, PRINTED[i]), done.stderr

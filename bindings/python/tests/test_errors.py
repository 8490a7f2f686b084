# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import ioverbs
from ioverbs import _errors, _ioverbs

KINDS = _ioverbs.error_kinds()


def test_every_kind_has_its_class_number_and_errno() -> None:
    ours = {kind: (code, number) for kind, (code, _, number) in _errors._CLASSES.items()}
    assert ours == {kind: (code, number) for kind, code, number, _ in KINDS}


@pytest.mark.parametrize(("kind", "code", "number", "text"), KINDS)
def test_a_class_says_what_to_do(kind: str, code: int, number: int, text: str) -> None:
    e = _errors.make(code, 3, "C2", "it broke; offer: consistency=session")
    assert (e.kind, e.code, e.outcome, e.clause) == (kind, code, "unknown", "C2")
    assert e.offer == "consistency=session"
    assert str(e) == f"it broke; offer: consistency=session ({kind}, clause C2)"
    assert type(e) is getattr(ioverbs, type(e).__name__)
    assert type(e).__doc__
    if isinstance(e, OSError):
        assert (e.errno, e.strerror) == (number, e.detail)
    again = pickle.loads(pickle.dumps(e))
    assert (type(again), str(again), again.outcome) == (type(e), str(e), "unknown")


@pytest.mark.parametrize(
    ("ours", "builtin"),
    [
        (ioverbs.NotFound, FileNotFoundError),
        (ioverbs.NotFound, KeyError),
        (ioverbs.Exists, FileExistsError),
        (ioverbs.Denied, PermissionError),
        (ioverbs.Immutable, PermissionError),
        (ioverbs.Timeout, TimeoutError),
        (ioverbs.Unavailable, ConnectionError),
        (ioverbs.Invalid, ValueError),
        (ioverbs.Unsupported, NotImplementedError),
        (ioverbs.Exhausted, OSError),
        (ioverbs.Busy, OSError),
        (ioverbs.Forked, RuntimeError),
    ],
)
def test_built_in_classes_catch(ours: type[ioverbs.Error], builtin: type[Exception]) -> None:
    assert issubclass(ours, builtin) and issubclass(ours, ioverbs.Error)


def test_errors_of_calls(ws: ioverbs.Workspace) -> None:
    with pytest.raises(FileNotFoundError, match="nothing-here") as missing:
        ws["nothing-here"]
    assert missing.value.errno == 2
    ws.create("taken").close()
    with pytest.raises(FileExistsError, match="taken"):
        ws.create("taken")
    with pytest.raises(ioverbs.Invalid, match="O3"):
        ws.create("a/b")
    with pytest.raises(ioverbs.NotEmpty):
        ws.session.delete_workspace("test")
    with pytest.raises(ioverbs.Refused) as refused:
        ws.create("x", persistence="replicated")
    assert refused.value.clause == "P4" and "persistence=" in (refused.value.offer or "")


def test_urls() -> None:
    with pytest.raises(ioverbs.Invalid, match="not a store URL"):
        ioverbs.open("nonsense")
    with pytest.raises(ioverbs.Unsupported, match="no store has the scheme"):
        ioverbs.open("gopher:hole")
    with pytest.raises(ioverbs.Invalid, match="deadline"):
        ioverbs.open("mem:", deadline=-1)


def test_default_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOVERBS_URL", "mem:from-the-environment")
    assert ioverbs.default_url() == "mem:from-the-environment"
    with ioverbs.open() as session:
        assert session.url == "mem:from-the-environment"


def test_a_read_only_session_changes_nothing(url: str) -> None:
    with ioverbs.open(url) as writer, ioverbs.open(url, readonly=True) as reader:
        writer.workspace("w").create("c").close()
        ws = reader.workspace("w")
        with ws["c"] as c:
            assert c.read() == b""
            with pytest.raises(PermissionError):
                c.write(0, b"x")
        with pytest.raises(PermissionError):
            ws.create("d")


def test_what_nobody_waits_for_is_done_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"file:{tmp_path / 'store'}"
    served = "background_requests"
    with ioverbs.open(url, direct=False) as session, ioverbs.open(url, direct=False, background=True) as later:
        with session.workspace("w").create("c") as c:
            c.write(0, b"x" * 100_000)
        before = ioverbs.daemon_status(url)
        assert before is not None and before[served] == 0
        with later.workspace("w")["c"] as c:
            assert c.read() == b"x" * 100_000
        after = ioverbs.daemon_status(url)
        assert after is not None and after[served] > 0
        monkeypatch.setenv("IOVERBS_PRIORITY", "background")
        with ioverbs.open(url) as by_setting:
            assert "c" in by_setting.workspace("w")
        last = ioverbs.daemon_status(url)
        assert last is not None and last[served] > after[served]
        monkeypatch.setenv("IOVERBS_PRIORITY", "soon")
        with pytest.raises(ioverbs.Invalid, match="foreground or background"):
            ioverbs.open(url)
    ioverbs.daemon_shutdown(url)


def test_a_closed_handle_is_refused(ws: ioverbs.Workspace) -> None:
    c = ws.create("c")
    assert not c.closed
    c.close()
    assert c.closed
    c.close()
    with pytest.raises(ioverbs.Invalid, match="closed"):
        c.read(0, 1)
    ws.close()
    with pytest.raises(ioverbs.Invalid, match="closed"):
        ws.create("d")

# SPDX-License-Identifier: Apache-2.0
"""Segments: bytes with an id instead of a name."""

import uuid

import pytest

import ioverbs


@pytest.fixture
def segments(ws):
    return ws.segments


def test_a_segment_is_like_memory(ws, segments):
    segment = segments.create(100_000)
    assert isinstance(segment, uuid.UUID)
    assert segments.size(segment) == 100_000
    assert segments.get(segment, 0, 100_000) == bytes(100_000)
    segments.put(segment, 99_000, bytearray(b"x" * 1000))
    # Somebody else of the workspace, who knows the id.
    other = ws.segments
    assert other.get(segment, 98_999, 1001) == b"\0" + b"x" * 1000
    into = bytearray(5)
    other.get_into(segment, 99_000, into)
    assert into == b"xxxxx"
    with pytest.raises(ioverbs.FileTooBig):
        segments.put(segment, 99_001, b"x" * 1000)
    with pytest.raises(ioverbs.Invalid, match="ends after 999"):
        segments.get(segment, 99_001, 1000)
    assert segments.list() == [(segment, 100_000)]
    with segments.open(segment) as collection:
        assert collection.read(99_000, 3) == b"xxx"
    segments.remove(segment)
    for by in (segments, other):
        with pytest.raises(ioverbs.NotFound):
            by.get(segment, 0, 1)
    assert segments.list() == []
    with pytest.raises(ioverbs.Invalid):
        segments.create(0)
    with pytest.raises(TypeError):
        segments.get("name", 0, 1)


def test_the_space_is_endless(segments):
    block = uuid.UUID(int=7)
    assert segments.read(block, 1 << 40, 4) == bytes(4)
    segments.write(block, 1 << 40, b"edge")
    assert segments.read(block, (1 << 40) - 2, 8) == b"\0\0edge\0\0"
    segments.remove(block)
    segments.write(block, 0, b"again")
    assert segments.read(block, 0, 5) == b"again"


def test_controls_are_heard(segments):
    with pytest.raises(ioverbs.Refused):
        segments.create(1000, persistence="replicated")
    segment = segments.create(1000, consistency="commit")
    assert "consistency=commit" in str(segments.open(segment).controls)

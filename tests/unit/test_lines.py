"""Output is cut into lines as it comes, whatever the pieces in which it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.engines.launch.lines import MOST, Lines


def cut(*pieces: bytes) -> list[str]:
    lines = Lines()
    return [text for piece in pieces for text in lines.feed(piece)] + lines.end()


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([], []),
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"o", b"ne\nt", b"wo"], ["one", "two"]),
        ([b"\n\nx\n"], ["", "", "x"]),
        ([b"one\r\ntwo\r\n"], ["one", "two"]),
        ([b"one\r", b"\ntwo"], ["one", "two"]),
        ([b"one\r", b"\n", b"\n"], ["one", ""]),
        ([b"\r 10%\r 20%", b"\r100%\n"], [" 10%", " 20%", "100%"]),
        ([b"\xff\n"], ["\N{REPLACEMENT CHARACTER}"]),
        ([b"a\x0cb\x1cc\n"], ["a\x0cb\x1cc"]),
    ],
)
def test_a_line_ends_with_a_newline_or_a_return(pieces: list[bytes], lines: list[str]) -> None:
    assert cut(*pieces) == lines


def test_a_bar_shows_each_state_when_the_next_one_comes() -> None:
    lines = Lines()
    assert lines.feed(b"\r 10%") == []
    assert lines.feed(b"\r 20%") == [" 10%"]


def test_a_line_without_end_is_shown_in_pieces() -> None:
    lines = Lines()
    shown = [text for _ in range(50) for text in lines.feed(b"x" * 50_000)] + lines.end()
    assert {len(text) for text in shown[:-1]} == {MOST}
    assert sum(map(len, shown)) == 50 * 50_000


@given(st.lists(st.text(st.sampled_from("ab\r\n"), max_size=6)))
def test_the_pieces_make_no_difference(pieces: list[str]) -> None:
    data = [piece.encode() for piece in pieces]
    assert cut(*data) == cut(b"".join(data))

"""The conformance suite for placements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from syncline.errors import UsageError
from syncline.layout import Layout
from syncline.placement import Own, Placement, Ranges, checked, placement_of, replaced
from syncline.spec import parse, write
from syncline.testing.common import MANY, asked, check_value, own_randomness

SERVERS = (1, 2, 3, 8)
CHANGES = ((0, 1, 2), (0, 1, 2, 3), (0, 2, 3), (2, 3), (2, 3, 4), (2, 3, 4, 5, 6), (6,))
"""The server numbers after each change, in a run in which servers join and leave."""


def check_placement(placement: object) -> None:
    """Raise AssertionError, with the reason, if the placement breaks one of these rules.

    `placement` is an object, or a function of the tables. The models have few and many tables, small ones and one of
    more than 262,144 values.

    1. It returns the ranges of each server, and as many entries as there are servers.
    2. Every value is on exactly one server, and every server holds some.
    3. When servers join and leave, `replace`, or `place` without one, gives values only to the servers that are there.
    4. The same model and servers give the same result: neither earlier calls nor shared random generators matter.
    5. The placement is a value: it compares and hashes, and can be written as text and read back.
    """
    try:
        part = placement_of(placement)
    except UsageError as error:
        raise AssertionError(error.problem) from error
    what = _check_value(part)
    with own_randomness(what):
        first = _all(part, what)
        again = dict(reversed(list(_results(part, what, backwards=True))))
        for case, ranges in first.items():
            problem = (
                f"{what}, {case}: after other calls it returned another result; it must keep nothing between calls"
            )
            assert again[case] == ranges, problem


def _check_value(part: Placement) -> str:
    if not isinstance(part, Own):
        return check_value("placement", part, Placement)
    text = write(part)
    try:
        found = parse("placement", text)
    except UsageError as error:
        raise AssertionError(f"{text} cannot be found by its name: {error.problem}") from error
    assert found == part, f"{text} is the name of another function; define it at the top of a module"
    return text


def _layouts() -> Iterator[tuple[str, Layout]]:
    sizes = [MANY + 5, 1, 64, 4096, 7, 7, 128, 300, 12, 1000]
    yield "ten tables", Layout.of([(f"t{place}", (size,)) for place, size in enumerate(sizes)])
    yield "ten tables in reverse", Layout.of([(f"t{place}", (size,)) for place, size in enumerate(sizes[::-1])])
    yield "equal tables", Layout.of([(f"layer{place}.weight", (3, 5)) for place in range(24)])
    yield "eight values", Layout.of([(f"t{place}", ()) for place in range(8)])


def _all(part: Placement, what: str) -> dict[str, Ranges]:
    found = dict(_results(part, what))
    for case, ranges in _results(part, what):
        problem = f"{what}, {case}: the same call gave another result; does it draw random numbers or count its calls?"
        assert found[case] == ranges, problem
    return found


def _results(part: Placement, what: str, backwards: bool = False) -> Iterator[tuple[str, Ranges]]:
    """(model and servers, result), checked; `backwards`: in another order."""
    layouts = list(_layouts())
    for name, layout in layouts[::-1] if backwards else layouts:
        for servers in SERVERS[::-1] if backwards else SERVERS:
            case = f"{name} on {servers} server{'s' if servers > 1 else ''}"
            yield case, _checked(lambda: checked(part, layout, servers), f"{what}, {case}")  # noqa: B023
        yield from _moves(part, layout, name, what)


def _moves(part: Placement, layout: Layout, name: str, what: str) -> Iterator[tuple[str, Ranges]]:
    held = _checked(lambda: checked(part, layout, len(CHANGES[0])), f"{what}, {name}")
    for servers in CHANGES[1:]:
        case = f"{name}, moved to servers {', '.join(map(str, servers))}"
        held = _checked(lambda: replaced(part, layout, held, servers), f"{what}, {case}")  # noqa: B023
        _check_holders(held, servers, f"{what}, {case}")
        yield case, held


def _checked(place: Callable[[], Ranges], what: str) -> Ranges:
    try:
        return asked(place, what)
    except AssertionError as error:
        cause = error.__cause__
        raise AssertionError(f"{what}: {cause.problem}" if isinstance(cause, UsageError) else str(error)) from cause


def _check_holders(held: Ranges, servers: Collection[int], what: str) -> None:
    there = {number for number, pieces in enumerate(held) if pieces}
    assert there == set(servers), f"{what}: servers {sorted(there)} hold values"

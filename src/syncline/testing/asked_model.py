"""A sync model around another one, which checks how that one answers and what it does with the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syncline.draw import Draw
from syncline.spec import write
from syncline.sync import Adaptive, Again, State, SyncModel, applies_at_close, asks_again
from syncline.testing.common import asked, check_bool

NAMES = frozenset(name for name in dir(State) if not name.startswith("_"))


def strict(model: SyncModel) -> SyncModel:
    """The same model, with checks."""
    return _AskedAdaptive(model, model) if isinstance(model, Adaptive) else _Asked(model)


class _ReadOnly:
    """The state of a bucket as the protocol `State` describes it."""

    __slots__ = ("_state", "_what")

    def __init__(self, state: State, what: str) -> None:
        object.__setattr__(self, "_state", state)
        object.__setattr__(self, "_what", what)

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(sorted(NAMES))
        assert name in NAMES, f"{self._what} uses state.{name}, which does not exist; the state has {known}"
        return getattr(self._state, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AssertionError(f"{self._what} changes state.{name}; the state is read-only")


class _Asked:
    """Asks the model every question twice."""

    def __init__(self, model: SyncModel) -> None:
        self._model = model
        self._text = write(model)
        self.at_close = applies_at_close(model)
        self.asks_again: Again = asks_again(model)

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return self._asked("may_answer", lambda shown: self._model.may_answer(shown, worker, i, draw), state)

    def may_close(self, state: State) -> bool:
        return self._asked("may_close", self._model.may_close, state)

    def _asked(self, name: str, ask: Callable[[Any], object], state: State) -> bool:
        what = f"{self._text}: `{name}`"
        first, second = (
            check_bool(asked(lambda: ask(_ReadOnly(state, what)), what), f"the result of {what}") for _ in range(2)
        )
        assert first == second, f"{what} gave two answers about one state; it must keep nothing between calls"
        return first


class _AskedAdaptive(_Asked):
    def __init__(self, model: SyncModel, adaptive: Adaptive) -> None:
        super().__init__(model)
        self._adaptive = adaptive

    def first_bound(self) -> int:
        return self._bound("first_bound", self._adaptive.first_bound)

    def next_bound(self, state: State) -> int:
        what = f"{self._text}: `next_bound`"
        return self._bound("next_bound", lambda: self._adaptive.next_bound(_ReadOnly(state, what)))

    def _bound(self, name: str, ask: Callable[[], int]) -> int:
        what = f"{self._text}: `{name}`"
        bound: object = asked(ask, what)
        problem = f"the result of {what} must be a whole number of at least 0, not {bound!r}"
        assert isinstance(bound, int), problem
        assert bound >= 0, problem
        return bound

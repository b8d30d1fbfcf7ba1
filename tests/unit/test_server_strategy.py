"""The server strategy made from objects: the same settings, and the same refusals, as from text."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.layout import Table
from syncline.placement import Own
from syncline.rules import Add, Mean, Sgd
from syncline.sim import Cluster, MadeUp, Mode, Scenario, Switch, simulate
from syncline.strategies.server import ServerStrategy
from syncline.sync import Asp, Bsp, Release, Ssp


def by_name(tables: tuple[Table, ...], servers: int) -> Sequence[Sequence[str]]:
    return [[table.name for table in tables[server::servers]] for server in range(servers)]


AS_TEXT: Mapping[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {
    "nothing": ({}, {}),
    "asp": ({"sync": (Asp(),)}, {"sync": "asp"}),
    "one model": ({"sync": Ssp(3)}, {"sync": "ssp:3"}),
    "texts": ({"sync": ("ssp:3", "bsp")}, {"sync": "ssp:3 bsp"}),
    "a text": ({"sync": "ssp:3 bsp"}, {"sync": "ssp:3 bsp"}),
    "changes": ({"sync": (Asp(),), "mode": Mode.CHANGES}, {"sync": "asp", "mode": "changes"}),
    "changes under bsp": ({"mode": Mode.CHANGES}, {"mode": "changes"}),
    "rule": ({"sync": (Asp(),), "rule": Sgd(0.1)}, {"sync": "asp", "rule": "sgd:0.1"}),
    "add": ({"rule": Add()}, {"rule": "add"}),
    "words": (
        {"mode": "rule", "rule": "sgd:0.1", "release": "soft", "codec": "fp16", "gate": "always"},
        {"mode": "rule", "rule": "sgd:0.1", "release": "soft", "codec": "fp16"},
    ),
}


@pytest.mark.parametrize("name", AS_TEXT)
def test_objects_are_settled_as_their_text_is(name: str) -> None:
    objects, words = AS_TEXT[name]
    assert ServerStrategy(**objects) == ServerStrategy.of(words)


def test_a_mode_without_a_rule_has_its_own_rule() -> None:
    assert ServerStrategy(sync=(Asp(),), mode=Mode.CHANGES).rule == Add()
    assert ServerStrategy(mode=Mode.CHANGES).rule == Add()
    assert ServerStrategy(mode=Mode.GRADIENTS).rule == Mean()
    assert ServerStrategy(sync=(Asp(),)).mode is Mode.CHANGES
    assert ServerStrategy(rule=Sgd(0.1)).mode is Mode.RULE


REFUSED: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "changes with mean": ({"mode": Mode.CHANGES, "rule": Mean()}, "rule: 'mean' does not work with mode = 'changes'"),
    "changes with sgd": ({"mode": Mode.CHANGES, "rule": Sgd(0.1)}, "rule: 'sgd:0.1' does not work with mode"),
    "rule without one": ({"mode": Mode.RULE}, "mode: 'rule' needs the setting rule"),
    "rule with mean": ({"mode": Mode.RULE, "rule": Mean()}, "rule: 'mean' is not an optimizer"),
    "gradients with sgd": ({"mode": Mode.GRADIENTS, "rule": Sgd(0.1)}, "rule: 'sgd:0.1' does not work with mode"),
    "no model": ({"sync": ()}, "sync: the list is empty"),
    "not a model": ({"sync": (3,)}, "sync: 3 is not a SyncModel"),
    "a class": ({"sync": Asp}, "sync: <class 'syncline.sync.Asp'> is not a SyncModel"),
    "a rule as codec": ({"codec": Sgd(0.1)}, "codec: Sgd.* is not a Codec"),
    "a mode that is none": ({"mode": "ruel"}, "mode: must be one of"),
    "a bucket of nothing": ({"bucket_values": 0}, "bucket_values: must be a whole number of at least 1"),
    "no patience": ({"patience": -1.0}, "patience: must be more than 0 seconds"),
    "not a placement": ({"placement": 7}, "placement: 7 is neither an object"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused_before_anything_runs(name: str) -> None:
    objects, problem = REFUSED[name]
    with pytest.raises(UsageError, match=problem):
        ServerStrategy(**objects)


def test_a_model_that_the_mode_cannot_have_is_refused_by_the_scenario() -> None:
    scenario = Scenario(Cluster(2), ServerStrategy(sync=(Asp(),), mode=Mode.GRADIENTS))
    with pytest.raises(UsageError, match="'gradients' works only with bsp, not 'asp'"):
        scenario.check()
    with pytest.raises(UsageError, match="'gradients' works only with bsp, not 'asp'"):
        simulate(replace(scenario, strategy=replace(ServerStrategy(), sync=(Asp(),))), MadeUp(8, Draw(0)))


def test_a_function_is_a_placement() -> None:
    strategy = ServerStrategy(placement=by_name)
    assert strategy.placement == Own(by_name)
    assert pickle.loads(pickle.dumps(strategy)) == strategy
    assert simulate(Scenario(Cluster(2), strategy, iterations=2), MadeUp(8, Draw(0))).updates == 4


def test_a_switch_takes_a_model_or_its_text() -> None:
    assert Switch(1.0, "ssp:3", release="soft") == Switch(1.0, Ssp(3), release=Release.SOFT)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="sync: 3 is not a SyncModel"):
        Switch(1.0, 3)  # type: ignore[arg-type]


def test_a_strategy_can_be_printed_and_replaced() -> None:
    strategy = ServerStrategy(sync=(Ssp(3), Bsp()), release=Release.SOFT)
    assert str(strategy) == "server:sync=ssp:3 bsp,release=soft,mode=changes,rule=add"
    assert str(ServerStrategy()) == "server"
    assert replace(strategy, release="lazy") == ServerStrategy(sync=("ssp:3", "bsp"))

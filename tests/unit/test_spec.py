"""Text <-> parts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline import codecs, gates, placement, rules, spec, sync
from syncline.errors import UsageError
from syncline.parts import Part
from syncline.sim.dispatch import DISPATCHES, InTurn, UniformDispatch, Weighted, parse_dispatch
from syncline.spec import example, own_names, parse, parse_among, write
from syncline.strategies.table import read_strategy
from syncline.sync import Asp, Bsp, Drop, Dsps, Psp, Pssp, Ssp

positive = st.floats(0, 1e30, exclude_min=True, allow_nan=False)
share = st.floats(0, 1)
whole = st.integers(0, 10**9)
counting = st.integers(1, 10**9)
skips = st.sampled_from([gates.ACCUMULATE, gates.REAPPLY])

words_of_a_table = st.text("abcXYZ019._*? -+:/é", min_size=1, max_size=8).filter(lambda word: word == word.strip())
writers = st.one_of(
    st.just(codecs.Fp16()),
    st.just(codecs.Bf16()),
    st.just(codecs.Int8()),
    st.just(codecs.OneBit()),
    st.builds(codecs.Qsgd, st.integers(1, 127)),
    st.just(codecs.Terngrad()),
)
ratio = st.floats(0, 1, exclude_min=True)
topk = st.builds(codecs.TopK, ratio, st.one_of(st.just(0.0), st.floats(0, 1, exclude_max=True)))
threshold = st.builds(codecs.Threshold, positive)
chain = st.builds(codecs.Chain, st.one_of(topk, threshold), writers)
several = st.one_of(st.just(codecs.Dense()), writers, topk, threshold, chain)


def by_size(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(codecs.BySize, counting, inner, inner)


def per_table(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.lists(st.tuples(words_of_a_table, inner), min_size=1, max_size=3).map(tuple)
    return st.builds(codecs.PerTable, pairs, inner)


nested = st.recursive(several, lambda inner: st.one_of(by_size(inner), per_table(inner)), max_leaves=5)

PARTS: dict[str, dict[type, st.SearchStrategy[Any]]] = {
    "sync": {
        Bsp: st.just(Bsp()),
        Asp: st.just(Asp()),
        Ssp: st.builds(Ssp, whole),
        Dsps: st.tuples(whole, counting).map(lambda pair: Dsps(min(pair), max(pair))),
        Drop: st.builds(Drop, counting),
        Psp: st.builds(Psp, counting, whole),
        Pssp: st.one_of(
            st.builds(Pssp, whole, p=share),
            st.builds(Pssp, whole, alpha=st.one_of(st.floats(0, 2), st.just("significance"))),
        ),
    },
    "rule": {
        rules.Mean: st.just(rules.Mean()),
        rules.Add: st.just(rules.Add()),
        rules.Sgd: st.builds(rules.Sgd, positive),
        rules.Momentum: st.builds(rules.Momentum, positive, st.floats(0, 1, exclude_max=True)),
        rules.Sasgd: st.builds(rules.Sasgd, positive),
        rules.Exponential: st.builds(rules.Exponential, positive, st.floats(0, 1e30)),
        rules.Fasgd: st.builds(rules.Fasgd, positive, share, share, st.floats(1e-30, 1e30)),
        rules.DcAsgd: st.builds(
            rules.DcAsgd,
            positive,
            st.floats(0, 1e30),
            st.none() | st.floats(0, 1, exclude_max=True),
            st.floats(1e-30, 1e30),
        ),
        rules.GapAware: st.builds(rules.GapAware, positive, st.floats(0, 1, exclude_max=True), st.floats(1e-30, 1e30)),
        rules.Adam: st.builds(
            rules.Adam,
            positive,
            st.floats(0, 1, exclude_max=True),
            st.floats(0, 1, exclude_max=True),
            st.floats(1e-30, 1e30),
        ),
    },
    "codec": {
        codecs.Dense: st.just(codecs.Dense()),
        codecs.Fp16: st.just(codecs.Fp16()),
        codecs.Bf16: st.just(codecs.Bf16()),
        codecs.Int8: st.just(codecs.Int8()),
        codecs.OneBit: st.just(codecs.OneBit()),
        codecs.Qsgd: st.builds(codecs.Qsgd, st.integers(1, 127), st.booleans()),
        codecs.Terngrad: st.builds(codecs.Terngrad, st.booleans()),
        codecs.TopK: topk,
        codecs.Threshold: threshold,
        codecs.Chain: chain,
        codecs.BySize: by_size(nested),
        codecs.PerTable: per_table(nested),
    },
    "gate": {
        gates.Always: st.just(gates.Always()),
        gates.Every: st.builds(gates.Every, counting, counting, skips),
        gates.Cached: st.builds(gates.Cached, st.integers(0, 100)),
        gates.Bandwidth: st.builds(
            gates.Bandwidth, st.floats(0, 1e30), st.floats(0, 1e30), skips, st.sampled_from(["model", "table"])
        ),
        gates.Significance: st.builds(gates.Significance, st.floats(0, 1e30)),
        gates.Budget: st.builds(gates.Budget, counting, st.sampled_from(["both", "fetch"])),
    },
    "placement": {
        placement.Elastic: st.just(placement.Elastic()),
        placement.RoundRobin: st.just(placement.RoundRobin()),
        placement.Uniform: st.just(placement.Uniform()),
        placement.Balanced: st.just(placement.Balanced()),
    },
}
SHIPPED = {
    "sync": sync.SYNC_MODELS,
    "rule": rules.RULES,
    "codec": codecs.CODECS,
    "gate": gates.GATES,
    "placement": placement.PLACEMENTS,
}
shipped = st.sampled_from(list(PARTS)).flatmap(lambda kind: st.tuples(st.just(kind), st.one_of(*PARTS[kind].values())))


def test_all_shipped_parts_are_tried() -> None:
    assert {kind: set(parts) for kind, parts in PARTS.items()} == {kind: set(parts) for kind, parts in SHIPPED.items()}
    assert set(DISPATCHES) == {UniformDispatch, InTurn, Weighted}


@given(shipped)
def test_a_part_is_what_its_text_says(case: tuple[str, Part]) -> None:
    kind, part = case
    again = parse(kind, str(part))
    assert again == part
    assert type(again) is type(part)
    assert hash(again) == hash(part)
    assert str(again) == str(part) == write(part)


@given(
    st.one_of(
        st.just(UniformDispatch()),
        st.just(InTurn()),
        st.builds(Weighted, st.floats(1e-30, 1e30), whole, st.floats(1e-30, 1e30)),
    )
)
def test_a_dispatch_is_what_its_text_says(part: Part) -> None:
    assert parse_dispatch(str(part)) == part


@pytest.mark.parametrize(
    ("kind", "words", "part"),
    [
        ("sync", "bsp", Bsp()),
        ("sync", " bsp ", Bsp()),
        ("sync", "ssp:3", Ssp(3)),
        ("sync", "ssp:s=3", Ssp(3)),
        ("sync", "ssp: 3", Ssp(3)),
        ("sync", "dsps:1,4", Dsps(1, 4)),
        ("sync", "dsps:hi=4,lo=1", Dsps(1, 4)),
        ("sync", "drop:6", Drop(6)),
        ("sync", "pssp:s=3,p=0.5", Pssp(3, p=0.5)),
        ("sync", "pssp:3,0.5", Pssp(3, p=0.5)),
        ("sync", "pssp:3, p = 0.5", Pssp(3, p=0.5)),
        ("sync", "pssp:s=3,alpha=2", Pssp(3, alpha=2.0)),
        ("sync", "pssp:s=3,alpha=significance", Pssp(3, alpha="significance")),
        ("rule", "sgd:0.1", rules.Sgd(0.1)),
        ("rule", "sgd:1e-3", rules.Sgd(1e-3)),
        ("rule", "momentum:0.1", rules.Momentum(0.1, 0.9)),
        ("rule", "momentum:0.1,mu=0.5", rules.Momentum(0.1, 0.5)),
        ("gate", "every:fetch=2", gates.Every(1, 2)),
        ("gate", "every:2,3", gates.Every(2, 3)),
        ("gate", "every:push=2,on_skip=reapply", gates.Every(2, on_skip="reapply")),
        ("gate", "bandwidth:push=0.5,fetch=2", gates.Bandwidth(0.5, 2.0)),
        ("gate", "bandwidth:fetch=1,per=table", gates.Bandwidth(fetch=1.0, per="table")),
        ("gate", "significance:0.01", gates.Significance(0.01)),
        ("gate", "budget:1MB", gates.Budget(1_000_000)),
        ("gate", "budget:4096,of=fetch", gates.Budget(4096, "fetch")),
        ("rule", "fasgd:0.005", rules.Fasgd(0.005)),
        ("rule", "fasgd:0.005,gamma=1,beta=1", rules.Fasgd(0.005, 1.0, 1.0)),
        ("rule", "adam:0.001,beta2=0.99", rules.Adam(0.001, beta2=0.99)),
        ("rule", "exponential:0.1,0.5", rules.Exponential(0.1, 0.5)),
        ("codec", "topk:0.01", codecs.TopK(0.01)),
        ("codec", "topk:0.01,0.9", codecs.TopK(0.01, 0.9)),
        ("codec", "qsgd:7,feedback=true", codecs.Qsgd(7, True)),
        ("codec", "threshold:1e+30", codecs.Threshold(1e30)),
        ("codec", "topk:0.01+fp16", codecs.Chain(codecs.TopK(0.01), codecs.Fp16())),
        ("codec", "topk:0.01 + fp16", codecs.Chain(codecs.TopK(0.01), codecs.Fp16())),
        ("codec", "threshold:1e+30+int8", codecs.Chain(codecs.Threshold(1e30), codecs.Int8())),
        ("codec", "topk:ratio=0.01,momentum=0.9+qsgd:7", codecs.Chain(codecs.TopK(0.01, 0.9), codecs.Qsgd(7))),
        ("codec", "chain:topk:0.01,fp16", codecs.Chain(codecs.TopK(0.01), codecs.Fp16())),
        ("codec", "by_size", codecs.BySize(4096, codecs.TopK(0.01), codecs.Dense())),
        ("codec", "by_size:1000,large=[topk:ratio=0.01,momentum=0.9]", codecs.BySize(1000, codecs.TopK(0.01, 0.9))),
        ("codec", "by_size:1000, [ topk:ratio=0.01,momentum=0.9 ]", codecs.BySize(1000, codecs.TopK(0.01, 0.9))),
        ("codec", "by_size:1000,large=topk:ratio=0.01", codecs.BySize(1000, codecs.TopK(0.01))),
        ("codec", "per_table:[*.bias=dense]", codecs.PerTable((("*.bias", codecs.Dense()),))),
        (
            "codec",
            "per_table:[a*=[topk:0.1+fp16], b=[by_size:9,large=int8]],other=bf16",
            codecs.PerTable(
                (
                    ("a*", codecs.Chain(codecs.TopK(0.1), codecs.Fp16())),
                    ("b", codecs.BySize(9, codecs.Int8())),
                ),
                codecs.Bf16(),
            ),
        ),
    ],
)
def test_words(kind: str, words: str, part: Part) -> None:
    assert parse(kind, words) == part


PER_TABLE = "per_table:[b=int8,c=[topk:ratio=0.1,momentum=0.5]]"


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Ssp(3), "ssp:3"),
        (Pssp(3, p=0.5), "pssp:s=3,p=0.5"),
        (Dsps(1, 4), "dsps:lo=1,hi=4"),
        (rules.Momentum(0.1), "momentum:0.1"),
        (gates.Every(), "every"),
        (gates.Every(2), "every:2"),
        (gates.Every(1, 2), "every:fetch=2"),
        (codecs.Qsgd(7, True), "qsgd:levels=7,feedback=true"),
        (codecs.Chain(codecs.TopK(0.01), codecs.Fp16()), "topk:0.01+fp16"),
        (codecs.BySize(1000, codecs.TopK(0.1)), "by_size:values=1000,large=topk:0.1"),
        (codecs.BySize(large=codecs.Chain(codecs.TopK(0.1), codecs.Fp16())), "by_size:large=[topk:0.1+fp16]"),
        (codecs.PerTable((("b", codecs.Int8()), ("c", codecs.TopK(0.1, 0.5)))), PER_TABLE),
    ],
)
def test_text_is_short(part: Part, words: str) -> None:
    assert str(part) == words


@dataclass(frozen=True)
class Patient:
    """A sync model of one's own."""

    rounds: int = 1
    factor: float = 2.0
    strict: bool = False
    at_close = False

    def may_answer(self, state: Any, worker: int, i: int, draw: Any) -> bool:
        return i < state.v + self.rounds

    def may_close(self, state: Any) -> bool:
        return state.missing == 0


@dataclass(frozen=True)
class Half:
    """No sync model: it lacks `may_close` and `at_close`."""

    def may_answer(self, state: Any, worker: int, i: int, draw: Any) -> bool:
        return True


class TestOwnClasses:
    @pytest.fixture(autouse=True)
    def _package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """This module under a name that can be imported, however the tests are run."""
        import sys
        from types import ModuleType

        module = ModuleType("own_models")
        module.Patient, module.Half = Patient, Half  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "own_models", module)
        monkeypatch.setattr(Patient, "__module__", "own_models")

    @pytest.mark.parametrize(
        ("words", "part"),
        [
            ("own_models.Patient", Patient()),
            ("own_models.Patient:3", Patient(3)),
            ("own_models.Patient:rounds=3,strict=true", Patient(3, strict=True)),
            ("own_models.Patient:1,0.5,false", Patient(1, 0.5)),
        ],
    )
    def test_words(self, words: str, part: Patient) -> None:
        assert parse("sync", words) == part
        assert parse("sync", write(part)) == part

    @pytest.mark.parametrize(
        ("words", "problem"),
        [
            ("own_models.Half", "does not have the methods of a SyncModel"),
            ("own_models.Nobody", "Nobody"),
            ("own_models.Patient:x", "rounds must be a whole number"),
            ("own_models.Patient:1,2,maybe", "strict must be true or false"),
            ("own_models.Patient:1,2,true,4", "cannot read"),
        ],
    )
    def test_errors(self, words: str, problem: str) -> None:
        with pytest.raises(UsageError, match=problem) as caught:
            parse("sync", words, "strategy.sync")
        assert caught.value.option == "strategy.sync"


@pytest.mark.parametrize(
    ("kind", "words", "problem"),
    [
        ("sync", "bps", "did you mean 'bsp'"),
        ("sync", "nothing-like-it", "one of: bsp, asp, ssp:3"),
        ("sync", "", "one of: bsp"),
        ("sync", "ssp", "write it like ssp:3"),
        ("sync", "ssp:1,2", "write it like ssp:3"),
        ("sync", "ssp:t=1", "write it like ssp:3"),
        ("sync", "ssp:1,s=2", "write it like ssp:3"),
        ("sync", "ssp:x", "s must be a whole number, not 'x'"),
        ("sync", "pssp:s=3,0.5", "put '0.5' before the named values"),
        ("sync", "pssp:s=3,s=4", "given twice"),
        ("sync", "sgd:0.1", "'sgd' is unknown"),
        ("rule", "sgd:fast", "lr must be a number, not 'fast'"),
        ("rule", "momentum:0.1,1.5", "mu must be in"),
        ("codec", "zip", "one of: dense"),
        ("codec", "topk:0", "'topk:0': the ratio must be above 0 and at most 1, not 0.0"),
        ("codec", "topk:2", "'topk:2': the ratio must be above 0 and at most 1, not 2.0"),
        ("codec", "topk:nan", "'topk:nan': the ratio must be above 0"),
        ("codec", "topk:0.1,momentum=1", "momentum must be in [0, 1), not 1.0"),
        ("codec", "topk", "write it like topk:0.01"),
        ("codec", "topk:x", "ratio must be a number, not 'x'"),
        ("codec", "threshold:0", "t must be above 0"),
        ("codec", "threshold:inf", "t must be above 0 and finite"),
        ("codec", "qsgd:0", "levels must be in 1..127, not 0"),
        ("codec", "qsgd:128", "levels must be in 1..127, not 128"),
        ("codec", "qsgd:7,feedback=maybe", "feedback must be true or false"),
        ("codec", "fp16+topk:0.1", "'fp16' cannot come first"),
        ("codec", "topk:0.1+dense", "'topk:0.1' already sends its values unchanged; leave out 'dense'"),
        ("codec", "topk:0.1+topk:0.1", "'topk:0.1' cannot come second"),
        ("codec", "topk:0.1+by_size", "'by_size' cannot come second"),
        ("codec", "topk:0.1+fp16+int8", "write it like topk:0.01+fp16"),
        ("codec", "topk:0.1+qsgd:7,feedback=true", "leave out feedback"),
        ("codec", "topk:0.1+zip", "'zip' is unknown"),
        ("codec", "by_size:0", "values must be at least 1"),
        ("codec", "by_size:large=topk:2", "'topk:2': the ratio must be above 0"),
        ("codec", "by_size:large=[topk:0.1", "the brackets are not balanced"),
        ("codec", "by_size:large=topk:0.1]", "the brackets are not balanced"),
        ("codec", "by_size:large=" + "[" * 9 + "int8" + "]" * 9, "parts are nested more than 8 levels deep"),
        ("codec", "by_size:large=" + "[" * 100_000, "parts are nested more than 8 levels deep"),
        ("codec", "by_size:large=" * 9 + "int8", "parts are nested more than 8 levels deep"),
        ("codec", "by_size:large=" * 400 + "dense", "parts are nested more than 8 levels deep"),
        ("codec", "chain:" * 100_000, "parts are nested more than 8 levels deep"),
        (
            "codec",
            "per_table:[a=fp16],other=topk:0.1+fp16",
            "'per_table:[a=fp16],other=topk:0.1+fp16': write a chain inside another part in brackets: [topk:0.1+fp16]",
        ),
        ("codec", "by_size:large=topk:0.1 + int8", "write a chain inside another part in brackets: [topk:0.1 + int8]"),
        ("codec", "by_size:1000,topk:0.1+int8", "write a chain inside another part in brackets: [topk:0.1+int8]"),
        ("codec", "topk:ratio=0.1,momentum=2+int8", "momentum"),
        ("codec", "dense+int8", "'dense' cannot come first"),
        ("codec", "per_table", "write it like per_table:[*.bias=dense"),
        ("codec", "per_table:[]", "name at least one table"),
        ("codec", "per_table:[dense]", "'dense' has no name"),
        ("codec", "per_table:[=dense]", "'' is not a valid pattern"),
        ("gate", "every:0", "push must be at least 1"),
        ("gate", "cached:-1", "s must be at least 0"),
        ("gate", "every:push=2,on_skip=forget", "on_skip must be 'accumulate' or 'reapply', not 'forget'"),
        ("gate", "bandwidth:push=-1", "push must be at least 0"),
        ("gate", "bandwidth:per=row", "per must be 'model' or 'table', not 'row'"),
        ("gate", "significance:-1", "t must be at least 0"),
        ("gate", "significance", "write it like significance:0.01"),
        ("gate", "budget:0", "bytes must be at least 1"),
        ("gate", "budget:much", "is not a size"),
        (
            "rule",
            "ad",
            "'ad' is unknown; did you mean 'adam'? choose one of: sgd:0.1, momentum:0.1,0.9, adam:0.001, sasgd:0.1, ",
        ),
        ("rule", "fasgd:0", "learning rate must be above 0"),
        ("rule", "adam:0", "learning rate must be above 0"),
        ("rule", "exponential:0", "learning rate must be above 0"),
        ("rule", "fasgd:0.1,gamma=2", "gamma must be in"),
        ("gate", "cached", "write it like cached:3"),
        ("placement", "elastc", "did you mean 'elastic'"),
    ],
)
def test_errors(kind: str, words: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(kind, words, "--option")
    assert str(caught.value).startswith("--option: ")
    assert problem in str(caught.value)


def test_an_error_names_the_kind_if_there_is_no_option() -> None:
    with pytest.raises(UsageError, match=r"^gate: "):
        parse("gate", "nothing")


@given(st.sampled_from(list(PARTS)), st.text(max_size=20))
def test_any_text_is_a_part_or_a_usage_error(kind: str, words: str) -> None:
    try:
        part = parse(kind, words)
    except UsageError:
        return
    assert parse(kind, write(part)) == part


@given(
    st.sampled_from(["topk", "threshold", "qsgd", "by_size", "per_table", "chain"]),
    st.text("0123456789.,=+-[]* ", max_size=10),
    st.sampled_from(["", "topk:0.1", "fp16", "large=int8", "[a=int8]", "+fp16", "+int8]"]),
)
def test_any_arguments_are_a_codec_or_a_usage_error(name: str, arguments: str, more: str) -> None:
    try:
        part = parse("codec", f"{name}:{arguments}{more}")
    except UsageError:
        return
    assert parse("codec", str(part)) == part


@given(st.sampled_from(["ssp", "dsps", "drop", "pssp"]), st.text("0123456789.,=+-eEinfspahlo ", max_size=12))
def test_any_arguments_are_a_model_or_a_usage_error(name: str, arguments: str) -> None:
    try:
        part = parse("sync", f"{name}:{arguments}")
    except UsageError:
        return
    assert parse("sync", str(part)) == part


@pytest.mark.parametrize("part", [part for parts in SHIPPED.values() for part in parts], ids=lambda part: part.name)
def test_the_example_of_a_part_can_be_read(part: type[Part]) -> None:
    """It stands in messages, for people to copy."""
    assert isinstance(parse_among((part,), object, example(part), "option"), part)


def test_infinity_is_no_whole_number() -> None:
    with pytest.raises(UsageError, match="whole number"):
        parse("sync", f"ssp:{inf}")


# Names of parts that are not shipped.


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("ssp:3", []),
        ("mine.Patient", ["mine.Patient"]),
        ("mine.models.Patient:3", ["mine.models.Patient"]),
        ("bsp mine.Patient:s=3", ["mine.Patient"]),
        ("topk:0.01+mine.Codec", ["mine.Codec"]),
        ("by_size:1000,large=[mine.Codec:ratio=0.5]", ["mine.Codec"]),
        ("by_size:1000,large=mine.Codec", ["mine.Codec"]),
        ("per_table:[conv1.weight=dense,*.bias=mine.Codec]", ["mine.Codec"]),
        ("1.5MiB", []),
        ("budget:1.5MB", []),
    ],
)
def test_the_names_that_would_be_imported(words: str, names: list[str]) -> None:
    assert own_names(words) == names


PIECES = [
    "mine.Part",
    "a.b.C",
    "ssp",
    "topk",
    "by_size",
    "per_table",
    "large",
    "0.5",
    ":",
    ",",
    "=",
    "[",
    "]",
    "+",
    " ",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.sampled_from(sorted(spec._KINDS)))
def test_nothing_is_imported_that_is_not_among_the_names(words: str, kind: str) -> None:
    """Whatever the text is: as a part, as one of several parts with spaces between them, or as a strategy."""
    tried: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spec, "import_module", lambda name: tried.append(name) or object())
        for word in (words, *words.split()):
            with suppress(UsageError):
                parse(kind, word)
        with suppress(UsageError):
            read_strategy(words)
    assert set(tried) <= {name.rpartition(".")[0] for name in own_names(words)}

"""Every shipped codec conforms, and writes what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from syncline.codecs import (
    CODECS,
    Bf16,
    BySize,
    Bytes,
    Chain,
    Chance,
    Codec,
    Dense,
    Fp16,
    Int8,
    Memory,
    PerTable,
    Piecewise,
    TopK,
    codec_for,
    is_exact,
)
from syncline.draw import Draw
from syncline.errors import PeerError
from syncline.layout import Bucket, Layout, Payload, Values
from syncline.spec import parse
from syncline.testing import check_codec
from syncline.testing.codecs import SIZES, check_bucket

TEXTS = [
    "dense",
    "fp16",
    "bf16",
    "int8",
    "topk:0.01",
    "topk:0.3",
    "topk:1",
    "topk:ratio=0.01,momentum=0.9",
    "threshold:0.5",
    "threshold:1e-06",
    "onebit",
    "qsgd:1",
    "qsgd:7",
    "qsgd:20",
    "qsgd:127",
    "qsgd:levels=7,feedback=true",
    "terngrad",
    "terngrad:true",
    "topk:0.01+fp16",
    "topk:0.1+terngrad",
    "threshold:1+int8",
    "by_size:1000",
    "by_size:values=1000,large=[topk:ratio=0.01,momentum=0.9],small=bf16",
    "per_table:[*.bias=dense],other=int8",
]

LARGEST = np.finfo(np.float32).max


def never() -> np.random.Generator:
    raise AssertionError("this codec draws nothing")


def chance(*keys: int) -> Chance:
    return lambda: Draw(1).generator("codec", *keys)


def normal(values: int, *keys: int) -> Values:
    return Draw(3).normals(values, "update", *keys).astype(np.float32)


def encode(codec: Codec, update: Values, memory: Memory | None = None) -> Payload:
    memory = codec.memory(update.size) if memory is None else memory
    return codec.encode(update, memory, np.zeros(codec.size(update.size), np.uint8), chance())


def decode(codec: Codec, payload: Payload, values: int) -> Values:
    return codec.decode(payload, np.zeros(values, np.float32))


def test_all_shipped_codecs_are_tried() -> None:
    assert {type(parse("codec", text)) for text in TEXTS} == set(CODECS)


@pytest.mark.parametrize("text", TEXTS)
def test_codecs_conform(text: str) -> None:
    check_codec(parse("codec", text))


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_a_hundred_thousand_byte_strings(text: str) -> None:
    for values in SIZES:
        check_bucket(parse("codec", text), values, mutations=100_000 // len(SIZES))


@pytest.mark.parametrize("text", TEXTS)
def test_an_empty_bucket_is_an_empty_payload(text: str) -> None:
    codec: Codec = parse("codec", text)
    payload = encode(codec, np.empty(0, np.float32))
    codec.check(payload, 0)
    assert payload.nbytes <= codec.size(0) <= 4
    assert decode(codec, payload, 0).size == 0


@pytest.mark.parametrize(
    ("text", "most"),
    [
        *(("topk:0.01", 0.025), ("onebit", 0.04), ("terngrad", 0.08), ("fp16", 0.5), ("bf16", 0.5), ("int8", 0.2525)),
        *(("topk:0.01+fp16", 0.015), ("qsgd:1", 0.08), ("qsgd:3", 0.1), ("qsgd:7", 0.13), ("qsgd:127", 0.2525)),
        ("topk:ratio=0.01,momentum=0.9", 0.025),
    ],
)
def test_how_many_bytes_are_sent(text: str, most: float) -> None:
    codec: Codec = parse("codec", text)
    for values in (2000, 2047, 2049, 3001, 5000, 10_000, 262_144, 25_000_000):
        assert codec.size(values) <= most * 4 * values, values
    assert encode(codec, normal(10_000)).nbytes <= most * 40_000


@pytest.mark.parametrize("text", [text for text in TEXTS if "qsgd" not in text and "terngrad" not in text])
def test_only_stochastic_codecs_ask_for_chance(text: str) -> None:
    codec: Codec = parse("codec", text)
    update = normal(3000)
    codec.encode(update, codec.memory(3000), np.zeros(codec.size(3000), np.uint8), never)


@pytest.mark.parametrize("text", ["qsgd:7", "terngrad", "topk:0.1+qsgd:7"])
def test_other_chances_give_other_bytes(text: str) -> None:
    codec: Codec = parse("codec", text)
    update, out = normal(3000), np.zeros((2, codec.size(3000)), np.uint8)
    for key in range(2):
        codec.encode(update, codec.memory(3000), out[key], chance(key))
    assert not np.array_equal(out[0], out[1])


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("bad", [np.zeros(10, np.float64), np.zeros((2, 5), np.uint8), np.zeros(10**6, np.uint8)])
def test_an_invalid_payload_is_refused(text: str, bad: Payload) -> None:
    codec: Codec = parse("codec", text)
    for call in (codec.decode, codec.add_into):
        with pytest.raises(PeerError):
            call(bad, np.zeros(300, np.float32))
    with pytest.raises(PeerError):
        codec.check(bad, 300)


def test_a_generator_is_a_function_of_its_keys() -> None:
    drawn = [
        int(Draw(seed).generator(purpose, *keys).bit_generator.random_raw())
        for seed in (0, 1, -1)
        for purpose in ("one", "another")
        for keys in ((), (1,), (1, 2), (12,))
    ]
    assert len(set(drawn)) == len(drawn)
    one, two = (Draw(3).generator("codec", 1, 2) for _ in range(2))
    one.bit_generator.random_raw()
    assert one.bit_generator.random_raw(5)[:-1].tolist() == two.bit_generator.random_raw(5)[1:].tolist()


class TestDense:
    def test_nothing_is_copied(self) -> None:
        update = normal(10)
        assert Dense().encode(update, {}, np.empty(40, np.uint8), never) is update
        assert Dense().decode(update, np.empty(10, np.float32)) is update
        assert Dense().memory(10) == {}

    def test_bytes_are_values_too_wherever_they_lie(self) -> None:
        update = normal(10)
        frame = np.zeros(41, np.uint8)
        frame[1:] = update.view(np.uint8)
        assert np.array_equal(decode(Dense(), frame[1:], 10), update)


class TestHalves:
    def test_fp16_is_what_numpy_makes_of_it(self) -> None:
        """All half-precision numbers, the middles between two of them, and the float32 next to each middle."""
        halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
        middles = (halves[1:] + halves[:-1]) / 2
        values = np.concatenate([halves, middles, np.nextafter(middles, 0), np.nextafter(middles, np.float32(1e9))])
        values = np.concatenate([values, -values])
        sent = encode(Fp16(), values).view(np.float16)
        expected = (values + np.float32(0)).astype(np.float16)  # with the residual, -0 becomes 0
        assert np.array_equal(sent.view(np.uint16), expected.view(np.uint16))

    def test_fp16_saturates(self) -> None:
        values = np.array([65504, 65519, 65520, 1e6, -1e30, np.inf, -np.inf, np.nan, 3e-8, 1], np.float32)
        memory = Fp16().memory(10)
        sent = decode(Fp16(), encode(Fp16(), values, memory), 10)
        expected = [65504, 65504, 65504, 65504, -65504, np.inf, -np.inf, np.nan, 2.0**-24, 1]
        assert np.array_equal(sent, np.array(expected, np.float32), equal_nan=True)
        left = [0, 15, 16, 1e6 - 65504, np.float32(-1e30), 0, 0, 0, np.float32(3e-8) - 2.0**-24, 0]
        assert np.array_equal(memory["residual"], np.array(left, np.float32))

    def test_bf16_is_the_nearest(self) -> None:
        values = Draw(5).generator("bits").integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
        values = values[np.abs(values) < 3e38]
        payload = encode(Bf16(), values)
        sent = decode(Bf16(), payload, values.size).astype(np.float64)
        bits = payload.view(np.uint16)
        for step in (-1, 1):
            near = ((bits.astype(np.int64) + step) % 2**16 << 16).astype(np.uint32).view(np.float32).astype(np.float64)
            better = np.abs(near - values) < np.abs(sent - values)
            assert not (better & np.isfinite(near)).any()
            tied = np.abs(near - values) == np.abs(sent - values)
            assert (bits[tied] % 2 == 0).all()

    def test_bf16_saturates(self) -> None:
        values = np.array([LARGEST, -LARGEST, np.inf, -np.inf, np.nan, 1], np.float32)
        memory = Bf16().memory(6)
        sent = decode(Bf16(), encode(Bf16(), values, memory), 6)
        most = np.uint32(0x7F7F0000).view(np.float32)
        assert np.array_equal(sent, np.array([most, -most, np.inf, -np.inf, np.nan, 1], np.float32), equal_nan=True)
        assert np.array_equal(memory["residual"], np.array([LARGEST - most, most - LARGEST, 0, 0, 0, 0], np.float32))


@pytest.mark.parametrize("text", ["fp16", "bf16", "int8", "onebit"])
def test_blocks_are_independent_of_each_other(text: str) -> None:
    """A large bucket is written in pieces; what they give is what each block gives alone."""
    codec: Codec = parse("codec", text)
    size, block = 300_007, getattr(codec, "block", 2048)
    update = normal(size)
    memory = codec.memory(size)
    whole = decode(codec, encode(codec, update, memory), size)
    for start in (0, block, 128 * block, 145 * block, size // block * block):
        alone = update[start : start + block]
        left = codec.memory(alone.size)
        assert np.array_equal(whole[start : start + block], decode(codec, encode(codec, alone, left), alone.size))
        assert np.array_equal(memory["residual"][start : start + block], left["residual"])


@pytest.mark.parametrize("text", ["fp16", "bf16"])
def test_every_nan_stays_one(text: str) -> None:
    codec: Codec = parse("codec", text)
    values = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    memory = codec.memory(4)
    assert np.isnan(decode(codec, encode(codec, values, memory), 4)).all()
    assert not memory["residual"].any()


class TestQuantised:
    def test_one_large_value_flattens_only_its_block(self) -> None:
        update = normal(10_000)
        update[3000] = 1e6
        sent = decode(Int8(), encode(Int8(), update), 10_000)
        assert np.abs(sent - update)[:2048].max() < 0.03
        assert np.abs(sent - update)[4096:].max() < 0.03
        assert sent[3000] == pytest.approx(1e6)

    def test_onebit_sends_two_means(self) -> None:
        update = np.array([1, 2, 3, -1, -5, 0], np.float32)
        codec = parse("codec", "onebit")
        memory = codec.memory(6)
        sent = decode(codec, encode(codec, update, memory), 6)
        assert sent == pytest.approx(np.array([1.5, 1.5, 1.5, -3, -3, 1.5]))
        assert memory["residual"] == pytest.approx(update - sent)

    @pytest.mark.parametrize("huge", [2e36, 3e37, LARGEST / 2, LARGEST])
    @pytest.mark.parametrize("signs", [(1, 1), (-1, -1), (1, -1)])
    def test_onebit_sends_huge_means(self, huge: float, signs: tuple[int, int]) -> None:
        """Sums of 288 are beyond float32, and so is the way from one mean to the other; half of the largest is not."""
        codec = parse("codec", "onebit")
        update = np.concatenate([np.resize(np.array(signs, np.float32), 288) * np.float32(huge), normal(288)])
        memory = codec.memory(576)
        sent = decode(codec, encode(codec, update, memory), 576)
        assert sent[:288] == pytest.approx(np.clip(update[:288], -LARGEST / 2, LARGEST / 2))
        assert memory["residual"] == pytest.approx(update - sent)
        alone = codec.memory(288)
        assert np.array_equal(sent[288:], decode(codec, encode(codec, update[288:], alone), 288))
        assert np.array_equal(memory["residual"][288:], alone["residual"])

    def test_terngrad_sends_three_values(self) -> None:
        update = normal(64 * 30)
        sent = decode(parse("codec", "terngrad"), encode(parse("codec", "terngrad"), update), update.size)
        for block, there in zip(update.reshape(-1, 64), sent.reshape(-1, 64), strict=True):
            top = np.abs(block).max()
            assert set(np.unique(there)) <= {-top, 0, top}
            assert there[np.abs(block).argmax()] == block[np.abs(block).argmax()]
        assert len(np.unique(np.sign(sent))) == 3

    @pytest.mark.parametrize("levels", [1, 2, 3, 5, 7, 15, 31, 63, 64, 127])
    def test_qsgd_is_at_most_a_step_away(self, levels: int) -> None:
        update = normal(5000)
        codec = parse("codec", f"qsgd:{levels}")
        sent = decode(codec, encode(codec, update), 5000)
        tops = np.repeat([np.abs(update[at : at + 2048]).max() for at in (0, 2048, 4096)], 2048)[:5000]
        assert (np.abs(sent - update) <= tops / levels * 1.00001).all()
        assert (np.abs(sent) <= tops * 1.00001).all()

    def test_as_many_steps_as_there_are_stay_finite(self) -> None:
        """A step is rounded, so 127 steps can be more than the value that was divided by 127."""
        update = np.array([LARGEST, -LARGEST, LARGEST / 3, 1], np.float32)
        for text in ("int8", *(f"qsgd:{levels},feedback=true" for levels in range(1, 128))):
            codec: Codec = parse("codec", text)
            memory = codec.memory(4)
            sent = decode(codec, encode(codec, update, memory), 4)
            assert sent[:2] == pytest.approx(update[:2]), text
            assert sent.astype(np.float64) + memory["residual"] == pytest.approx(update), text


class TestTopK:
    @pytest.mark.parametrize("values", [1, 99, 100, 101, 2000, 40_000, 300_000])
    def test_topk_sends_exactly_the_right_number_of_the_largest(self, values: int) -> None:
        update = normal(values)
        codec = TopK(0.01)
        sent = decode(codec, encode(codec, update), values)
        count = max(1, -(-values // 100))
        assert np.array_equal(np.sort(np.abs(sent[sent != 0])), np.sort(np.abs(update))[-count:])

    @pytest.mark.parametrize("values", [500, 50_000, 300_000])
    @pytest.mark.parametrize("ratio", [0.0001, 0.01, 0.2, 0.5, 0.999])
    def test_topk_prefers_the_first_of_equal_values(self, values: int, ratio: float) -> None:
        kinds = {
            "zero": np.zeros(values),
            "equal": np.full(values, -2.5),
            "periodic": np.arange(values) % 64,
            "steps": np.arange(values) // 1000,
            "few large": np.where(np.arange(values) % 9973 == 5, 1e9, np.arange(values) % 3),
            "first half": np.where(np.arange(values) < values // 2, 7, 1) + normal(values) * 1e-3,
        }
        codec = TopK(ratio)
        for kind, update in kinds.items():
            update = update.astype(np.float32)
            memory = codec.memory(values)
            payload = encode(codec, update, memory)
            positions, sent = codec._read(payload, values)
            order = np.lexsort((np.arange(values), -np.abs(update)))[: codec.count(values)]
            assert np.array_equal(positions, np.sort(order)), kind
            assert np.array_equal(sent, update[positions]), kind

    def test_momentum_is_that_of_deep_gradient_compression(self) -> None:
        """v = m v + g; u = u + v; what is sent is taken out of both."""
        codec, values = TopK(0.1, momentum=0.5), 200
        memory = codec.memory(values)
        v, u = np.zeros(values, np.float32), np.zeros(values, np.float32)
        for step in range(5):
            update = normal(values, step)
            v = np.float32(0.5) * v + update
            u = u + v
            positions = np.sort(np.argsort(-np.abs(u), kind="stable")[:20])
            expected = np.zeros(values, np.float32)
            expected[positions] = u[positions]
            v[positions] = u[positions] = 0
            assert np.array_equal(decode(codec, encode(codec, update, memory), values), expected)
            assert np.array_equal(memory["velocity"], v)
            assert np.array_equal(memory["residual"], u)

    def test_everything_is_sent_in_the_end(self) -> None:
        codec = TopK(0.1)
        memory, update = codec.memory(1000), normal(1000)
        total = decode(codec, encode(codec, update, memory), 1000)
        for _ in range(9):
            codec.add_into(encode(codec, np.zeros(1000, np.float32), memory), total)
        assert np.array_equal(total, update)
        assert not memory["residual"].any()


class TestThreshold:
    def test_threshold_sends_exactly_the_large_values(self) -> None:
        update = normal(5000)
        codec = parse("codec", "threshold:2")
        payload = encode(codec, update)
        assert np.array_equal(decode(codec, payload, 5000), np.where(np.abs(update) >= 2, update, 0))
        assert payload.nbytes < 0.06 * codec.size(5000)

    def test_threshold_sends_all_values_if_positions_would_take_more(self) -> None:
        update = normal(5000)
        codec = parse("codec", "threshold:0.001")
        payload = encode(codec, update)
        assert payload.nbytes == codec.size(5000) == 4 + 4 * 5000
        assert np.array_equal(decode(codec, payload, 5000), update)


LAYOUT = Layout.of(
    [("a.weight", (50, 100)), ("a.bias", (50,)), ("b.weight", (20, 300)), ("b.bias", (20,)), ("c", (9,))]
)


class TestChoices:
    def test_the_codec_itself_where_there_is_nothing_to_choose(self) -> None:
        assert codec_for(TopK(0.1), LAYOUT, Bucket(0, 100)) == TopK(0.1)

    @pytest.mark.parametrize(
        ("bucket", "chosen"),
        [
            (Bucket(0, 5000), TopK(0.01)),
            (Bucket(100, 300), TopK(0.01)),
            (Bucket(5000, 5050), Dense()),
            (Bucket(11_050, 11_079), Dense()),
            (Bucket(0, 5050), Piecewise(((5000, TopK(0.01)), (50, Dense())))),
            (Bucket(4000, 5060), Piecewise(((1000, TopK(0.01)), (50, Dense()), (10, TopK(0.01))))),
        ],
    )
    def test_small_tables_are_dense(self, bucket: Bucket, chosen: Codec) -> None:
        assert codec_for(BySize(1000), LAYOUT, bucket) == chosen

    def test_the_first_pattern_counts(self) -> None:
        codec = PerTable((("*.bias", Fp16()), ("a.*", TopK(0.1)), ("*", Int8())))
        assert codec_for(codec, LAYOUT, Bucket(0, 11_079)) == Piecewise(
            ((5000, TopK(0.1)), (50, Fp16()), (6000, Int8()), (20, Fp16()), (9, Int8()))
        )

    def test_choices_nest(self) -> None:
        codec = PerTable((("a.*", BySize(1000)),), other=Chain(TopK(0.1), Fp16()))
        assert codec_for(codec, LAYOUT, Bucket(0, 6000)) == Piecewise(
            ((5000, TopK(0.01)), (50, Dense()), (950, Chain(TopK(0.1), Fp16())))
        )

    @pytest.mark.parametrize(
        "text",
        [
            "by_size:1000",
            "by_size:1000,large=[topk:ratio=0.01,momentum=0.9]",
            "per_table:[*.bias=fp16,a*=[threshold:1],b*=[qsgd:7,feedback=true]],other=[topk:0.3+int8]",
            "per_table:[*.bias=[threshold:1+fp16]],other=onebit",
        ],
    )
    def test_pieces_conform(self, text: str) -> None:
        codec = codec_for(parse("codec", text), LAYOUT, Bucket(17, LAYOUT.size))
        assert isinstance(codec, Piecewise)
        assert codec.exact == is_exact(parse("codec", text))
        check_bucket(codec, LAYOUT.size - 17)

    def test_no_two_pieces_draw_alike(self) -> None:
        codec = Piecewise(((64, parse("codec", "terngrad")), (64, parse("codec", "qsgd:1"))))
        update = np.tile(normal(64), 2)
        sent = decode(codec, encode(codec, update), 128)
        assert not np.array_equal(sent[:64], sent[64:])

    def test_memory_can_be_cut_like_the_bucket(self) -> None:
        codec = codec_for(BySize(1000, large=TopK(0.1, momentum=0.5)), LAYOUT, Bucket(0, 5050))
        memory = codec.memory(5050)
        encode(codec, normal(5050), memory)
        assert {name: each.shape for name, each in memory.items()} == {"residual": (5050,), "velocity": (5050,)}
        assert not memory["residual"][5000:].any()


@dataclass(frozen=True)
class Own:
    """Nothing but every other value; several ways to do it wrong."""

    how: str = "right"
    sparse = True

    def size(self, values: int) -> int:
        return 4 * -(-values // 2) + (self.how == "size")

    def memory(self, values: int) -> Memory:
        return {"residual": np.zeros(values, np.float32)}

    def encode(self, update: Values, memory: Memory, out: Bytes, chance: Chance) -> Payload:
        if self.how == "writes the update":
            update[0] += 1
        total = update + memory["residual"]
        memory["residual"][:] = 0 if self.how == "forgets" else total
        memory["residual"][~np.isfinite(total)] = 0
        memory["residual"][::2] = 0
        if self.how == "chance":
            total = total * chance().choice([1, np.float32(1) + np.float32(1e-7)])
        if self.how == "doubles":
            total = total * np.float32(2) / np.float32(2)
        sent = out[: 4 * -(-update.size // 2)]
        sent.view(np.float32)[:] = total[::2]
        if self.how == "unwritten" and update.size > 1:
            sent.view(np.float32)[0] = 0
        return sent

    def check(self, payload: Payload, values: int) -> None:
        if payload.nbytes != self.size(values) and self.how != "trusts":
            raise PeerError(f"{payload.nbytes} bytes for {values} values")

    def decode(self, payload: Payload, out: Values) -> Values:
        self.check(payload, out.size)
        out[:] = 0
        out[::2] = payload.view(np.float32)
        if self.how == "writes outside":
            np.lib.stride_tricks.as_strided(out, (out.size + 1,))[-1] = 1
        return out

    def add_into(self, payload: Payload, out: Values) -> None:
        self.check(payload, out.size)
        out[::2] += payload.view(np.float32)


def test_the_codec_in_the_docs_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is written to a module, as a user would; it has 20 lines with its imports, as the page says."""
    page = (Path(__file__).parents[2] / "docs" / "codecs.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "documented_codec.py").write_text("\n".join(blocks))
    monkeypatch.syspath_prepend(tmp_path)
    import documented_codec

    documented_codec.test_upper_half()
    assert sum(bool(line.strip()) for line in blocks[0].splitlines()) == 20


class TestTheSuiteItself:
    """It passes a correct codec, except for what the codec does with NaN, and gives the reason for a wrong one."""

    @pytest.mark.parametrize(
        ("how", "reason"),
        [
            ("size", "but `size` says"),
            ("writes the update", "encoding changed the update"),
            ("forgets", "sent \\+ residual is not bit-identical to the update"),
            ("unwritten", "sent \\+ residual is not bit-identical to the update"),
            ("trusts", "a corrupted payload raised ValueError"),
            ("writes outside", "wrote outside the array of values"),
            ("chance", "bit-identical to the update"),
            ("doubles", "finite values were decoded as NaN or infinity"),
            ("right", "update \\+ residual is infinite, but was decoded as finite values"),
        ],
    )
    def test_wrong_codecs_are_refused_with_the_reason(self, how: str, reason: str) -> None:
        with pytest.raises(AssertionError, match=reason):
            check_bucket(Own(how), 301)

    def test_a_correct_codec_passes_except_for_what_it_hides(self) -> None:
        with pytest.raises(AssertionError, match="in an update was decoded as finite values"):
            check_bucket(Own(), 7)  # the fourth value is not sent

    def test_nearest_is_not_unbiased(self) -> None:
        class Nearest(Int8):
            stochastic = True
            keeps_residual = False

        with pytest.raises(AssertionError, match="the mean of 1000 draws is not the update"):
            check_bucket(Nearest(), 300)

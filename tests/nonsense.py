"""Generated requests to the `syncline` command; most make no sense. A seed gives the same request each time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Maker = Callable[[Random], str]

WHOLE = ("0", "-1", "1", "2", "3", "7", "1000000000000000000", "9223372036854775808", "-9223372036854775809")
HUGE = ("99999999999999999999", "1" + "0" * 400, "-" + "9" * 400, "9" * 5000)
"""Too large for 64 bits, for a float, and for Python's own conversion."""

REALS = ("0.5", "1e308", "-1e308", "1e-320", "1e18", "nan", "inf", "-inf", "0.0", "-0.0", "1e400", "2.0", "1e30")
WORDS = (
    "",
    " ",
    ",",
    ":",
    "=",
    "[",
    "]",
    "[]",
    "+",
    ".",
    "..",
    "a",
    "\u00e9",
    "x" * 10_000,
    "a b",
    "%s",
    "{}",
    "--",
    "@",
)
CONTROL = ("\x1b[31mred", "two\nlines", "tab\there", "\u202ereversed", "null\\u0000")
NAMES = {
    "sync": ("bsp", "asp", "ssp", "dsps", "drop", "pssp", "psp", "bps"),
    "rule": ("sgd", "momentum", "adam", "sasgd", "exponential", "fasgd", "dc-asgd", "gap-aware", "mean", "add", "sdg"),
    "gate": ("always", "every", "cached", "bandwidth", "significance", "budget"),
    "codec": (
        "dense",
        "topk",
        "threshold",
        "fp16",
        "bf16",
        "int8",
        "qsgd",
        "onebit",
        "terngrad",
        "by_size",
        "per_table",
    ),
    "placement": ("elastic", "uniform", "roundrobin", "balanced"),
}
NAMES |= {"reply_codec": NAMES["codec"], "optimizer": NAMES["rule"]}
FIELDS = (
    "s",
    "p",
    "alpha",
    "k",
    "sample",
    "lo",
    "hi",
    "lr",
    "push",
    "fetch",
    "ratio",
    "momentum",
    "levels",
    "eps",
    "values",
    "",
)
VALUES = (
    *WHOLE,
    *REALS,
    *HUGE,
    "true",
    "none",
    "significance",
    "1MB",
    "0B",
    "1__0B",
    "reapply",
    "topk:0.1",
    "[dense]",
    "",
)
QUANTITIES = (
    *("1Gbit", "0bit", "1e-300Gbit", "1e300GB/s", "1ms", "1e300s", "-1s", "1__0ms", "1", "1MiB", "1B", "1TB", "9e99B"),
    *("1" * 10_000, "never", "1_s", ".s", "e5s"),
)
PATHS = ("/dev/full", "/dev/zero", "/dev/null", "/", ".", "nowhere/x", "x" * 300, "x.toml", "program.py", "a\\u0000b")
PLACES = ("127.0.0.1:0", ":1", "1.2.3.4", "[::1]:70000", "256.1.1.1:5", "@", "@x", "\u00e9:1", "a:b:c")


def part(random: Random, kind: str) -> str:
    """A text that looks like a part."""
    name = random.choice(NAMES[kind]) if random.random() < 0.9 else random.choice(WORDS)
    count = random.choice((0, 1, 1, 1, 2, 2, 3))
    pieces = [
        random.choice(VALUES) if random.random() < 0.5 else f"{random.choice(FIELDS)}={random.choice(VALUES)}"
        for _ in range(count)
    ]
    return (
        name
        + random.choice((":", ":", ":", "", "::", ":,")) * bool(count)
        + random.choice((",", ",", " , ", ",,")).join(pieces)
    )


def among(choices: tuple[str, ...]) -> Maker:
    return lambda random: random.choice(choices)


def number(random: Random) -> str:
    return random.choice((*"112233", *WHOLE, *WHOLE, *HUGE, *REALS, "x", "0x10", "1_0", "٣", " 3"))


def end(random: Random) -> str:
    """A text for `--stop`."""
    key = random.choice(("updates", "updates", "seconds", "seconds", "loss", "accuracy", "minutes", ""))
    return key + random.choice(("=", "=", "=", "==", ":", "")) + number(random)


def text(random: Random) -> str:
    return random.choice((*WORDS, *WORDS, *CONTROL, *QUANTITIES))


# Experiment files.


def _quoted(word: str) -> str:
    """A TOML string; characters that it cannot contain are written as escapes."""
    plain = word.replace("\\u0000", "\0").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in plain) + '"'


def _anything(random: Random) -> str:
    """A TOML value of any type."""
    kinds: tuple[Maker, ...] = (
        number,
        lambda random: _quoted(text(random)),
        lambda _: random.choice(
            ("true", "false", "[]", "{}", "[[]]", "1979-05-27", "07:32:00", '["bsp", ""]', "{ a = 1 }")
        ),
        lambda _: "[" * 3000 + "]" * 3000,
    )
    return random.choices(kinds, (5, 4, 2, 0.1))[0](random)


def _part_of(kind: str) -> Maker:
    return lambda random: _quoted(part(random, kind))


def _quantity(random: Random) -> str:
    return _quoted(random.choice(QUANTITIES)) if random.random() < 0.7 else random.choice((*WHOLE, *REALS))


def _path(random: Random) -> str:
    return _quoted(random.choice(PATHS))


KEYS: dict[str, dict[str, Maker]] = {
    "": {"iterations": number, "seed": number},
    "cluster": {"workers": number, "colocated": _anything},
    "cluster.compute": {"mean": number, "sigma": number, "straggle": number, "factor": number, "trace": _path},
    "network": dict.fromkeys(("bandwidth", "latency", "apply", "handling", "turn", "delay_cost"), _quantity),
    "model": {
        "parameters": number,
        "layers": _anything,
        "data": _path,
        "batch": number,
        "validation": number,
        "optimizer": _part_of("optimizer"),
    },
    "strategy": {
        **{kind: _part_of(kind) for kind in ("sync", "rule", "gate", "codec", "reply_codec", "placement")},
        "servers": number,
        "bucket": _quantity,
        "patience": _quantity,
        "backups": number,
        "release": _anything,
        "mode": lambda random: random.choice(('"gradients"', '"changes"', '"rule"', '""', "1")),
        "overlap": _anything,
        "kind": _anything,
        "central": _anything,
    },
    "stop": dict.fromkeys(("updates", "seconds", "loss", "accuracy"), number),
    "dispatch": {"rule": lambda random: _quoted(f"weighted:after={number(random)},slow={number(random)}")},
}
USUAL = {
    "": {"iterations": "4"},
    "cluster": {"workers": "3"},
    "model": {"parameters": "1000"},
}
FAULTS = (
    "crash",
    "restart",
    "freeze",
    "slow",
    "leave",
    "join",
    "switch",
    "add_server",
    "remove_server",
    "crash_server",
    "explode",
)


def _fault(random: Random) -> str:
    lines = [f'kind = "{random.choice(FAULTS)}"', f"at = {random.choice(('0.1', number(random)))}"]
    for key in ("worker", "server", "duration", "detect", "factor"):
        if random.random() < 0.4:
            lines.append(f"{key} = {random.choice(('1', '1', number(random)))}")
    if random.random() < 0.3:
        lines.append(f"sync = {_quoted(part(random, 'sync'))}")
    return "\n".join(["[[faults]]", *lines])


def experiment(random: Random) -> str:
    """A valid experiment file, except for a few keys."""
    file: dict[str, dict[str, str]] = {section: dict(keys) for section, keys in USUAL.items()}
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
        section = random.choice(list(KEYS))
        key, make = random.choice(list(KEYS[section].items()))
        odd = random.random()
        where = file.setdefault(section, {})
        where[_quoted(text(random)) if odd < 0.03 else key] = _anything(random) if odd < 0.15 else make(random)
    pieces = [f"[{section}]" * bool(section) + "\n" + _lines(keys) for section, keys in file.items()]
    pieces += [_fault(random) for _ in range(random.choice((0, 0, 0, 1, 2)))]
    whole = "\n".join(pieces)
    return whole[: random.randrange(len(whole))] if random.random() < 0.03 else whole


def _lines(keys: dict[str, str]) -> str:
    return "\n".join(f"{key} = {value}" for key, value in keys.items())


# Command lines.

PARTS = {f"--{kind.replace('_', '-')}": kind for kind in ("sync", "rule", "gate", "codec", "reply_codec", "placement")}
OPTIONS: dict[str, dict[str, tuple[Maker, ...]]] = {
    "simulate": {
        **dict.fromkeys(("--workers", "--servers", "--iterations", "--seed", "--every"), (number,)),
        **dict.fromkeys(("--report", "--trace", "--plot", "--curve"), (among(PATHS),)),
        "--stop": (end,),
    },
    "run": {
        **dict.fromkeys(("--workers", "--servers", "--seed", "--restarts", "--backups"), (number,)),
        **dict.fromkeys(("--bucket", "--patience"), (among(QUANTITIES),)),
        **dict.fromkeys(("--listen", "--join"), (among(PLACES),)),
        **dict.fromkeys(("--lane", "--on-nan", "--allow-parts"), (text,)),
        **dict.fromkeys(("--report", "--trace", "--log-dir", "--config", "--key-file"), (among(PATHS),)),
    },
    "train": {
        **dict.fromkeys(("--workers", "--servers", "--iterations", "--batch", "--seed", "--repeats"), (number,)),
        "--slow": (lambda random: f"{number(random)}:{number(random)}", text),
        **dict.fromkeys(("--lane", "--engine"), (text,)),
        "--stop": (end,),
        **dict.fromkeys(("--data", "--report", "--tensorboard"), (among(PATHS),)),
    },
    "bench": {
        **dict.fromkeys(("--size", "--workers", "--servers", "--rounds"), (number,)),
        "--report": (among(PATHS),),
    },
    "reproduce": {"--jobs": (number,), **dict.fromkeys(("--data", "--out"), (among(PATHS),))},
    "plan": {
        **dict.fromkeys(("--workers", "--batch"), (number,)),
        **dict.fromkeys(("--bandwidth", "--latency", "--step", "--apply", "--memory"), (among(QUANTITIES),)),
        **dict.fromkeys(("--overlap", "--program"), (text,)),
        "--address": (among(PLACES),),
        **dict.fromkeys(("--report", "--plot", "--data"), (among(PATHS),)),
    },
    "tell": {"--model": (text,), "--key-file": (among(PATHS),)},
}
for command in ("simulate", "run", "train", "tell"):
    OPTIONS[command] |= {"--release": (text,), "--sync": (lambda random: part(random, "sync"),)}
for command in ("simulate", "run", "train"):
    for option, kind in PARTS.items():
        OPTIONS[command][option] = (lambda random, kind=kind: part(random, kind),)  # type: ignore[misc]
    OPTIONS[command] |= {"--mode": (text,), "--strategy": (lambda random: f"server:{part(random, 'sync')}", text)}
ARGUMENTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "simulate": (("x.toml",), ("x.toml",), ("x.toml",), ("/dev/full",), ("",), (), ("x.toml", "y")),
    "run": (
        ("program.py",),
        ("program.py",),
        ("program.py", "", "--x"),
        ("/dev/full",),
        ("",),
        (),
        ("-m", "a..b"),
        ("-m", ""),
    ),
    "train": ((), ("digits-mlp",), ("",), ("digits",), ("mnist-mlp",)),
    "bench": ((), ("x",)),
    "reproduce": ((), ("all",), ("fluent-dpr",), ("",), ("x" * 10_000,), ("fluent-dpr", "fluent-dpr")),
    "plan": (
        ("resnet56",),
        ("a:1,b:2",),
        ("a:",),
        ("x" * 10_000,),
        ("9" * 500,),
        ("",),
        (),
        ("x.toml",),
        ("/dev/zero",),
    ),
    "tell": (("nosuchrun",), ("",), ("@",), ("1.2.3.4:0",), ("x" * 10_000,)),
}


def command_line(random: Random, command: str) -> list[str]:
    """The words after `syncline`: the command, some options, and its arguments. None has a zero byte."""
    words = [command]
    for option in random.choices(list(OPTIONS[command]), k=random.choice((0, 1, 1, 1, 2, 3))):
        words += [option, random.choice(OPTIONS[command][option])(random)]
    if random.random() < 0.02:
        words.append(random.choice(("--bogus", "-z", "--sync", "-n", "--=", "--seed=")))
    return [*words, *random.choice(ARGUMENTS[command])]

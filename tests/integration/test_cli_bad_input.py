"""Mistakes of a user: an exit code, one line that names the key, no traceback, and no file left behind."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from syncline.cli.main import main

OLD_REPORT = '{"made_by": "syncline", "from": "an earlier run"}\n'
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `syncline simulate` on a file in an empty directory; return the exit code and stderr."""

    def run(text: str | bytes | None, *args: str, report: str | Path | None = "r.json") -> tuple[int, str]:
        if text is not None:
            (tmp_path / "x.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
        monkeypatch.chdir(tmp_path)
        reporting = [] if report is None else ["--report", str(report)]
        monkeypatch.setattr(sys, "argv", ["syncline", "simulate", "x.toml", *reporting, *args])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
        return code, capsys.readouterr().err

    return run


def toml(top: str = "", cluster: str = "workers = 8", faults: tuple[str, ...] = (), **sections: str) -> str:
    """A valid experiment file, with these changes."""
    top = top if "iterations" in top else f"iterations = 4\n{top}"
    parts = [top, f"[cluster]\n{cluster}", *(f"[{name}]\n{text}" for name, text in sections.items())]
    return "\n".join([*parts, *(f"[[faults]]\n{text}" for text in faults)]) + "\n"


def assert_refused(code: int, err: str, option: str, *words: str, wanted: int = 2) -> None:
    """One line, `syncline: option: problem`; `option` may be given without the sections before it."""
    lines = err.splitlines()
    assert "Traceback" not in err
    assert len(lines) == 1, err
    assert len(lines[0]) < 1200, err
    assert lines[0].startswith("syncline: ")
    named = lines[0].removeprefix("syncline: ").partition(": ")[0]
    assert named == option or named.endswith(f".{option}"), lines[0]
    for word in words:
        assert word in lines[0], lines[0]
    assert code == wanted


def assert_nothing_written(folder: Path, *but: str) -> None:
    assert {path.name for path in folder.iterdir()} <= {"x.toml", "times.csv", *but}


BAD_FILES: dict[str, tuple[str, tuple[str, ...]]] = {
    # Unknown keys: what is meant, or what there is.
    "unknown key": (toml("bogus = 1"), ("bogus", "iterations", "strategy")),
    "unknown key, close": (toml("sede = 1"), ("sede", "did you mean 'seed'")),
    "unknown section, close": (toml(clusters="a = 1"), ("clusters", "did you mean 'cluster'")),
    "unknown in cluster": (toml(cluster="workers = 8\nspeed = 1"), ("cluster.speed", "workers", "compute")),
    "unknown in cluster, close": (toml(cluster="worker = 8"), ("cluster.worker", "did you mean 'workers'")),
    "unknown in compute": (
        toml(cluster="workers = 8\ncompute = { men = 1.0 }"),
        ("cluster.compute.men", "did you mean 'mean'"),
    ),
    "unknown in network": (toml(network='bandwith = "1Gbit"'), ("network.bandwith", "did you mean 'bandwidth'")),
    "unknown in model": (toml(model="parameter = 9"), ("model.parameter", "did you mean 'parameters'")),
    "unknown in strategy": (toml(strategy='synk = "bsp"'), ("strategy.synk", "did you mean 'sync'")),
    "unknown in dispatch": (toml(dispatch='rul = "uniform"'), ("dispatch.rul", "did you mean 'rule'")),
    "unknown key of two lines": (toml('"a\\nb" = 1'), (r"a\nb",)),
    # What has no default.
    "empty file": ("", ("cluster", "missing")),
    "no cluster": ("iterations = 4", ("cluster", "missing")),
    "no workers": ("[cluster]", ("cluster.workers", "missing")),
    # Types.
    "iterations: text": (toml('iterations = "4"'), ("iterations",)),
    "iterations: broken": (toml("iterations = 4.5"), ("iterations",)),
    "iterations: bool": (toml("iterations = true"), ("iterations",)),
    "seed: text": (toml('seed = "x"'), ("seed",)),
    "seed: broken": (toml("seed = 1.5"), ("seed",)),
    "cluster: number": ("cluster = 3", ("cluster",)),
    "network: number": ("network = 3\n" + toml(), ("network",)),
    "model: text": ('model = "digits-mlp"\n' + toml(), ("model",)),
    "strategy: text": ('strategy = "bsp"\n' + toml(), ("strategy",)),
    "dispatch: text": ('dispatch = "uniform"\n' + toml(), ("dispatch",)),
    "faults: number": ("faults = 3\n" + toml(), ("faults",)),
    "faults: one table": (toml() + '[faults]\nkind = "crash"\n', ("faults",)),
    "faults: list of numbers": ("faults = [3]\n" + toml(), ("faults[0]",)),
    "workers: text": (toml(cluster='workers = "8"'), ("cluster.workers",)),
    "workers: broken": (toml(cluster="workers = 8.5"), ("cluster.workers",)),
    "workers: bool": (toml(cluster="workers = true"), ("cluster.workers",)),
    "workers: list": (toml(cluster="workers = [8]"), ("cluster.workers",)),
    "compute: number": (toml(cluster="workers = 8\ncompute = 3"), ("cluster.compute",)),
    "compute.trace: number": (toml(cluster="workers = 8\ncompute = { trace = 3 }"), ("cluster.compute.trace",)),
    "compute.mean: text": (toml(cluster='workers = 8\ncompute = { mean = "1s" }'), ("cluster.compute.mean",)),
    "compute.mean: bool": (toml(cluster="workers = 8\ncompute = { mean = true }"), ("cluster.compute.mean",)),
    "bandwidth: number": (toml(network="bandwidth = 1e9"), ("network.bandwidth",)),
    "latency: bool": (toml(network="latency = true"), ("network.latency",)),
    "apply: number": (toml(network="apply = 3"), ("network.apply",)),
    "parameters: text": (toml(model='parameters = "1M"'), ("model.parameters",)),
    "parameters: broken": (toml(model="parameters = 1.5"), ("model.parameters",)),
    "recipe: number": (toml(model="recipe = 3"), ("model.recipe",)),
    "batch: text": (toml(model='recipe = "digits-mlp"\nbatch = "x"'), ("model.batch",)),
    "sync: number": (toml(strategy="sync = 3"), ("strategy.sync",)),
    "sync: list of numbers": (toml(strategy="sync = [3]"), ("strategy.sync[0]",)),
    "servers: text": (toml(strategy='servers = "2"'), ("strategy.servers",)),
    "release: number": (toml(strategy="release = 3"), ("strategy.release",)),
    "bucket: number": (toml(strategy="bucket = 3"), ("strategy.bucket",)),
    "dispatch rule: number": (toml(dispatch="rule = 3"), ("dispatch.rule",)),
    # Numbers out of range.
    "0 workers": (toml(cluster="workers = 0"), ("cluster.workers", "at least 1")),
    "-1 workers": (toml(cluster="workers = -1"), ("cluster.workers", "at least 1")),
    "0 iterations": (toml("iterations = 0"), ("iterations", "at least 1")),
    "-3 iterations": (toml("iterations = -3"), ("iterations", "at least 1")),
    "0 servers": (toml(strategy="servers = 0"), ("strategy.servers", "at least 1")),
    "0 parameters": (toml(model="parameters = 0"), ("model.parameters", "at least 1")),
    "batch 0": (toml(model='recipe = "digits-mlp"\nbatch = 0'), ("model.batch", "at least 1")),
    "mean < 0": (toml(cluster="workers = 8\ncompute = { mean = -1.0 }"), ("cluster.compute.mean", "at least 0")),
    "mean nan": (toml(cluster="workers = 8\ncompute = { mean = nan }"), ("cluster.compute.mean", "finite")),
    "mean inf": (toml(cluster="workers = 8\ncompute = { mean = inf }"), ("cluster.compute.mean", "finite")),
    "sigma < 0": (toml(cluster="workers = 8\ncompute = { sigma = -1.0 }"), ("cluster.compute.sigma",)),
    "sigma nan": (toml(cluster="workers = 8\ncompute = { sigma = nan }"), ("cluster.compute.sigma",)),
    "straggle 2": (
        toml(cluster="workers = 8\ncompute = { straggle = 2.0, factor = 2.0 }"),
        ("cluster.compute.straggle", "[0, 1]"),
    ),
    "straggle < 0": (toml(cluster="workers = 8\ncompute = { straggle = -0.1 }"), ("cluster.compute.straggle",)),
    "factor < 0": (toml(cluster="workers = 8\ncompute = { factor = -1.0 }"), ("cluster.compute.factor",)),
    "factor inf": (toml(cluster="workers = 8\ncompute = { factor = inf }"), ("cluster.compute.factor",)),
    "mean and trace": (
        toml(cluster='workers = 8\ncompute = { mean = 1.0, trace = "times.csv" }'),
        ("cluster.compute.mean", "trace"),
    ),
    "latency < 0": (toml(network="latency = -0.1"), ("network.latency", "at least 0")),
    "latency < 0, text": (toml(network='latency = "-1ms"'), ("network.latency",)),
    "latency nan": (toml(network="latency = nan"), ("network.latency",)),
    "latency inf": (toml(network="latency = inf"), ("network.latency",)),
    # Units.
    "bandwidth without unit": (toml(network='bandwidth = "1000"'), ("network.bandwidth", "1Gbit")),
    "bandwidth of another unit": (toml(network='bandwidth = "1Gb"'), ("network.bandwidth", "1Gbit")),
    "bandwidth: words": (toml(network='bandwidth = "fast"'), ("network.bandwidth", "1Gbit")),
    "bandwidth: nothing": (toml(network='bandwidth = ""'), ("network.bandwidth",)),
    "bandwidth < 0": (toml(network='bandwidth = "-1Gbit"'), ("network.bandwidth",)),
    "bandwidth 0": (toml(network='bandwidth = "0Gbit"'), ("network.bandwidth", "above 0")),
    "latency without unit": (toml(network='latency = "0.1"'), ("network.latency", "0.1ms")),
    "latency of another unit": (toml(network='latency = "1h"'), ("network.latency",)),
    "apply 0": (toml(network='apply = "0B/s"'), ("network.apply", "above 0")),
    "apply per hour": (toml(network='apply = "2GB/h"'), ("network.apply",)),
    "bucket without unit": (toml(strategy='bucket = "1M"'), ("strategy.bucket", "1MiB")),
    "bucket 0": (toml(strategy='bucket = "0MiB"'), ("strategy.bucket", "above 0")),
    "bucket a rate": (toml(strategy='bucket = "1MB/s"'), ("strategy.bucket",)),
    "bucket infinite": (toml(strategy='bucket = "1e400B"'), ("strategy.bucket",)),
    # Models of another shape than the cluster.
    "too many models": (toml(strategy='servers = 2\nsync = ["bsp", "asp", "asp"]'), ("strategy.sync", "3", "2")),
    "too few models": (toml(strategy='servers = 2\nsync = ["bsp"]'), ("strategy.sync", "1", "2")),
    "no models": (toml(strategy="sync = []"), ("strategy.sync",)),
    "more servers than values": (toml(model="parameters = 3", strategy="servers = 5"), ("servers", "5")),
    "a server without a table": (toml(strategy='servers = 2\nplacement = "roundrobin"'), ("servers", "roundrobin")),
    # Combinations.
    "gradients with asp": (toml(strategy='sync = "asp"\nmode = "gradients"'), ("mode", "asp", "bsp", "changes")),
    "gradients with ssp": (toml(strategy='sync = "ssp:3"\nmode = "gradients"'), ("mode", "ssp:3", "bsp")),
    "gradients with drop": (toml(strategy='sync = "drop:3"\nmode = "gradients"'), ("mode", "drop:3", "bsp")),
    "gradients with one asp": (toml(strategy='sync = ["bsp", "asp"]\nmode = "gradients"'), ("mode", "asp", "bsp")),
    "gradients without fetches": (toml(strategy='gate = "every:fetch=2"'), ("gate", "every:fetch=2")),
    "gradients and a comparison": (toml(strategy='gate = "significance:0.1"'), ("gate", "significance", "changes")),
    "bandwidth without a rule": (toml(strategy='gate = "bandwidth:fetch=1"'), ("gate", "bandwidth", "fasgd:0.005")),
    "bandwidth without fasgd": (
        toml(strategy='rule = "sasgd:0.1"\ngate = "bandwidth:push=1"'),
        ("gate", "sasgd:0.1", "fasgd:0.005"),
    ),
    "changes made twice": (
        toml(strategy='mode = "changes"\ngate = "every:push=2,on_skip=reapply"'),
        ("gate", "on_skip=accumulate"),
    ),
    "rule mode without rule": (toml(strategy='mode = "rule"'), ("mode", "rule", "sgd:0.1")),
    "rule in changes mode": (toml(strategy='mode = "changes"\nrule = "sgd:0.1"'), ("rule", "changes")),
    "rule in gradients mode": (toml(strategy='mode = "gradients"\nrule = "sgd:0.1"'), ("rule", "gradients")),
    "rule that does not optimise": (toml(strategy='mode = "rule"\nrule = "add"'), ("rule", "add", "sgd")),
    "recipe and parameters": (toml(model='recipe = "digits-mlp"\nparameters = 4'), ("model.parameters", "recipe")),
    "batch without recipe": (toml(model="batch = 3"), ("model.batch", "recipe")),
    "optimizer without recipe": (toml(model='optimizer = "sgd:0.1"'), ("model.optimizer", "recipe")),
    "dispatch and network": (toml(dispatch="", network='latency = "1ms"'), ("network", "dispatch")),
    "dispatch and faults": (toml(dispatch="", faults=('kind = "crash"\nat = 1\nworker = 1',)), ("faults", "dispatch")),
    # Names.
    "kind": (toml(strategy='kind = "sever"'), ("strategy.kind", "server")),
    "release": (toml(strategy='release = "lasy"'), ("strategy.release", "lazy", "soft")),
    "mode": (toml(strategy='mode = "gradient"'), ("strategy.mode", "gradients")),
    "rule": (toml(strategy='rule = "sdg:0.1"'), ("strategy.rule", "did you mean 'sgd'")),
    "rule without rate": (toml(strategy='rule = "sgd"'), ("strategy.rule", "sgd:0.1")),
    "rule with rate 0": (toml(strategy='rule = "sgd:0"'), ("strategy.rule", "above 0")),
    "rule with rate inf": (toml(strategy='rule = "sgd:inf"'), ("strategy.rule", "inf")),
    "rule with mu 1.5": (toml(strategy='rule = "momentum:0.1,1.5"'), ("strategy.rule", "[0, 1)")),
    "gate": (toml(strategy='gate = "sometimes"'), ("strategy.gate", "always")),
    "gate every 0": (toml(strategy='gate = "every:0"'), ("strategy.gate", "at least 1")),
    "gate bandwidth < 0": (toml(strategy='gate = "bandwidth:-1"'), ("strategy.gate", "push", "at least 0")),
    "gate on_skip": (toml(strategy='gate = "every:2,on_skip=drop"'), ("strategy.gate", "on_skip", "'reapply'")),
    "gate budget 0": (toml(strategy='gate = "budget:0"'), ("strategy.gate", "at least 1", "1MB")),
    "gate budget 0MB": (toml(strategy='gate = "budget:0MB"'), ("strategy.gate", "above 0")),
    "gate significance < 0": (toml(strategy='gate = "significance:-1"'), ("strategy.gate", "at least 0")),
    "rule fasgd with rate 0": (toml(strategy='rule = "fasgd:0"'), ("strategy.rule", "above 0")),
    "rule fasgd with gamma 2": (toml(strategy='rule = "fasgd:0.1,gamma=2"'), ("strategy.rule", "gamma", "[0, 1]")),
    "codec": (toml(strategy='codec = "zip"'), ("strategy.codec", "dense")),
    "reply_codec": (toml(strategy='reply_codec = "zip"'), ("strategy.reply_codec", "dense")),
    "placement": (toml(strategy='placement = "elstic"'), ("strategy.placement", "elastic")),
    "recipe": (toml(model='recipe = "digits"'), ("model.recipe", "digits-mlp")),
    "optimizer": (toml(model='recipe = "digits-mlp"\noptimizer = "sdg:1"'), ("model.optimizer", "sgd")),
    "optimizer without rate": (toml(model='recipe = "digits-mlp"\noptimizer = "sgd"'), ("model.optimizer", "sgd:0.1")),
    "optimizer that is none": (toml(model='recipe = "digits-mlp"\noptimizer = "mean"'), ("model.optimizer", "mean")),
    "dispatch rule": (toml(dispatch='rule = "unifrm"'), ("dispatch.rule", "did you mean 'uniform'")),
    "dispatch after 0": (toml(dispatch='rule = "weighted:after=0"'), ("dispatch.rule", "after", "at least")),
    "dispatch slow 9 of 8": (toml(dispatch='rule = "weighted:slow=9"'), ("dispatch.rule", "slow", "8")),
    # Numbers that no run can mean.
    "seed -1": (toml("seed = -1"), ("seed", "at least 0")),
    "seed of 20 digits": (toml("seed = 99999999999999999999"), ("seed", "at most")),
    "sigma 1e18": (toml(cluster="workers = 8\ncompute = { sigma = 1e18 }"), ("cluster.compute.sigma", "at most 5")),
    "sigma 1e308": (toml(cluster="workers = 8\ncompute = { sigma = 1e308 }"), ("cluster.compute.sigma", "at most 5")),
    "mean 1e10": (toml(cluster="workers = 8\ncompute = { mean = 1e10 }"), ("cluster.compute.mean", "at most")),
    "straggle without factor": (
        toml(cluster="workers = 8\ncompute = { straggle = 0.1 }"),
        ("cluster.compute.straggle", "set cluster.compute.factor too"),
    ),
    "factor without straggle": (
        toml(cluster="workers = 8\ncompute = { factor = 4.0 }"),
        ("cluster.compute.factor", "set cluster.compute.straggle too"),
    ),
    "factor 0": (
        toml(cluster="workers = 8\ncompute = { straggle = 0.1, factor = 0.0 }"),
        ("cluster.compute.factor", "at least"),
    ),
    "10^18 iterations": (toml("iterations = 1_000_000_000_000_000_000"), ("iterations", "8 workers", "125,000,000")),
    "10^18 parameters": (toml(model="parameters = 1_000_000_000_000_000_000"), ("model.parameters", "at most")),
    "10^20 workers": (toml(cluster="workers = 100_000_000_000_000_000_000"), ("cluster.workers", "at most 100,000")),
    "10^12 parameters": (toml(model="parameters = 1_000_000_000_000"), ("model.parameters", "26,214,400,000")),
    "10^9 parameters in small buckets": (
        toml(model="parameters = 1_000_000_000", strategy='bucket = "1KiB"'),
        ("strategy.bucket", "at most 25,600,000 parameters"),
    ),
    "10^20 servers": (toml(strategy="servers = 100_000_000_000_000_000_000"), ("strategy.servers", "at most 10,000")),
    "a worker that joins as 10^18": (
        toml(faults=('kind = "join"\nat = 0.1\nworker = 1_000_000_000_000_000_000',)),
        ("faults", "workers that join", "100,000"),
    ),
    "a batch of 10^18": (
        toml(model='recipe = "digits-mlp"\nbatch = 1_000_000_000_000_000_000'),
        ("model.batch", "at most"),
    ),
    "a number of 5,000 digits": (toml(f"seed = {'9' * 5000}"), ("x.toml", "digits")),
    "a number of 400 digits": (toml(f"seed = {'9' * 400}"), ("seed", "at most", "more than 300 digits")),
    "3,000 brackets": (toml(f"seed = {'[' * 3000}{']' * 3000}"), ("x.toml", "nested")),
    "bandwidth 1e-300Gbit": (toml(network='bandwidth = "1e-300Gbit"'), ("network.bandwidth", "at least 1bit/s")),
    "bandwidth 1__0Gbit": (toml(network='bandwidth = "1__0Gbit"'), ("network.bandwidth", "1Gbit")),
    "latency 1e300s": (toml(network='latency = "1e300s"'), ("network.latency", "at most")),
    "a text among the models that is empty": (toml(strategy='sync = ["bsp", ""]'), ("strategy.sync", "without spaces")),
    "two models in one text of a list": (toml(strategy='sync = ["bsp asp", "bsp"]'), ("strategy.sync", "'bsp asp'")),
    "times from a device": (
        toml(cluster="workers = 8\ncompute = { trace = '/dev/full' }"),
        ("cluster.compute.trace", "device"),
    ),
}

BAD_MODELS: dict[str, tuple[str, ...]] = {
    "drop:9": ("drop:9", "8 workers", "drop:8"),
    "drop:0": ("at least 1",),
    "drop": ("drop:6",),
    "drop:x": ("whole number",),
    "ssp": ("ssp:3",),
    "ssp:-1": ("at least 0",),
    "ssp:2.5": ("whole number",),
    "ssp:1,2": ("ssp:3",),
    "ssp:t=3": ("ssp:3",),
    "pssp:s=3": ("p", "alpha", "pssp:s=3,p=0.5"),
    "pssp:s=3,p=2": ("[0, 1]",),
    "pssp:s=3,p=nan": ("[0, 1]",),
    "pssp:s=3,p=0.5,alpha=1": ("p", "alpha"),
    "pssp:s=3,alpha=-1": ("alpha", ">= 0"),
    "pssp:s=3,alpha=big": ("alpha", "significance"),
    "pssp:p=0.5": ("pssp:s",),
    "pssp:s=3,s=4,p=1": ("twice",),
    "pssp:s=3,0.5": ("before",),
    "dsps:3,1": ("hi", "at least 3"),
    "dsps:-1,2": ("lo", "at least 0"),
    "dsps:1": ("dsps:1,4",),
    "bsp:1": ("bsp",),
    "bps": ("did you mean 'bsp'",),
    "ssp:,3": ("',3'", "comma"),
    "ssp:3,": ("'3,'", "comma"),
    "pssp:s=3,,p=0.5": ("comma",),
    "ssp:": ("after the colon", "ssp:3"),
    "bsp:": ("after the colon",),
    "ssp:99999999999999999999": ("s must be", "at most 1,000,000,000"),
    "ssp:" + "9" * 5000: ("whole number", "5,007 characters"),
    "pssp:s=3,alpha=100": ("alpha", "<= 2", "as under ssp:3"),
    "x" * 10_000: ("xxx...", "10,002 characters", "ssp:3"),
    "a b " * 3000: ("bsp",),
    "": ("bsp", "ssp:3"),
    "no_such_package.Model": ("no_such_package",),
    "syncline.sync.NoSuchModel": ("NoSuchModel",),
    "os.path.join": ("not a class",),
    "collections.OrderedDict": ("methods",),
    ".Model": ("dotted path",),
    "..": ("dotted path",),
}

BAD_FAULTS: dict[str, tuple[str, ...]] = {
    "at = 1\nworker = 1": ("faults[0].kind", "crash", "switch"),
    'kind = "explode"\nat = 1': ("faults[0].kind", "crash", "explode"),
    'kind = ["crash"]\nat = 1\nworker = 1': ("faults[0].kind", "crash"),
    'kind = "crash"\nat = 1': ("faults[0].worker", "missing; 'crash' requires it"),
    'kind = "add_server"\nat = 1\nworker = 2': ("faults[0].worker", "'add_server' has no such key; its keys are: at"),
    'kind = "crash"\nworker = 1': ("faults[0].at", "missing"),
    'kind = "crash"\nat = -1\nworker = 1': ("faults[0].at", "at least 0"),
    'kind = "crash"\nat = nan\nworker = 1': ("faults[0].at", "nan"),
    'kind = "crash"\nat = inf\nworker = 1': ("faults[0].at", "inf"),
    'kind = "crash"\nat = "1s"\nworker = 1': ("faults[0].at", "number"),
    'kind = "crash"\nat = 0.1\nworker = 8': ("faults[0].worker", "0 to 7"),
    'kind = "crash"\nat = 0.1\nworker = -1': ("faults[0].worker", "0 to 7"),
    'kind = "crash"\nat = 0.1\nworker = 1.0': ("faults[0].worker", "whole number"),
    'kind = "crash"\nat = 0.1\nworker = 1\nwhen = 3': ("faults[0].when", "at, worker"),
    'kind = "crash"\nat = 0.1\nworker = 1\ndetect = -1': ("faults[0].detect", "at least 0"),
    'kind = "freeze"\nat = 0.1\nworker = 1': ("faults[0].duration", "missing"),
    'kind = "freeze"\nat = 0.1\nworker = 1\nduration = -1': ("faults[0].duration", "above 0"),
    'kind = "slow"\nat = 0.1\nworker = 1': ("faults[0].factor", "missing"),
    'kind = "slow"\nat = 0.1\nworker = 1\nfactor = 0': ("faults[0].factor", "at least"),
    'kind = "slow"\nat = 0.1\nworker = 1\nfactor = 2\nduration = -5': ("faults[0].duration", "0"),
    'kind = "join"\nat = 0.1\nworker = 1': ("faults[0].worker", "restart"),
    'kind = "leave"\nat = 0.1\nworker = 9': ("faults[0].worker", "0 to 7"),
    'kind = "switch"\nat = 0.1': ("faults[0].sync", "missing"),
    'kind = "switch"\nat = 0.1\nsync = "bps"': ("faults[0].sync", "did you mean 'bsp'"),
    'kind = "switch"\nat = 0.1\nsync = "drop:9"': ("faults[0].sync", "8 workers"),
    'kind = "switch"\nat = 0.1\nsync = "asp"': ("faults[0].sync", "asp", "gradients", "changes"),
    'kind = "switch"\nat = 0.1\nsync = "bsp"\nserver = 1': ("faults[0].server", "no server 1"),
    'kind = "switch"\nat = 0.1\nsync = "bsp"\nrelease = "hard"': ("faults[0].release", "lazy", "soft"),
    'kind = "switch"\nat = 0.1\nsync = "bsp"\nworker = 1': ("faults[0].worker", "at, sync"),
    'kind = "add_server"\nat = -1': ("faults[0].at", "at least 0"),
    'kind = "add_server"\nat = 1\nserver = 1': ("faults[0].server", "no such key"),
    'kind = "remove_server"\nat = 1': ("faults[0].server", "missing"),
    'kind = "remove_server"\nat = 1\nserver = 0': ("faults[0].server", "last server"),
    'kind = "remove_server"\nat = 1\nserver = 1': ("faults[0].server", "no server 1", "only 0"),
    'kind = "remove_server"\nat = 1\nserver = "1"': ("faults[0].server", "whole number"),
    'kind = "crash_server"\nat = 1': ("faults[0].server", "missing"),
    'kind = "crash_server"\nat = 1\nserver = 0': ("faults[0].server", "last server", "add duration"),
    'kind = "crash_server"\nat = 1\nserver = 1\nduration = 2': ("faults[0].server", "no server 1"),
    'kind = "crash_server"\nat = 1\nserver = 0\nduration = 0': ("faults[0].duration", "above 0"),
}

ROW = "1,1,1,1\n"
BAD_TRACES: dict[str, tuple[bytes | str | None, tuple[str, ...]]] = {
    "too few rows": (ROW * 7, ("7 rows", "8 workers")),
    "too many rows": (ROW * 9, ("9 rows", "8 workers")),
    "no rows": ("", ("0 rows", "8 workers")),
    "too few columns": ("1,1,1\n" * 8, ("row 1", "3 columns", "4 iterations")),
    "too many columns": ("1,1,1,1,1\n" * 8, ("row 1", "5 columns", "4 iterations")),
    "one short row": (ROW * 7 + "1,1\n", ("row 8", "2 columns")),
    "a word": (ROW * 2 + "1,1,x,1\n" + ROW * 5, ("row 3, column 3", "'x'")),
    "an empty cell": (ROW * 7 + "1,,1,1\n", ("row 8, column 2",)),
    "negative": (ROW * 7 + "1,1,1,-0.5\n", ("row 8, column 4", "-0.5", "at least 0")),
    "nan": (ROW * 7 + "nan,1,1,1\n", ("row 8, column 1", "nan", "finite")),
    "infinite": (ROW * 7 + "1,inf,1,1\n", ("row 8, column 2", "inf", "finite")),
    "a field of 200,000 digits": (ROW * 7 + "1,1,1," + "1" * 200_000 + "\n", ("times.csv",)),
    "binary": (bytes(range(256)), ("times.csv",)),
    "missing": (None, ("times.csv", "No such file")),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file(case: str, run: Run, tmp_path: Path) -> None:
    text, (option, *words) = BAD_FILES[case]
    assert_refused(*run(text), option, *words)
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize("model", BAD_MODELS)
def test_a_bad_sync_model(model: str, run: Run, tmp_path: Path) -> None:
    assert_refused(*run(toml(strategy=f'sync = "{model}"')), "sync", *BAD_MODELS[model])
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize("model", ["drop:9", "ssp:-1", "pssp:s=3", "bps"])
def test_a_bad_sync_model_as_an_option(model: str, run: Run, tmp_path: Path) -> None:
    assert_refused(*run(toml(), "--sync", model), "sync", *BAD_MODELS[model])
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize("fault", BAD_FAULTS)
def test_a_bad_fault(fault: str, run: Run, tmp_path: Path) -> None:
    option, *words = BAD_FAULTS[fault]
    assert_refused(*run(toml(faults=(fault,))), option, *words)
    assert_nothing_written(tmp_path)


def test_the_second_fault_is_named_by_its_place(run: Run) -> None:
    good, bad = 'kind = "leave"\nat = 0.1\nworker = 0', 'kind = "leave"\nat = 0.1\nworker = 99'
    assert_refused(*run(toml(faults=(good, bad))), "faults[1].worker", "0 to 7")


@pytest.mark.parametrize("case", BAD_TRACES)
def test_a_bad_trace(case: str, run: Run, tmp_path: Path) -> None:
    content, words = BAD_TRACES[case]
    if content is not None:
        (tmp_path / "times.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    text = toml(cluster='workers = 8\ncompute = { trace = "times.csv" }')
    assert_refused(*run(text), "cluster.compute.trace", *words)
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize("name", [".", "", "a\\u0000b"])
def test_a_trace_that_is_no_file(name: str, run: Run, tmp_path: Path) -> None:
    text = toml(cluster=f'workers = 8\ncompute = {{ trace = "{name}" }}')
    assert_refused(*run(text), "cluster.compute.trace")
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize(
    "content",
    ["iterations = \n", "seed = 1\nseed = 2\n", "[cluster\n", bytes(range(256)), toml().encode("utf-16")],
    ids=["no value", "a key twice", "no bracket", "binary", "utf-16"],
)
def test_what_is_not_toml(content: str | bytes, run: Run, tmp_path: Path) -> None:
    assert_refused(*run(content), "x.toml", "not a text file" if isinstance(content, bytes) else "not valid TOML")
    assert_nothing_written(tmp_path)


def test_a_file_that_is_missing(run: Run, tmp_path: Path) -> None:
    code, err = run(None)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("syncline: x.toml: ")
    assert "No such file" in err
    assert_nothing_written(tmp_path)


def test_a_directory_instead_of_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.toml").mkdir()
    code, err = run(None)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("syncline: x.toml: ")
    assert "directory" in err
    assert_nothing_written(tmp_path)


# Where output goes. All of it is checked before the run.


@pytest.mark.parametrize("option", ["--report", "--plot", "--trace"])
def test_output_into_a_missing_directory(option: str, run: Run, tmp_path: Path) -> None:
    assert_refused(*run(toml(), option, "nowhere/out.png", report=None), option, "nowhere")
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize("option", ["--report", "--plot", "--trace"])
def test_output_to_a_directory(option: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "out.png").mkdir()
    assert_refused(*run(toml(), option, "out.png", report=None), option, "directory")
    assert_nothing_written(tmp_path, "out.png")


@pytest.mark.parametrize("name", ["out", "out.gif", "out.json"])
def test_a_picture_of_an_unknown_kind(name: str, run: Run, tmp_path: Path) -> None:
    assert_refused(*run(toml(), "--plot", name), "--plot", ".png")
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize("option", ["--report", "--trace"])
def test_output_over_the_experiment_file(option: str, run: Run, tmp_path: Path) -> None:
    """A slip on the command line must not cost the user the file."""
    text = toml()
    assert_refused(*run(text, option, "x.toml", report=None), option, "x.toml")
    assert (tmp_path / "x.toml").read_text() == text


def test_report_and_trace_in_one_file(run: Run, tmp_path: Path) -> None:
    code, err = run(toml(), "--trace", "r.json")
    assert code == 2
    assert "--trace" in err
    assert_nothing_written(tmp_path)


def test_a_report_through_a_link_leaves_the_link(run: Run, tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text(OLD_REPORT)
    (tmp_path / "link.json").symlink_to("real.json")
    code, _ = run(toml(), "-q", report="link.json")
    assert code == 0
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() != OLD_REPORT


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("option", ["--report", "--trace"])
def test_output_to_a_pipe_or_device_does_not_replace_it(option: str, run: Run, tmp_path: Path) -> None:
    """`--report /dev/stdout`, or to /dev/null as root: a special file is written to or refused, never replaced."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that no writer has to wait
    try:
        run(toml(), "-q", option, "pipe", report=None)
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


# The command line itself.


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--workers", "x"), "--workers"),
        (("--seed", "x"), "--seed"),
        (("--iterations", "1.5"), "--iterations"),
        (("--bogus",), "--bogus"),
        (("extra.toml",), "extra.toml"),
        (("--sync",), "--sync"),
    ],
)
def test_an_option_that_cannot_be_read(args: tuple[str, ...], named: str, run: Run, tmp_path: Path) -> None:
    code, err = run(toml(), *args)
    assert code == 2
    assert named in err
    assert "Traceback" not in err
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (("--workers", "0"), "workers"),
        (("--servers", "0"), "servers"),
        (("--iterations", "0"), "iterations"),
        (("--release", "hard"), "release"),
        (("--mode", "gradient"), "mode"),
        (("--sync", "asp", "--mode", "gradients"), "mode"),
        (("--rule", "sdg:1"), "rule"),
        (("--sync", "asp", "--sync", "bsp", "--servers", "3"), "sync"),
    ],
)
def test_an_option_out_of_range(args: tuple[str, ...], option: str, run: Run, tmp_path: Path) -> None:
    assert_refused(*run(toml(), *args), option)
    assert_nothing_written(tmp_path)


# At run time.

NOT_FINITE = toml(model='recipe = "digits-mlp"\noptimizer = "sgd:1e30"')


def test_an_update_that_is_not_finite(run: Run, tmp_path: Path) -> None:
    code, err = run(NOT_FINITE, "-q", "--trace", "t.csv", "--plot", "p.png")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("syncline: worker 0, iteration 1: ")
    assert "'0.weight'" in err
    assert "NaN or infinity" in err
    assert_nothing_written(tmp_path)


def test_an_update_that_is_not_finite_under_a_rule(run: Run, tmp_path: Path) -> None:
    text = toml(model='recipe = "digits-mlp"', strategy='sync = "asp"\nrule = "sgd:1e30"')
    code, err = run(text, "-q")
    assert (code, err.count("\n")) == (1, 1)
    assert "worker " in err
    assert "iteration 1" in err
    assert_nothing_written(tmp_path)


def test_times_that_overflow(run: Run, tmp_path: Path) -> None:
    """Infinite virtual seconds are no figure, and not JSON either."""
    code, err = run(toml(cluster="workers = 8\ncompute = { mean = 1e308, straggle = 1.0, factor = 1e10 }"), "-q")
    assert code in (1, 2)
    assert err.count("\n") == 1
    assert_nothing_written(tmp_path)


def test_a_run_in_which_no_worker_is_left(run: Run, tmp_path: Path) -> None:
    faults = tuple(f'kind = "crash"\nat = 0.15\nworker = {worker}' for worker in range(8))
    code, err = run(toml(faults=faults), "-q")
    assert (code, err.count("\n")) == (1, 1)
    assert "no worker is left" in err
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize("text", [NOT_FINITE, toml(strategy='sync = "drop:9"'), "["], ids=["run", "model", "toml"])
def test_a_failed_run_leaves_an_earlier_report_alone(text: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(OLD_REPORT)
    code, _ = run(text)
    assert code in (1, 2)
    assert (tmp_path / "r.json").read_text() == OLD_REPORT
    assert_nothing_written(tmp_path, "r.json")


@pytest.mark.parametrize(
    ("text", "code", "begins"),
    [
        (toml(strategy='sync = "drop:9"'), 2, "syncline: "),
        ("bogus = 1\n" + toml(), 2, "syncline: bogus: "),
        (NOT_FINITE, 1, "syncline: worker 0, iteration 1: "),
    ],
    ids=["model", "key", "run"],
)
def test_the_same_in_a_process_of_its_own(text: str, code: int, begins: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(text)
    command = [sys.executable, "-m", "syncline", "simulate", "x.toml", "-q", "--report", "r.json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith(begins)
    assert done.stderr.count("\n") == 1
    assert_nothing_written(tmp_path)

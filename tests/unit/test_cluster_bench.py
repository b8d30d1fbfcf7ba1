"""The benchmark on a network of namespaces: its descriptions, its options, and that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from syncline.draw import Draw
from syncline.errors import RunError, UsageError
from syncline.recipes import build_layers
from syncline.recipes.layer_shares import multiplications
from syncline.sim.experiment import read_experiment
from syncline.sim.overlap import Overlap

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _within_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def own() -> Any:
    """The benchmark's modules, which are not installed."""
    from benchmarks.cluster import cli, engine, experiment, measure, models, network, predict, report, window

    class Own:
        pass

    found: Any = Own()
    for module in (cli, engine, experiment, measure, models, network, predict, report, window):
        setattr(found, module.__name__.rpartition(".")[2], module)
    return found


needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("tc")), reason="takes root, `ip` and `tc`"
)


# Models.


@pytest.mark.parametrize(
    ("name", "published"), [("resnet56", 125.5e6), ("googlenet", 1.50e9), ("inception-v4", 12.27e9)]
)
def test_the_multiplications_are_those_of_the_architecture(name: str, published: float) -> None:
    assert sum(multiplications(name)) == pytest.approx(published, rel=0.02)


def test_a_name_without_a_layer_list_is_refused() -> None:
    assert build_layers("resnet56", Draw(0)).layout.size == 853_018
    assert sum(build_layers("resnet56", Draw(0)).shares) == pytest.approx(1)
    with pytest.raises(UsageError, match="one of: resnet56, googlenet, inception-v4") as caught:
        build_layers("resnet57", Draw(0))
    assert caught.value.option == "model.layers"


def test_the_pauses_of_a_step_add_up_and_backward_takes_twice_as_long(own: Any) -> None:
    for name in own.models.MODELS:
        experiment = own.experiment.Experiment(name)
        forward = sum(each for _, each, _ in experiment.pauses)
        backward = sum(each for _, _, each in experiment.pauses)
        assert forward + backward == pytest.approx(experiment.seconds)
        assert backward == pytest.approx(2 * forward)
        assert [each for each, _, _ in experiment.pauses] == [t.name for t in experiment.layers.layout.tables]


def test_the_bits_a_second_of_one_worker_are_those_of_the_paper(own: Any) -> None:
    def bits(name: str) -> float:
        model = own.models.MODELS[name]
        return float(model.layout.size * 32 / model.seconds)

    assert bits("resnet56") == pytest.approx(746.5e6, rel=0.02)
    assert bits("inception-v4") == pytest.approx(2.01e9, rel=0.02)


# Descriptions.


def test_a_description_survives_the_way_to_another_process(own: Any) -> None:
    base = own.experiment.Experiment("googlenet", hosts=3, rate=1e6, pause=0.5)
    for name in own.experiment.CASES:
        made = own.experiment.case(name, base)
        assert msgspec.json.decode(msgspec.json.encode(made), type=own.experiment.Experiment) == made
        assert (made.model, made.hosts, made.rate, made.pause) == ("googlenet", 3, 1e6, 0.5)


def test_no_two_cases_are_the_same_experiment(own: Any) -> None:
    base = own.experiment.Experiment("resnet56")
    made = [own.experiment.case(name, base) for name in own.experiment.CASES]
    assert len(set(made)) == len(made)


def test_slower_keeps_the_proportion_of_computing_to_sending(own: Any) -> None:
    experiment = own.experiment.Experiment("resnet56")
    slow = experiment.slower(8)
    assert slow.seconds == 8 * experiment.seconds
    assert slow.rate * 8 == experiment.rate


def test_a_dense_iteration_moves_what_others_hold_there_and_back(own: Any) -> None:
    assert own.experiment.Experiment("resnet56", hosts=4).least_bytes == 2 * 853_018 * 4 * 3 / 4
    assert own.experiment.Experiment("resnet56", hosts=1).least_bytes == 0


def test_ddp_closes_a_bucket_once_it_is_large_enough_last_layers_first(own: Any) -> None:
    tables = own.experiment.Experiment("inception-v4").layers.layout.tables
    size = {table.name: table.size * 4 for table in tables}
    buckets = own.experiment.ddp_buckets(tables)
    assert [name for bucket in buckets for name in bucket] == [table.name for table in reversed(tables)]
    limits = [1 << 20, *[25 << 20] * (len(buckets) - 1)]
    for bucket, limit in zip(buckets[:-1], limits, strict=False):
        assert sum(size[name] for name in bucket) >= limit
        assert sum(size[name] for name in bucket[:-1]) < limit
    assert buckets[-1]


def test_the_engine_knows_every_case_but_codecs_that_are_skipped_with_a_reason(own: Any) -> None:
    base = own.experiment.Experiment("resnet56")
    for name in own.experiment.CASES:
        made = own.experiment.case(name, base)
        reason = own.measure.why_not(made)
        assert not reason or "codec" in reason or "torch" in reason


def test_settings_that_the_engine_refuses_are_a_skipped_row_with_the_reason(own: Any) -> None:
    base = own.experiment.Experiment("resnet56", placement="nowhere")
    row = own.measure.run_case("bsp", base, (), 1.0, 1.0)
    assert "nowhere" in row.skipped
    assert row.figures is None


# Figures.


def windows(own: Any, marks: list[float], sent: int, received: int) -> Any:
    return own.window.Window(marks, sent, received, processor_seconds=1.0, machine_seconds=2.0)


def test_the_rate_is_the_median_of_the_chunks(own: Any) -> None:
    steady = [0.1 * step for step in range(11)]
    stalled = [*steady[:9], *(mark + 5 for mark in steady[9:])]
    assert windows(own, steady, 0, 0).rate == pytest.approx(10)
    assert windows(own, stalled, 0, 0).rate == pytest.approx(10)
    assert windows(own, [0.0, 1.0, 2.0], 0, 0).rate == pytest.approx(1)


def test_figures_of_two_workers(own: Any) -> None:
    experiment = own.experiment.Experiment("resnet56", hosts=2, rate=100.0)
    marks = [0.2 * step for step in range(11)]
    both = [windows(own, marks, 100, 50), windows(own, marks, 60, 120)]
    figures = own.measure.figures_of(experiment, both, single=10.0)
    assert figures.iterations_per_second == pytest.approx(10)
    assert figures.speedup == pytest.approx(1)
    assert figures.bytes_per_iteration == pytest.approx(8)
    assert figures.most_bytes_per_iteration == pytest.approx(12)
    assert figures.utilisation == pytest.approx(0.6)
    assert figures.cores == pytest.approx(1)


@pytest.mark.parametrize(
    ("link", "processors", "own_share", "linear", "limit"),
    [
        (0.9, 0.2, 0.9, 0.5, "link"),
        (0.2, 0.9, 0.9, 0.5, "processors"),
        (0.2, 0.9, 0.1, 0.5, "other programs"),
        (0.9, 0.9, 0.9, 0.5, "link and processors"),
        (0.2, 0.2, 0.1, 0.95, "computing"),
        (0.6, 0.6, 0.1, 0.5, "turns"),
    ],
)
def test_what_limits(own: Any, link: float, processors: float, own_share: float, linear: float, limit: str) -> None:
    assert own.measure.limit_of(link, processors, own_share, linear) == limit


def test_the_report_says_what_it_is_worth(own: Any) -> None:
    experiment = own.experiment.Experiment("resnet56")
    rows = [own.measure.Row("topk", experiment, skipped="no such codec")]
    made = own.report.Report(4, 125e6, 8.0, 5.0, {"resnet56": 27.0}, rows).as_json()
    notes = " ".join(made["notes"])
    assert "workers sleep instead of computing" in notes
    assert "8 times slower" in notes
    assert made["schema"] == 1
    assert made["rows"][0]["experiment"]["sync"] == "bsp"
    assert msgspec.json.decode(msgspec.json.encode(made)) == made


# Predictions.


def test_the_scenario_is_the_same_experiment(own: Any) -> None:
    base = own.experiment.Experiment("resnet56", hosts=3, rate=1e6, pause=0.5)
    scenario = own.predict.scenario_of(own.experiment.case("all", base), 7)
    assert scenario.overlap is Overlap.FORWARD
    assert (scenario.iterations, scenario.cluster.workers, scenario.strategy.servers) == (7, 3, 3)
    assert scenario.cluster.colocated
    assert scenario.cluster.links.bandwidth == 1e6 * own.predict.GOODPUT
    assert set(scenario.cluster.compute.block(0, 0, Draw(0))) == {0.5}
    assert [str(model) for model in scenario.strategy.sync] == ["ssp:5"] * 3
    assert (str(scenario.strategy.codec), str(scenario.strategy.reply_codec)) == ("topk:0.01", "topk:0.01")


def test_the_file_in_the_docs_is_the_same_experiment(own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs/cluster.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "run.toml").write_text(block)
    read = read_experiment(tmp_path / "run.toml")
    monkeypatch.setattr(own.predict, "cores", lambda: 4)
    made = own.predict.scenario_of(own.experiment.Experiment("resnet56"), read.scenario.iterations)
    ours, theirs = read.scenario.cluster, made.cluster
    assert (ours.links.bandwidth, ours.compute.mean) == pytest.approx(
        (theirs.links.bandwidth, theirs.compute.mean), 0.01
    )
    assert read.model.layers == "resnet56"
    assert replace(made, cluster=ours) == read.scenario
    for key in ("colocated", "handling", "workers"):
        assert getattr(theirs, key) == getattr(ours, key)
    assert theirs.links.turn == ours.links.turn


def test_a_worker_that_waits_for_nobody_is_as_fast_as_alone(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own.predict, "HANDLING", 0.0)
    for name in ("bsp", "bsp-after", "gloo"):
        alone = own.experiment.case(name, own.experiment.Experiment("resnet56", hosts=1))
        assert own.predict.predict(alone).speedup == pytest.approx(1)
    free = own.experiment.Experiment("resnet56", hosts=3, rate=1e15)
    assert own.predict.predict(free).speedup == pytest.approx(3)


def test_many_small_messages_take_processors_that_hosts_share(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = own.experiment.case("uniform", own.experiment.Experiment("resnet56"))
    monkeypatch.setattr(own.predict, "cores", lambda: 4)
    each_its_own = own.predict.scenario_of(experiment, 2).cluster.handling
    monkeypatch.setattr(own.predict, "cores", lambda: 1)
    assert own.predict.scenario_of(experiment, 2).cluster.handling == 4 * each_its_own == 4 * own.predict.HANDLING


def test_predictions_keep_their_proportions_when_all_is_slower(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own.predict, "HANDLING", 0.0)
    experiment = own.experiment.Experiment("resnet56", hosts=3)
    fast, slow = own.predict.predict(experiment), own.predict.predict(experiment.slower(8))
    assert slow.speedup == pytest.approx(fast.speedup)
    assert slow.iterations_per_second * 8 == pytest.approx(fast.iterations_per_second)
    assert slow.bytes_per_iteration == fast.bytes_per_iteration == pytest.approx(experiment.least_bytes)


def test_a_ring_without_overlap_is_all_computing_and_then_all_bytes(own: Any) -> None:
    experiment = own.experiment.case("gloo-after", own.experiment.Experiment("googlenet"))
    seconds = experiment.seconds + experiment.least_bytes / experiment.rate / own.predict.GOODPUT
    assert own.predict.predict(experiment).iterations_per_second == pytest.approx(4 / seconds)
    beside = own.experiment.case("gloo", own.experiment.Experiment("googlenet"))
    assert own.predict.predict(beside).speedup > own.predict.predict(experiment).speedup


def test_predictions_alone_need_no_root(
    own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    words = ["--hosts", "2", "--models", "resnet56", "--cases", "bsp,gloo"]
    assert own.cli.main(words) == 2
    assert "--predict-only" in capsys.readouterr().err
    file = tmp_path / "figures.json"
    assert own.cli.main([*words, "--predict-only", "--report", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "predicted" in shown
    assert "cores" not in shown
    written = msgspec.json.decode(file.read_bytes())
    assert [row["case"] for row in written["rows"]] == ["bsp", "gloo"]
    assert not written["measured"]
    assert all(0 < row["predicted"]["speedup"] <= 2 and row["figures"] is None for row in written["rows"])


def test_a_case_that_is_refused_has_no_prediction(own: Any) -> None:
    row = own.measure.predict_case("bsp", own.experiment.Experiment("resnet56", placement="nowhere"))
    assert row.predicted is None
    assert "nowhere" in own.measure.outcome(row)


def test_predicted_stands_beside_measured(own: Any) -> None:
    experiment = own.experiment.Experiment("resnet56", hosts=2, rate=100.0)
    figures = own.measure.figures_of(experiment, [windows(own, [0.0, 1.0, 2.0], 1, 1)] * 2, single=1.0)
    expected = own.predict.Prediction(2.0, 1.6, 5e6)
    rows = [
        own.measure.Row("bsp", experiment, figures, predicted=expected),
        own.measure.Row("gloo", experiment, figures),
    ]
    made = own.report.Report(2, 125e6, 1.0, 5.0, {"resnet56": 1.0}, rows)
    output = StringIO()
    own.report.show(made, Console(width=120, file=output))
    text = output.getvalue()
    assert figures.speedup == 2.0
    assert "1.60  -20%" in text
    assert made.as_json()["rows"][0]["predicted"]["speedup"] == 1.6


# Options.


def test_options(own: Any) -> None:
    words = ["--hosts", "3", "--rate", "100Mbit", "--models", "googlenet, resnet56", "--cases", "gloo,bsp,gloo"]
    request = own.cli.parse([*words, "--slower", "2"])
    assert (request.hosts, request.rate) == (3, 12.5e6)
    assert request.models == ("googlenet", "resnet56")
    assert request.cases == ("gloo", "bsp")
    base = request.base("resnet56")
    assert (base.rate, base.hosts) == (6.25e6, 3)
    assert own.cli.parse([]).models == tuple(own.models.MODELS)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--rate", "fast"], "--rate"),
        (["--models", "resnet57"], "--models"),
        (["--models", ","], "--models"),
        (["--cases", "bsp,quick"], "--cases"),
        (["--seconds", "0"], "--seconds"),
        (["--slower", "nan"], "--slower"),
        (["--report", "/nowhere/at/all.json"], "--report"),
        (["--plot", "figure.txt"], "--plot"),
    ],
)
def test_nonsense_names_its_option(own: Any, words: list[str], option: str) -> None:
    with pytest.raises(UsageError) as caught:
        own.cli.parse(words)
    assert caught.value.option == option


@pytest.mark.parametrize("hosts", [0, 65])
def test_so_many_hosts_are_refused(own: Any, hosts: int) -> None:
    with pytest.raises(UsageError, match="from 1 to 64"):
        own.network.check_possible(hosts)


# The processes.


class Here:
    """A host that is this one."""

    def inside(self, *command: str) -> list[str]:
        return list(command)


@pytest.fixture
def crew(own: Any, tmp_path: Path) -> Iterator[Any]:
    made = own.engine.Crew((Here(),), tmp_path)
    yield made
    made.stop()


def test_a_worker_that_fails_is_named_with_its_last_line(crew: Any) -> None:
    idle = crew.start("worker0", Here(), ["-c", "import signal; signal.pause()"], {})
    failing = crew.start("worker1", Here(), ["-c", "print('first'); raise SystemExit('no such table')"], {})
    with pytest.raises(RunError, match="worker1 ended with exit code 1: no such table"):
        crew.wait([idle, failing], 60)


def test_a_server_that_ends_before_the_workers_is_named(crew: Any) -> None:
    crew.start("server0", Here(), ["-c", ""], {})
    worker = crew.start("worker0", Here(), ["-c", "import signal; signal.pause()"], {})
    with pytest.raises(RunError, match="server0 ended with exit code 0: it printed nothing"):
        crew.wait([worker], 60)


def test_workers_that_end_well_leave_the_server_to_be_ended(crew: Any) -> None:
    server = crew.start("server0", Here(), ["-c", "import signal; signal.pause()"], {})
    crew.wait([crew.start("worker0", Here(), ["-c", ""], {})], 60)
    crew.stop()
    assert server.handle.returncode == -signal.SIGKILL


def test_a_coordinator_that_does_not_start_says_why(own: Any, crew: Any) -> None:
    failing = crew.start("coordinator", Here(), ["-c", "raise SystemExit('the port is taken')"], {})
    with pytest.raises(RunError, match="did not start: the port is taken"):
        own.engine._address_of(failing)


def test_a_case_that_fails_is_a_row_with_the_reason(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RunError("worker1 ended with code 1: out of memory")

    monkeypatch.setattr(own.engine, "run", fail)
    row = own.measure.run_case("bsp", own.experiment.Experiment("resnet56"), (), 1.0, 1.0)
    assert row.failed == "worker1 ended with code 1: out of memory"
    assert own.measure.outcome(row) == "failed: worker1 ended with code 1: out of memory"


# The network.


def left_behind(own: Any, pid: int) -> list[str]:
    return sorted(name for name in own.network.names() if name.startswith(f"cluster{pid}-"))


@needs_namespaces
def test_hosts_reach_each_other_over_links_that_are_held_to_the_rate(own: Any) -> None:
    with own.network.network(3, 12.5e6) as hosts:
        assert len(left_behind(own, os.getpid())) == 4
        assert len({host.address for host in hosts}) == 3
        for end in hosts:
            listed = subprocess.run(end.inside("tc", "qdisc", "show", "dev", "eth0"), capture_output=True, text=True)
            assert "tbf" in listed.stdout
            assert "rate 100Mbit" in listed.stdout
        receive = "import socket, sys; s = socket.create_server((sys.argv[1], 7000)); print(1, flush=True)\n"
        receive += "c, _ = s.accept()\nwhile c.recv(65536): pass"
        send = "import socket, sys; socket.create_connection((sys.argv[1], 7000)).sendall(bytes(1_000_000))"
        command = hosts[0].inside(sys.executable, "-c", receive, hosts[0].address)
        with subprocess.Popen(command, stdout=subprocess.PIPE) as receiver:
            assert receiver.stdout is not None
            receiver.stdout.readline()
            subprocess.run(hosts[2].inside(sys.executable, "-c", send, hosts[0].address), check=True, timeout=30)
            assert receiver.wait(30) == 0
        count = f"import sys; sys.path[:0] = {sys.path!r}\n"
        count += "from benchmarks.cluster.network import count_bytes; print(count_bytes().received)"
        seen = subprocess.run(hosts[0].inside(sys.executable, "-c", count), check=True, capture_output=True, text=True)
        assert 1_000_000 < int(seen.stdout) < 1_200_000
    assert left_behind(own, os.getpid()) == []


@needs_namespaces
@pytest.mark.parametrize("error", [ValueError("on purpose"), KeyboardInterrupt()])
def test_a_failure_leaves_no_namespace_and_no_process(own: Any, error: BaseException) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def fail() -> None:
        with own.network.network(2, 1e6) as hosts:
            assert len(left_behind(own, os.getpid())) == 3
            sleeper = hosts[1].inside(sys.executable, "-c", "import signal; print(1, flush=True); signal.pause()")
            started.append(subprocess.Popen(sleeper, stdout=subprocess.PIPE))
            assert started[0].stdout is not None
            started[0].stdout.readline()
            raise error

    with pytest.raises(type(error)):
        fail()
    assert left_behind(own, os.getpid()) == []
    with started[0] as process:
        assert process.wait(10) == -signal.SIGKILL


@needs_namespaces
def test_a_network_that_cannot_be_finished_leaves_nothing(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call = own.network._call

    def failing(*command: str) -> str:
        if command[0] == "tc":
            raise ValueError("on purpose")
        return str(call(*command))

    monkeypatch.setattr(own.network, "_call", failing)
    with pytest.raises(ValueError, match="on purpose"), own.network.network(2, 1e6):
        pass
    assert left_behind(own, os.getpid()) == []


@pytest.fixture
def command() -> Iterator[subprocess.Popen[str]]:
    """The benchmark, started as a folder, with one case that lasts until it is interrupted."""
    words = ["benchmarks/cluster", "--hosts", "2", "--models", "resnet56", "--cases", "bsp", "--seconds", "600"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@needs_namespaces
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(own: Any, command: subprocess.Popen[str], number: int) -> None:
    assert command.stderr is not None
    assert "one worker without communication" in command.stderr.readline()  # the network is there, and the case begins
    assert len(left_behind(own, command.pid)) == 3
    command.send_signal(number)
    _, errors = command.communicate(timeout=60)
    assert command.returncode == 130, errors
    assert "interrupted" in errors
    assert left_behind(own, command.pid) == []

"""Figures: what they ask for can be simulated, results are kept, and a figure is judged, drawn and written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from syncline.cli.output_checks import PICTURE, REPORT
from syncline.cli.reproduce_view import FigureProgress
from syncline.errors import RunError, UsageError
from syncline.reproduce.catalogue import FIGURES, chosen
from syncline.reproduce.figure import Compared, Figure, FigureRun, Result, Results, Verdict, is_true
from syncline.reproduce.kept import KeptRuns, order_of
from syncline.reproduce.produce import FigureFolder, make, orders, title
from syncline.sim.experiment import experiment_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


def small(name: str, **settings: object) -> FigureRun:
    return FigureRun(
        name,
        {
            "iterations": 4,
            "cluster": {"workers": 2, "compute": {"sigma": 0.3}},
            "model": {"parameters": 100},
            "strategy": settings,
        },
    )


def draw(results: Results, picture: Picture) -> None:
    picture.subplots().bar(list(results), [result.report["virtual_seconds"] for result in results.values()])


def judge(results: Results) -> Verdict:
    seconds = {name: result.report["virtual_seconds"] for name, result in results.items()}
    return Verdict([is_true("asp is no slower", seconds["asp"] <= seconds["bsp"])], "asp is no slower", seconds)


def figure(runs: Sequence[FigureRun]) -> Figure:
    return Figure("tiny", "no paper", "asp is no slower than bsp", lambda _: runs, judge, draw)


TINY = figure([small("bsp", sync="bsp"), small("asp", sync="asp")])


def nothing(*_: object) -> None:
    pass


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", FIGURES)
def test_every_run_of_a_figure_is_an_experiment(name: str, quick: bool) -> None:
    runs = FIGURES[name].runs(quick)
    assert len({run.name for run in runs}) == len(runs)
    for run in runs:
        order = order_of(run, None)
        experiment_of(order.experiment, Path())  # it is checked, and refused if it makes no sense
    keys = [order_of(run, None).key for run in runs]
    assert len(set(keys)) == len(runs)


def test_a_figure_is_judged_drawn_and_written_down(tmp_path: Path) -> None:
    made = make(TINY, FigureFolder(tmp_path, jobs=2), nothing, nothing, nothing)
    assert made.verdict.status == "holds"
    picture, numbers = made.files
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = json.loads(numbers.read_text())
    assert REPORT.match(numbers.read_bytes())
    assert PICTURE.match(picture.read_bytes())
    assert found["verdict"] == "holds"
    assert found["compared"] == [{"what": "asp is no slower", "paper": True, "ours": True}]
    assert found["numbers"] == {run["name"]: run["report"]["virtual_seconds"] for run in found["runs"]}


def test_a_run_may_be_complete_before_its_result_is_there(tmp_path: Path) -> None:
    with FigureProgress(Console(file=StringIO())) as view:
        view.begin(TINY, FigureFolder(tmp_path))
        view.tell("asp", 4, 4)
        view.done("bsp")
        view.done("asp")


def test_a_full_disk_costs_files_and_not_the_figure(tmp_path: Path) -> None:
    place, lost = FigureFolder(tmp_path, jobs=1), list[tuple[Path, str]]()
    (tmp_path / "runs").mkdir()
    for name in ("tiny.png.part", *(f"runs/{order.key}.part" for order in orders(TINY, place).values())):
        (tmp_path / name).symlink_to("/dev/full")
    made = make(TINY, place, nothing, nothing, lambda path, error: lost.append((path, error.strerror)))
    assert made.verdict.status == "holds"
    assert made.files == (tmp_path / "tiny.json",)
    assert lost == [(tmp_path / name, "No space left on device") for name in ("runs", "tiny.png")]
    assert list((tmp_path / "runs").glob("*.json")) == []


def test_what_is_kept_is_not_simulated_again(tmp_path: Path) -> None:
    place = FigureFolder(tmp_path, jobs=1)
    kept = KeptRuns(tmp_path / "runs", nothing)
    kept.put(orders(TINY, place)["bsp"], Result({"virtual_seconds": 123.0}))
    made = make(TINY, place, nothing, nothing, nothing)
    assert made.verdict.numbers["bsp"] == 123.0, "it was simulated although it was kept"
    assert made.verdict.numbers["asp"] != 123.0


def test_a_kept_file_that_is_broken_counts_as_none(tmp_path: Path) -> None:
    place = FigureFolder(tmp_path, jobs=1)
    make(TINY, place, nothing, nothing, nothing)
    for file in (tmp_path / "runs").iterdir():
        file.write_bytes(file.read_bytes()[:20])
    assert make(TINY, place, nothing, nothing, nothing).verdict.status == "holds"


def test_an_interrupted_figure_goes_on_where_it_was(tmp_path: Path) -> None:
    place = FigureFolder(tmp_path, jobs=1)

    def interrupt(name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(TINY, place, nothing, interrupt, nothing)
    order = orders(TINY, place)
    there = [name for name in order if KeptRuns(tmp_path / "runs", nothing).get(order[name]) is not None]
    assert there == ["bsp"]
    assert not (tmp_path / "tiny.json").exists()
    assert make(TINY, place, nothing, nothing, nothing).verdict.status == "holds"


def test_a_run_that_fails_is_named(tmp_path: Path) -> None:
    bad = small("all crash", sync="bsp")
    crashes = [{"at": 0.05, "kind": "crash", "worker": worker} for worker in range(2)]
    bad = FigureRun(bad.name, {**bad.experiment, "cluster": {"workers": 2}, "faults": crashes})
    with pytest.raises(RunError, match="all crash: no worker is left"):
        make(figure([bad]), FigureFolder(tmp_path), nothing, nothing, nothing)


def test_names() -> None:
    assert [figure.name for figure in chosen(["all"])] == list(FIGURES)
    assert [figure.name for figure in chosen(["fluent-dpr", "fluent-dpr"])] == ["fluent-dpr"]
    with pytest.raises(UsageError, match="'fluent-9' is not a figure; choose one of: mps-placement, "):
        chosen(["fluent-9"])


@pytest.mark.parametrize(
    ("compared", "standing"),
    [
        ([Compared("speed", 4.26, 4.0)], "holds"),
        ([Compared("speed", 4.26, 1.17)], "does not hold"),  # a twentieth of the paper's effect
        ([Compared("speed", 4.26, 1.17), Compared("slicing", 1.42, 1.47)], "in part"),
        ([Compared("speed", 1.38, 1.15)], "in part"),
        ([Compared("speed", 1.38, 0.9)], "does not hold"),
        ([Compared("saved", 0.971, 0.89, no_effect=0.0)], "holds"),
        ([Compared("pairs", 1.0, 11 / 12, no_effect=0.5, enough=1.0)], "in part"),
        ([is_true("so", True)], "holds"),
        ([is_true("so", True), is_true("and so", False)], "in part"),
        ([is_true("so", False)], "does not hold"),
    ],
)
def test_the_verdict_follows_from_the_effects(compared: list[Compared], standing: str) -> None:
    assert Verdict(compared, "").status == standing


def test_a_picture_of_quick_runs_says_so() -> None:
    verdict = Verdict([Compared("speed", 4.26, 1.17), Compared("slicing", 1.42, 1.47)], "1.17 (paper: 4.26)")
    words = "tiny (no paper), in part: 1.17 (paper: 4.26)"
    assert title(TINY, verdict, quick=False) == words
    assert title(TINY, verdict, quick=True).startswith(f"{words}\nmade with --quick")

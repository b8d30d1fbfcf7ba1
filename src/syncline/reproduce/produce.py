"""Make a figure: run the simulations that are not in the cache, check the claim, draw the figure, write its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncline.reproduce.crew import FigureCrew, Tell
from syncline.reproduce.figure import Figure, FigureRun, Result, Results, Verdict, reads_files
from syncline.reproduce.kept import KeptRuns, Order, order_of
from syncline.sim.plot import MADE_BY
from syncline.sim.report import REPORT_MARK, SCHEMA

Lose = Callable[[Path, OSError], None]
"""Called for a file that cannot be written; the figure goes on without it."""


@dataclass(frozen=True)
class FigureFolder:
    """Where figures and their data are, and how to make them."""

    out: Path
    data: Path | None = None
    """The folder of the files that some recipes read."""
    quick: bool = False
    jobs: int = 1


@dataclass(frozen=True)
class Made:
    """A finished figure and those of its files that could be written."""

    figure: Figure
    verdict: Verdict
    files: tuple[Path, ...]
    quick: bool


def orders(figure: Figure, place: FigureFolder) -> dict[str, Order]:
    """The simulations that a figure needs, by the name of the run."""
    return {run.name: _order(run, place) for run in figure.runs(place.quick)}


def _order(run: FigureRun, place: FigureFolder) -> Order:
    return order_of(run, place.data if reads_files(run) else None)


def make(figure: Figure, place: FigureFolder, tell: Tell, done: Callable[[str], None], lose: Lose) -> Made:
    """Make one figure; `done` is called with the name of each run that finished or was in the cache."""
    kept, wanted = KeptRuns(place.out / "runs", lose), orders(figure, place)
    found: dict[str, Result] = {}
    for name, order in wanted.items():
        result = kept.get(order)
        if result is not None:
            found[name] = result
            done(name)
    missing = {name: order for name, order in wanted.items() if name not in found}
    for name, result in FigureCrew(place.jobs).run(missing, tell) if missing else ():
        kept.put(missing[name], result)
        found[name] = result
        done(name)
    return _write(figure, place, {name: found[name] for name in wanted}, lose)


def _write(figure: Figure, place: FigureFolder, results: Results, lose: Lose) -> Made:
    verdict = figure.judge(results)
    picture, numbers = (place.out / f"{figure.name}.{kind}" for kind in ("png", "json"))
    words = title(figure, verdict, place.quick)
    whole = json.dumps(_as_json(figure, figure.runs(place.quick), results, verdict, place.quick), indent=1)
    actions: dict[Path, Callable[[Path], object]] = {
        picture: lambda path: _draw(figure, results, words, path),
        numbers: lambda path: path.write_text(whole + "\n"),
    }
    written = tuple(path for path, action in actions.items() if _written(path, action, lose))
    return Made(figure, verdict, written, place.quick)


def _written(path: Path, action: Callable[[Path], object], lose: Lose) -> bool:
    """Whether `action` could write this file; it gets its name when it is complete."""
    part = path.with_name(f"{path.name}.part")
    try:
        action(part)
        part.replace(path)
    except OSError as error:
        lose(path, error)
        return False
    finally:
        part.unlink(missing_ok=True)
    return True


def title(figure: Figure, verdict: Verdict, quick: bool) -> str:
    """The title of the picture; it says how the picture was made if that makes its numbers rough."""
    words = f"{figure.name} ({figure.paper}), {verdict.status}: {verdict.words}"
    return f"{words}\nmade with --quick: fewer and shorter runs, rougher numbers" if quick else words


def _draw(figure: Figure, results: Results, words: str, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(10, 6), layout="constrained")
    FigureCanvasAgg(picture)
    figure.draw(results, picture)
    for axes in picture.axes:
        axes.spines[["top", "right"]].set_visible(False)
    picture.suptitle(words, fontsize=8, wrap=True)
    picture.savefig(path, dpi=120, format="png", metadata=MADE_BY["png"])


def _as_json(
    figure: Figure, runs: Sequence[FigureRun], results: Results, verdict: Verdict, quick: bool
) -> Mapping[str, Any]:
    return {
        **REPORT_MARK,
        "schema": SCHEMA,
        "figure": figure.name,
        "paper": figure.paper,
        "claim": figure.claim,
        "verdict": verdict.status.value,
        "compared": [{"what": each.what, "paper": each.paper, "ours": each.ours} for each in verdict.compared],
        "found": verdict.words,
        "quick": quick,
        "numbers": verdict.numbers,
        "runs": [
            {
                "name": run.name,
                "experiment": run.experiment,
                "report": results[run.name].report,
                "curve": [point._asdict() for point in results[run.name].curve],
            }
            for run in runs
        ],
    }

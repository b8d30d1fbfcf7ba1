"""The examples in the documentation work, and its lists are complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import syncline.sim
from syncline.cli.main import app, main
from syncline.sim.faults import KINDS
from syncline.sim.sections import SECTIONS

ROOT = Path(__file__).parents[2]
ENGINES = ("net", "coordinator", "server", "worker", "launch", "saving", "doctor")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def test_the_experiment_in_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = blocks("README.md", "toml")
    (tmp_path / "run.toml").write_text(block)
    monkeypatch.chdir(tmp_path)
    words = ["simulate", "run.toml", "--plot", "who-waited.png", "--report", "figures.json", "--iterations", "5", "-q"]
    monkeypatch.setattr(sys, "argv", ["syncline", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert (tmp_path / "figures.json").is_file()
    assert (tmp_path / "who-waited.png").is_file()


def test_the_sync_model_in_the_docs_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is written to a module, as a user would: a part is named by the path of its class."""
    code = "\n".join(blocks("docs/sync-models.md", "python"))
    (tmp_path / "documented_model.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    import documented_model

    documented_model.test_patient()


@pytest.mark.parametrize("part", ["rule", "gate"])
def test_the_part_in_the_docs_is_the_example(part: str) -> None:
    """Other tests train with the example."""
    code = blocks(f"docs/{part}s.md", "python")[0]
    example = (ROOT / f"examples/own/{part}.py").read_text()
    assert code == example[example.index("from dataclasses") :]


@pytest.mark.parametrize(("part", "tests"), [("rule", ["test_sign_sgd", "test_lars"]), ("gate", ["test_large"])])
def test_the_tests_of_parts_in_the_docs_pass(
    part: str, tests: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"documented_{part}"
    (tmp_path / f"{name}.py").write_text("\n".join(blocks(f"docs/{part}s.md", "python")))
    monkeypatch.syspath_prepend(tmp_path)
    module = import_module(name)
    assert [each for each in vars(module) if each.startswith("test_")] == tests
    for each in tests:
        getattr(module, each)()


@pytest.mark.parametrize("number", range(len(blocks("docs/frameworks.md", "python"))))
def test_the_code_for_frameworks_is_that_of_the_scripts(number: int) -> None:
    """Other tests run these scripts."""
    code = blocks("docs/frameworks.md", "python")[number]
    scripts = [re.sub(r"  # .*", "", path.read_text()) for path in (ROOT / "tests/scripts").glob("*.py")]
    assert any(code in script for script in scripts)


PAGES = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text()):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            there = (ROOT / page).parent / file if file else ROOT / page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), target


@pytest.mark.parametrize(
    "folder", ["", "nodes/server", "nodes/exchange", "sim", "plan", *(f"engines/{each}" for each in ENGINES)]
)
def test_the_map_of_the_code_names_every_file(folder: str) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    names = [
        path.name for path in (ROOT / "src/syncline" / folder).iterdir() if not path.name.startswith(("__", "py."))
    ]
    known = names if folder else [name.removesuffix(".py") for name in names]
    assert [name for name in known if f"`{name}`" not in page] == []


def test_every_key_of_the_file_is_documented() -> None:
    text = (ROOT / "docs/experiments.md").read_text()
    for section, struct in SECTIONS.items():
        for key in struct.__struct_fields__:
            name = f"{section}.{key}" if section else key
            assert name in text or f"`{key}`" in text or f"[{key}]" in text, name


def test_every_command_has_its_section() -> None:
    page = (ROOT / "docs/commands.md").read_text()
    names = [command.callback.__name__ for command in app.registered_commands if command.callback is not None]
    assert [name for name in names if f"\n## syncline {name}\n" not in page] == []


def test_every_fault_is_documented_and_exported() -> None:
    """Each fault is a name in `syncline.sim`, and on the page."""
    page = (ROOT / "docs/simulator.md").read_text()
    for fault in KINDS.values():
        assert getattr(syncline.sim, fault.__name__) is fault
        assert re.search(rf"\b{fault.__name__}\b", page), fault


def test_the_page_of_commands_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs/make_commands.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def transformer(workers: int, *words: str) -> str:
    """The loss after 12 steps, as the program prints it."""
    start = [sys.executable] if workers == 1 else [sys.executable, "-m", "syncline", "run", "-n", str(workers)]
    command = [*start, str(ROOT / "examples/char_gpt.py"), "--steps", "12", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return re.findall(r"after \d+ steps: (\S+) on text not seen", done.stdout)[0]


def test_the_transformer_learns() -> None:
    assert float(transformer(1)) < 3.4


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_transformer_resumes(workers: int, tmp_path: Path) -> None:
    """Stopped after 8 of 12 steps and taken up again, it ends where the run that was not stopped ends."""
    whole = transformer(workers)
    transformer(workers, "--save", str(tmp_path / "gpt.pt"), "--stop", "8")
    assert transformer(workers, "--save", str(tmp_path / "gpt.pt")) == whole
    assert float(whole) < 3.4

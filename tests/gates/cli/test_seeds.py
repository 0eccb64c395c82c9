"""`--seed random` draws a seed; the printed and the recorded command repeat the run."""

from pathlib import Path

import pytest
import typer
from command_line import here

from gates.cli import seeds
from gates.model import ConfigurationError
from gates.results.jsonl import Results, Writer, read

SUBJECT = """import numpy as np


def group_advantages(rewards, group_size, *, scale, ddof, eps, eps_mode, baseline):
    return {"advantages": np.zeros_like(rewards)}


OPS = {"group_advantages": group_advantages}
CONVENTIONS = {"group_advantages": {"scale": ("group",), "eps_mode": ("add",), "baseline": ("mean",)}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose settings ask for a drawn seed."""
    (tmp_path / "mine.py").write_text(SUBJECT)
    (tmp_path / "pyproject.toml").write_text('[tool.gates]\nseed = "random"\nsubjects = ["mine.py"]\n')
    return tmp_path


def run(folder: Path, *more: str) -> tuple[str, Results]:
    """Judge the wrong subject and return stderr and the results."""
    done = here("check", "advantages.constant-group-is-zero", *more, "--no-minimise", "--jobs", "1", cwd=folder)
    assert done.returncode in {0, 1, 3}, done.stderr
    (file,) = (folder / "results" / "runs").glob("*.jsonl")
    results = read(file)
    file.unlink()
    return done.stderr, results


def test_a_drawn_seed_is_recorded_and_repeats_the_run(project: Path) -> None:
    """Two runs draw different seeds; the recorded command reuses the seed."""
    errors, first = run(project)
    assert f"seed {first.header.seed} was drawn" in errors
    assert first.header.command[:3] == ["check", "--seed", str(first.header.seed)]
    _, second = run(project, "--seed", "random")
    assert first.header.seed != second.header.seed
    errors, again = run(project, "--seed", str(first.header.seed))
    assert "was drawn" not in errors
    assert [v.seed for v in again.verdicts] == [v.seed for v in first.verdicts]


def test_a_resumed_run_reuses_its_seed(project: Path) -> None:
    _, first = run(project)
    writer = Writer(project / "cut.jsonl")
    for record in (first.header, *first.verdicts[:2]):
        writer.write(record)
    writer.close()
    command = [word for word in first.header.command if word not in {"--seed", str(first.header.seed)}]
    done = here(*command, "--seed", "random", "--resume", "cut.jsonl", cwd=project)
    assert "is not in its header's plan" not in done.stderr
    assert [v.seed for v in read(project / "cut.jsonl").verdicts] == [v.seed for v in first.verdicts]


def test_a_random_seed_cannot_be_sharded(project: Path) -> None:
    done = here("check", "kl.k1", "--shard", "1/2", cwd=project)
    assert done.returncode == 2
    assert "the parts must agree; draw one for all, such as --seed " in done.stderr


@pytest.mark.parametrize("text", ["-1", "1.5", "Random", "", "٣"])
def test_invalid_seeds_are_refused(text: str) -> None:
    """A seed is a non-negative integer or `random`."""
    with pytest.raises(typer.BadParameter, match="must be a number from 0 on, or random"):
        seeds.parse(text)


def test_the_seed_is_placed_before_a_double_dash() -> None:
    """After `--` it would be read as a gate."""
    drawn = seeds.draw()
    arguments = ["check", "--seed=random", "--quick", "--", "kl"]
    assert seeds.command(arguments, drawn) == ["check", "--seed", str(drawn), "--quick", "--", "kl"]
    assert seeds.command(arguments, 3) == arguments


def test_a_given_seed_can_be_sharded() -> None:
    """The command line takes precedence over the project."""
    assert seeds.chosen(4, "random", shard="1/2") == 4
    with pytest.raises(ConfigurationError, match="the parts must agree"):
        seeds.chosen(None, "random", shard="1/2")

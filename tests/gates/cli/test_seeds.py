"""`--seed random` draws a seed, and what is printed and recorded repeats the run."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from command_line import gates

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
    """Judge the subject, which is wrong, and return what stderr says and the record."""
    done = gates("check", "advantages.constant-group-is-zero", *more, "--no-minimise", "--jobs", "1", cwd=folder)
    assert done.returncode in {0, 1, 3}, done.stderr
    (file,) = (folder / "results" / "runs").glob("*.jsonl")
    found = read(file)
    file.unlink()
    return done.stderr, found


def test_a_drawn_seed_is_recorded_and_repeats_the_run(project: Path) -> None:
    """Two runs draw two seeds; the command of a header draws none and meets the same seeds of cases."""
    said, first = run(project)
    assert f"seed {first.header.seed} was drawn" in said
    assert first.header.command[:3] == ["check", "--seed", str(first.header.seed)]
    _, second = run(project, "--seed", "random")
    assert first.header.seed != second.header.seed
    said, again = run(project, "--seed", str(first.header.seed))
    assert "was drawn" not in said
    assert [v.seed for v in again.verdicts] == [v.seed for v in first.verdicts]


def test_a_resumed_run_goes_on_with_its_seed(project: Path) -> None:
    """Whether or not the command line has the number."""
    _, first = run(project)
    writer = Writer(project / "cut.jsonl")
    for record in (first.header, *first.verdicts[:2]):
        writer.write(record)
    writer.close()
    command = [word for word in first.header.command if word not in {"--seed", str(first.header.seed)}]
    done = gates(*command, "--seed", "random", "--resume", "cut.jsonl", cwd=project)
    assert "is not in its header's plan" not in done.stderr
    assert [v.seed for v in read(project / "cut.jsonl").verdicts] == [v.seed for v in first.verdicts]


def test_parts_need_a_number(project: Path) -> None:
    """The sentence has one to use."""
    done = gates("check", "kl.k1", "--shard", "1/2", cwd=project)
    assert done.returncode == 2
    assert "the parts must agree; draw one for all, such as --seed " in done.stderr


@pytest.mark.parametrize("text", ["-1", "1.5", "Random", "", "٣"])
def test_other_words_are_refused(text: str) -> None:
    """A number from 0 on, or the word."""
    with pytest.raises(typer.BadParameter, match="must be a number from 0 on, or random"):
        seeds.parse(text)


def test_the_seed_stands_before_what_ends_the_options() -> None:
    """After `--` it would be a gate."""
    drawn = seeds.draw()
    words = ["check", "--seed=random", "--quick", "--", "kl"]
    assert seeds.command(words, drawn) == ["check", "--seed", str(drawn), "--quick", "--", "kl"]
    assert seeds.command(words, 3) == words


def test_a_seed_that_was_named_may_be_sharded() -> None:
    """The command line wins over the project."""
    assert seeds.chosen(4, "random", shard="1/2") == 4
    with pytest.raises(ConfigurationError, match="the parts must agree"):
        seeds.chosen(None, "random", shard="1/2")

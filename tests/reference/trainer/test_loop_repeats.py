"""A prompt that stands twice in one rollout, as where a step goes over the end of an epoch: two groups, all draws different."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs

from gates_reference.trainer import rollout as rollouts
from gates_reference.trainer import sampling
from gates_reference.trainer.config import algorithm, read, sections
from gates_reference.trainer.data.prompts import Prompt
from gates_reference.trainer.engine import rollout as engine_rollout
from gates_reference.trainer.loop import run as loop_run
from gates_reference.trainer.metrics.callbacks import Callback

PROMPTS = [Prompt(index, "", np.array([index, 3], np.int32), None, {}) for index in (1, 4, 7)]
"""Their indices are not their places: rows were dropped, or set apart for validation."""


def _rows(chosen: list[int], samples: int = 2) -> tuple[list[list[int]], int]:
    asked = engine_rollout.request(PROMPTS, chosen, sections.Rollout(samples_per_prompt=samples), [0], 5)
    return asked.rows.tolist(), asked.samples


class TestRequest:
    """The keys of the draws, (prompt, sample), written by hand."""

    def test_without_a_repetition_samples_count_from_0(self) -> None:
        assert _rows([2, 0]) == ([[7, 0], [7, 1], [1, 0], [1, 1]], 2)

    def test_a_later_occurrence_goes_on_counting(self) -> None:
        """The second and the third have samples of their own, in the order of the step."""
        keys = [[4, 0], [4, 1], [1, 0], [1, 1], [4, 2], [4, 3], [4, 4], [4, 5]]
        assert _rows([1, 0, 1, 1]) == (keys, 6)

    def test_nothing_is_asked_for(self) -> None:
        assert _rows([]) == ([], 2)


def _config(folder: Path, **rollout: Any) -> read.Config:
    """Three prompts, of which every step of four holds one twice."""
    return runs.config(
        folder,
        data={"count": 3, "validation_rows": 0},
        rollout=rollout,
        loop={"prompts_per_step": 4, "evaluate_every_steps": 0},
    )


@pytest.mark.parametrize("path", ["naive", "cached", "prefix", "batched", "compiled"])
def test_no_two_completions_share_their_draws(tmp_path: Path, path: str) -> None:
    """On every path the uniforms are those of the keys, all rows differ, and so do the groups of the prompt that repeats."""
    config = _config(tmp_path / "run", path=path)
    run = loop_run.Run(config, algorithm.create(config), resume=False)
    upcoming = run._upcoming()
    source = run.source
    request = engine_rollout.request(source.prompts, upcoming, config.rollout, source.eos_ids, 0)
    result = rollouts.run(run.model, request, path)
    generation = run.engine.generate(upcoming, 0)
    run.close()
    (repeated,) = {prompt for prompt in upcoming if upcoming.count(prompt) == 2}
    first, second = (n for n, prompt in enumerate(upcoming) if prompt == repeated)
    by_hand = [[prompt, j + (4 if n == second else 0)] for n, prompt in enumerate(upcoming) for j in range(4)]
    u = sampling.uniforms(config.rollout.seed, 0, np.array(by_hand), 0)
    assert len(set(u.tolist())) == 16
    assert result.uniforms[:, 0].tolist() == u.tolist()
    tokens = generation.tokens.reshape(4, 4, -1)
    assert (tokens[first] != tokens[second]).any()
    assert [sample.group for sample in generation.samples] == np.repeat(np.arange(4), 4).tolist()
    assert generation.prompts[first].index == generation.prompts[second].index


class StopAfter(Callback):
    """Ends a run after a step, before its checkpoint."""

    def __init__(self, step: int) -> None:
        self._step = step

    def step(self, step: int, numbers: object, times: object) -> None:
        if step == self._step:
            raise KeyboardInterrupt


def test_resuming_gives_the_same_bytes(tmp_path: Path) -> None:
    """What a prompt's later occurrence draws depends on its own step alone."""
    runs.train(_config(tmp_path / "whole"))
    cut = _config(tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        runs.train(cut, told=[StopAfter(3)])
    runs.train(cut, resume=True)
    assert runs.digests(tmp_path / "cut") == runs.digests(tmp_path / "whole")

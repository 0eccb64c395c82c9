"""Dynamic sampling: groups that teach nothing are drawn again, within limits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs
from plain_grpo import PlainGrpo

from gates_reference.trainer.algorithms import protocol
from gates_reference.trainer.loop import run as loop_run


class TestDynamicSampling:
    """Groups that the algorithm drops are replaced by fresh ones, up to a limit."""

    @staticmethod
    def one(keep: list[bool]) -> PlainGrpo:
        answers = iter(keep)

        class Keeping(PlainGrpo):
            def keep(self, rewards: protocol.Rewards) -> np.ndarray:
                return np.array([next(answers) for _ in range(len(rewards.values) // rewards.group_size)])

        return Keeping()

    @pytest.mark.parametrize(
        ("keep", "resamples", "kept", "rollouts", "taken"),
        [
            pytest.param([True, True], 2, 2, 1, 2, id="all-kept"),
            pytest.param([True, False, False, True], 2, 2, 2, 4, id="one-more"),
            pytest.param([False] * 6, 2, 0, 3, 6, id="limit"),
            pytest.param([False, True, True, True], 2, 2, 2, 4, id="surplus"),
            pytest.param([True, False], 0, 1, 1, 2, id="off"),
        ],
    )
    def test_resampling(
        self, tmp_path: Path, keep: list[bool], resamples: int, kept: int, rollouts: int, taken: int
    ) -> None:
        """Rollouts go on until enough groups are kept or the limit is reached; data and rounds move on for all of them."""
        config = runs.config(
            tmp_path / "run", algorithm={"max_resamples": resamples}, loop={"steps": 1, "evaluate_every_steps": 0}
        )
        run = loop_run.Run(config, self.one(keep), resume=False)
        run.train([])
        run.close()
        (line,) = runs.lines(tmp_path / "run")
        assert (line["groups_kept"], line["rollouts"]) == (kept, rollouts)
        assert line["groups_kept"] + line["groups_dropped"] == taken
        assert (run.position.taken, run.position.round) == (taken, rollouts)

    def test_prompts_and_rounds_are_fresh(self, tmp_path: Path) -> None:
        """A resample asks for the next prompts of the order in a round of its own."""
        config = runs.config(tmp_path / "run", algorithm={"max_resamples": 1})
        run = loop_run.Run(config, self.one([False, False, True, True]), resume=False)
        asked: list[tuple[list[int], int]] = []
        source = type(run.source)
        original = source.once

        def spy(self: Any, model: Any, chosen: Any, round_: int) -> Any:
            asked.append((list(chosen), round_))
            return original(self, model, chosen, round_)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(source, "once", spy)
            run.engine.generate(run._upcoming(), 7)
        run.close()
        assert [round_ for _, round_ in asked] == [7, 8]
        assert asked[0][0] + asked[1][0] == run._upcoming()
        assert len(set(asked[0][0] + asked[1][0])) == 4

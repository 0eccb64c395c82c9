"""A mutant that is an edit of a program computes the edited definition in the data's dtype, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gates.families.advantages.program import GROUP
from gates.families.edited import edited
from gates.families.preference.program import PAIRS
from gates.model import Array
from reference.oracle import advantages as oracle
from reference.oracle import preference

TRL: dict[str, Any] = {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"}


def host(**inputs: Any) -> Array:
    """Stand for the op of a host; its result is recognised."""
    del inputs
    return np.array([7.0])


class TestEdited:
    """The edit is looked up by its words among those of the choices that a call asks for."""

    rewards = np.random.default_rng(0).normal(size=12).astype(np.float32)

    @pytest.mark.parametrize("scale", ["group", "batch"])
    def test_the_edit_that_acts(self, scale: str) -> None:
        """Of two edits the one for the scale that is asked is made; the result is float32 like the rewards."""
        patched = edited(GROUP, "group z-score with ddof 0", "batch z-score with ddof 0")(host)
        found = patched(rewards=self.rewards, group_size=4, **{**TRL, "scale": scale})
        wanted = oracle.group_advantages(self.rewards, 4, **{**TRL, "scale": scale, "ddof": 0})
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=1e-6)

    def test_an_edit_that_does_not_act(self) -> None:
        """Where ddof 0 is asked for, no edit makes it 0: the host's own result is returned."""
        patched = edited(GROUP, "group z-score with ddof 0")(host)
        assert patched(rewards=self.rewards, group_size=4, **{**TRL, "ddof": 0}) == np.array([7.0])

    def test_a_gradient(self) -> None:
        """It is the derivative of the edited loss."""
        rng = np.random.default_rng(1)
        policy, reference = (-rng.gamma(1.5, 0.8, (4, 5)).astype(np.float32) for _ in range(2))
        asked = {"policy": policy, "reference": reference, "mask": np.ones((4, 5), bool), "loss": "dpo", "beta": 0.5}
        asked |= {"label_smoothing": 0.0, "lengths": None, "penalty": None, "margin": None, "nll": None}
        found = edited(PAIRS, "chosen and rejected swapped")(host)(**asked)
        turned = {**asked, "policy": policy[[1, 0, 3, 2]], "reference": reference[[1, 0, 3, 2]]}
        wanted = preference.preference_loss(**turned)
        np.testing.assert_allclose(found["loss"], wanted.loss, rtol=1e-6)
        np.testing.assert_allclose(found["gradient"], wanted.gradient[[1, 0, 3, 2]], rtol=1e-5)

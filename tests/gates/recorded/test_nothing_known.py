"""A step of 1,000 tokens that nothing explains is searched in seconds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from steps import EXAMPLE, verdicts, write

from gates.diagnosis import search
from gates_reference.oracle import losses

SETTINGS: dict[str, Any] = {"algorithm": "gspo", "epsilon_low": 0.2, "epsilon_high": 0.2, "beta": 0.04}
MOST = 1500  # evaluations with limits: 5 to 8 ms each on one core


def unknown() -> dict[str, np.ndarray]:
    """Return a step of 910 tokens whose loss and gradient are no formula's."""
    rng = np.random.default_rng(0)
    old = -rng.exponential(1.0, (8, 125))
    arrays = {"old": old, "policy": old + rng.normal(0, 0.15, old.shape), "sampling": old}
    arrays["reference"] = old + rng.normal(0, 0.3, old.shape)
    step = {name: np.minimum(x, 0).astype(np.float32) for name, x in arrays.items()}
    step["mask"] = np.arange(125) < np.array([60, 125, 125, 125, 125, 100, 125, 125])[:, None]
    step["rewards"] = rng.integers(0, 3, 8).astype(np.float32)
    step["advantages"] = EXAMPLE.advantages(step["rewards"], 1)
    names = ("policy", "old", "reference", "advantages", "mask")
    more = {"delta": None, "kl_ratio": "none", "kl_estimator": "k3"}
    right = losses.policy_loss(**{name: step[name] for name in names}, **SETTINGS, **more)
    step["loss"] = np.asarray(1.37 * right.loss + 0.01, np.float32)
    step["gradient"] = (right.gradient * np.exp(rng.normal(0, 0.5, old.shape))).astype(np.float32)
    return step


@pytest.mark.slow
def test_pairs_that_are_near_by_chance_do_not_cost_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one loss thousands of pairs of edits are near; the limits of the nearest ones are computed."""
    count, evaluate = 0, search.evaluate

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return evaluate(*arguments)

    monkeypatch.setattr(search, "evaluate", counted)
    settings = {name: str(value) for name, value in SETTINGS.items()}
    path = write(tmp_path / "step.safetensors", unknown(), settings, without=("metric.kl",))
    finding = verdicts(path)["policy_loss"]
    assert (finding.status, finding.computes) == ("wrong", "nothing that is known")
    assert count < MOST

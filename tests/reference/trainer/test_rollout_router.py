"""Mixtures of experts: how near a token was to other experts, and what a comparison of two paths makes of it."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from gates.families.rollout.equivalence import Comparison
from gates.families.rollout.prompts import encoded
from gates.families.rollout.runs import sampler
from gates.subjects.mlx_trainer import rollout, subject
from gates_reference.trainer import model as models

FAMILIES = ["qwen3_moe", "qwen3_next"]
PROMPTS = [encoded("12+7="), encoded("Ann has 3 apples.")]


def _run(family: str, **changes: Any) -> dict[str, Any]:
    keywords = {
        "model": {"family": family},
        "prompts": PROMPTS,
        "samples": 4,
        "max_tokens": 6,
        "temperature": 1.0,
        "seed": 5,
        "eos_ids": np.zeros(0, int),
        "record_logits": True,
        "path": "naive",
    }
    return subject.OPS["rollout"](**keywords | changes)


def _batch(family: str, run: dict[str, Any]) -> dict[str, Any]:
    prompts = [PROMPTS[i] for i, _ in run["rows"]]
    return {"model": {"family": family}, "prompt_tokens": prompts, "tokens": run["tokens"], "lengths": run["lengths"]}


@pytest.mark.parametrize("family", FAMILIES)
class TestGaps:
    """What `token_logits` says of a model that chooses experts."""

    def test_gap_is_the_distance_to_another_expert(self, family: str) -> None:
        """Nudging every router by less than the gap changes no logit much; the gap never grows along a row."""
        run = _run(family)
        found = subject.OPS["token_logits"](**_batch(family, run))
        gaps = found["router_gaps"]
        assert gaps.shape == run["tokens"].shape
        assert (gaps > 0).all()
        assert (np.diff(gaps, axis=1) <= 0).all()

    def test_gap_of_one_token_by_hand(self, family: str) -> None:
        """For a text of two tokens the gap is the least over layers and tokens of p(2nd) - p(3rd), by NumPy."""
        model = models.load({"family": family}).model
        seen: list[np.ndarray] = []
        blocks = [m for m in model.modules() if "gate" in m and "switch_mlp" in m]
        assert blocks
        with rollout._router_gaps(model):
            for block in blocks:
                inner = block.gate.router
                block.gate.router = lambda x, inner=inner: seen.append(np.array(inner(x))) or inner(x)
            model(mx.array([[5, 9]]))
        assert all("router" not in block.gate for block in blocks)
        x = np.concatenate(seen).astype(np.float64).reshape(-1, 4)
        p = np.sort(np.exp(x) / np.exp(x).sum(axis=1, keepdims=True), axis=1)
        one = {"prompt_tokens": [np.array([5, 9])], "tokens": np.array([[7]]), "lengths": np.array([1])}
        found = subject.OPS["token_logits"](model={"family": family}, **one)["router_gaps"]
        assert found[0, 0] == pytest.approx((p[:, -2] - p[:, -3]).min(), abs=1e-6)

    def test_float64_gathers_experts(self, family: str) -> None:
        """The float64 forward differs from float32 by its noise only, and needs no GatherMM of MLX."""
        run = _run(family)
        low, high = (
            subject.OPS["token_logits"](**_batch(family, run), dtype=dtype)["logits"]
            for dtype in ("float32", "float64")
        )
        assert 0 < np.abs(low - high).max() < 5e-4


class TestRerouted:
    """Clause 8 of the definition."""

    def _compare(self, gap: float | None) -> Comparison:
        """Compare a run with itself but for one draw whose logits are far off, as other experts would make them."""
        slow = _run("qwen3_moe")
        fast = {name: np.copy(value) if isinstance(value, np.ndarray) else value for name, value in slow.items()}
        token = fast["tokens"][3, 2]
        fast["logits"][3, 2:, token] += 0.01
        found = Comparison(1e-4, sampler(1.0, 1.0))
        gaps = None if gap is None else np.where(np.arange(6) >= 2, gap, 0.5) * np.ones((8, 1))
        found.add(slow, fast, seed=5, round_=0, gaps=lambda: gaps)
        return found

    def test_a_small_gap_explains(self) -> None:
        """The row is cut and counts as one explained difference; its error is not the paths'."""
        found = self._compare(1e-5)
        assert (found.unexplained, found.differences) == (0, 1)
        assert found.largest_error == 0

    @pytest.mark.parametrize("gap", [None, 0.01], ids=["dense", "far"])
    def test_a_large_gap_does_not(self, gap: float | None) -> None:
        """A model without experts, or a choice that was not near another, leaves the draws unexplained."""
        found = self._compare(gap)
        assert found.unexplained >= 4
        assert found.largest_error > 1e-3


def test_a_router_that_returns_its_choice_is_left_alone() -> None:
    """deepseek_v3's returns no scores; its logits come without gaps, as those of a model without experts."""
    run = subject.rollout(
        model={"family": "deepseek_v3"},
        prompts=PROMPTS[:1],
        samples=2,
        max_tokens=4,
        temperature=1.0,
        eos_ids=np.zeros(0, np.int64),
        path="naive",
        record_logits=True,
    )
    batch = {"prompt_tokens": PROMPTS[:1] * 2, "tokens": run["tokens"], "lengths": run["lengths"]}
    found = subject.token_logits(model={"family": "deepseek_v3"}, **batch)
    assert found.keys() == {"logits"}
    assert np.abs(found["logits"] - run["logits"]).max() < 1e-3


class TestOwnNoise:
    """Clause 2, where the slow path itself is far from float64."""

    def _compare(self, noise: float) -> tuple[Comparison, list[int]]:
        """Compare a run with itself but for one draw that is off by 0.01, in a row of which the naive path is off by `noise`."""
        slow = _run("qwen3_next")
        fast = {name: np.copy(value) if isinstance(value, np.ndarray) else value for name, value in slow.items()}
        fast["logits"][3, 2, fast["tokens"][3, 2]] += 0.01
        found, asked = Comparison(1e-4, sampler(1.0, 1.0)), []

        def own() -> Any:
            asked.append(1)
            return np.where(np.arange(8)[:, None] == 3, noise, 0.0) * np.ones((1, 6))

        found.add(slow, slow, seed=5, round_=0, noise=own)
        assert not asked, "where every draw is within the limit nobody asks for float64"
        found.add(slow, fast, seed=5, round_=0, noise=own)
        return found, asked

    def test_a_row_that_is_noisy_by_itself_has_its_own_limit(self) -> None:
        """Eight times the naive path's own error; what is reported is a share of that, on the scale of E."""
        found, asked = self._compare(2e-3)
        assert (found.unexplained, len(asked)) == (0, 1)
        assert 0.3e-4 < found.largest_error < 1e-4

    def test_noise_in_other_rows_excuses_nothing(self) -> None:
        """A row in which the naive path is near float64 keeps the limit."""
        found, _ = self._compare(1e-5)
        assert found.unexplained >= 1
        assert found.largest_error > 1e-3

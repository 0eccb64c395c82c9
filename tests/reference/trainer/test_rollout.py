"""Rollouts: both paths, their books, and what they share with one full forward."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gates.families.rollout.prompts import recipe, token_ids
from gates.subjects.mlx_trainer import subject
from gates_reference import tiny
from gates_reference.trainer.rollout import table

PROMPTS = token_ids(recipe(4, 6, "worded"))
ADAPTER = {"rank": 2, "scale": 2.0, "seed": 1, "b_std": 0.1}
EOS = np.arange(30, 36)
"""A share of the vocabulary, so that rows of random text end at every step."""
BITS = 5e-4
"""Float32 logits of the tiny model by two routes: 2e-5 seen (both BLAS), the gain of the weights amplifies roundings."""


def _rollout(path: str, **changes: object) -> dict:
    keywords = {
        "model": {},
        "prompts": PROMPTS,
        "samples": 4,
        "max_tokens": 12,
        "temperature": 0.8,
        "top_p": 0.95,
        "seed": 4,
        "round": 1,
        "eos_ids": EOS,
        "record_logits": True,
        "path": path,
    }
    return subject.rollout(**keywords | changes)


def _row_prompts(run: dict) -> list[np.ndarray]:
    return [PROMPTS[i] for i, _ in run["rows"]]


@pytest.fixture(scope="module")
def naive() -> dict:
    """The naive rollout of ragged worded prompts, four samples each."""
    return _rollout("naive")


class TestNaive:
    """The slow path, which defines the answer."""

    def test_the_batch_has_what_the_other_tests_need(self, naive: dict) -> None:
        """Prompts are ragged, rows end at many steps and some never end, and samples of a prompt differ."""
        assert len({len(prompt) for prompt in PROMPTS}) >= 4
        assert len(set(naive["lengths"].tolist())) >= 4
        assert 0 < naive["ended"].sum() < 24
        assert len({tuple(row) for row in naive["tokens"].tolist()}) >= 20

    def test_rows_are_prompt_major(self, naive: dict) -> None:
        """All samples of prompt 0 come first."""
        assert naive["rows"].tolist() == [[i, j] for i in range(6) for j in range(4)]

    def test_logits_are_those_of_a_numpy_forward(self, naive: dict, exact_logits: Callable) -> None:
        """Every recorded logit is within float32's noise of a float64 NumPy forward of the same text."""
        for row in (0, 7, 23):
            prompt, length = _row_prompts(naive)[row], naive["lengths"][row]
            text = [*prompt, *naive["tokens"][row, :length]]
            want = exact_logits(tiny.build({}), text)[len(prompt) - 1 : -1]
            assert np.abs(naive["logits"][row, :length] - want).max() < BITS

    def test_another_round_draws_other_tokens(self, naive: dict) -> None:
        assert not np.array_equal(_rollout("naive", round=2)["tokens"], naive["tokens"])


class TestBatched:
    """The fast path against the slow one."""

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"temperature": 0.0},
            {"eos_ids": np.zeros(0, int)},
            {"model": {"bits": 4}},
            {"adapter": ADAPTER},
            {"top_k": 7, "min_p": 0.1},
            {"order": "mlx-lm", "top_k": 40, "xtc_probability": 0.5, "repetition_penalty": 1.2},
        ],
        ids=["sampled", "greedy", "no-eos", "4-bit", "adapter", "filters", "every-filter"],
    )
    @pytest.mark.parametrize("path", ["batched", "compiled"])
    def test_equals_naive(self, path: str, changes: dict) -> None:
        """Ragged prompts, cached and compacted, draw the tokens of one full forward per token."""
        slow, fast = _rollout("naive", **changes), _rollout(path, **changes)
        for name in ("rows", "tokens", "lengths", "ended", "uniforms"):
            assert np.array_equal(slow[name], fast[name]), name
        assert np.abs(slow["logits"] - fast["logits"]).max() < BITS

    def test_row_books(self) -> None:
        """Rows are prompt-major, keys ignore positions, and an ended row stays ended."""
        assert table.prompt_of_row(np.arange(6), 2, 3).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
        pairs = np.array([[1, 2], [0, 1]])
        assert table.draw_index(pairs, np.arange(2)).tolist() == pairs.tolist()
        ended = table.finished(np.array([5, 9, 5]), np.array([9]), np.array([True, False, False]))
        assert ended.tolist() == [True, True, False]


class TestLogprobs:
    """What a full forward says about tokens that were rolled out."""

    @pytest.mark.parametrize("adapter", [None, ADAPTER], ids=["base", "adapter"])
    @pytest.mark.parametrize("bits", [32, 4])
    def test_float64_is_close_to_float32(self, naive: dict, bits: int, adapter: dict | None) -> None:
        """The float64 forward agrees with the float32 one to its noise, and is no copy of it."""
        batch = {k: naive[k] for k in ("tokens", "lengths")} | {
            "prompt_tokens": _row_prompts(naive),
            "model": {"bits": bits},
        }
        low, high = (
            subject.token_logits(**batch, dtype=dtype, adapter=adapter)["logits"] for dtype in ("float32", "float64")
        )
        assert (low.dtype, high.dtype) == (np.float32, np.float64)
        assert 0 < np.abs(low - high).max() < BITS
        assert (high[np.arange(12) >= naive["lengths"][:, None]] == 0).all()

    def test_float64_is_the_numpy_forward(self, naive: dict, exact_logits: Callable) -> None:
        """The float64 logits are those of NumPy to 1e-5: all but the rotary angles, which MLX keeps in float32."""
        run = subject.token_logits(
            model={},
            prompt_tokens=_row_prompts(naive),
            tokens=naive["tokens"],
            lengths=naive["lengths"],
            dtype="float64",
        )["logits"]
        prompt, length = _row_prompts(naive)[9], naive["lengths"][9]
        want = exact_logits(tiny.build({}), [*prompt, *naive["tokens"][9, :length]])[len(prompt) - 1 : -1]
        assert np.abs(run[9, :length] - want).max() < 1e-5


class TestInputs:
    """Every form in which models may be given, and what cannot be rolled out."""

    def test_logits_come_only_if_asked(self) -> None:
        assert "logits" not in _rollout("batched", samples=1, max_tokens=3, record_logits=False)

    def test_a_folder_in_place_of_a_recipe(self, naive: dict) -> None:
        """`{"path": folder}` loads any model in the Hugging Face layout, here the recipe's own."""
        run = _rollout("naive", model={"path": str(tiny.build({}))})
        assert np.array_equal(run["tokens"], naive["tokens"])

    def test_a_folder_that_is_not_there_is_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A path without a model raises and asks no network."""
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises((FileNotFoundError, OSError, ValueError)):
            _rollout("naive", model={"path": str(tmp_path / "none")})

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"rows": np.array([[6, 0]])}, ValueError),
            ({"prompts": [np.zeros(0, int)]}, ValueError),
            ({"path": "imagined"}, NotImplementedError),
        ],
        ids=["row-outside", "empty-prompt", "path"],
    )
    def test_what_cannot_be_rolled_out_is_said(self, changes: dict, error: type[Exception]) -> None:
        """Rows outside the table, empty prompts and unknown paths raise."""
        with pytest.raises(error):
            _rollout(**{"path": "batched"} | changes)

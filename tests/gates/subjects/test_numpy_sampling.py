"""The NumPy baseline's sampler on hand-worked distributions, and its random numbers on published vectors."""

import math
from typing import Any

import numpy as np
import pytest

from gates.subjects.numpy_baseline import sampling as subject

WORKED = np.log([[0.5, 0.2, 0.12, 0.08, 0.06, 0.04]])
OFF: dict[str, Any] = {"order": "hf", "temperature": 1.0}


def kept(logits: Any, **choice: Any) -> list[int]:
    logprobs = subject.filtered_logprobs(np.asarray(logits, np.float64), **{**OFF, **choice})
    np.testing.assert_allclose(np.exp(logprobs).sum(axis=1), 1.0, rtol=1e-14)
    return np.flatnonzero(logprobs[0] > -math.inf).tolist()


class TestFilters:
    """The tokens that stay."""

    @pytest.mark.parametrize(
        ("choice", "ids"),
        [
            pytest.param({}, [0, 1, 2, 3, 4, 5], id="none"),
            pytest.param({"top_k": 2}, [0, 1], id="top-k"),
            pytest.param({"top_p": 0.69}, [0, 1], id="top-p"),
            pytest.param({"top_p": 0.71}, [0, 1, 2], id="top-p-reaches"),
            pytest.param({"top_p": 0.0}, [0], id="top-p-keeps-one"),
            pytest.param({"min_p": 0.2}, [0, 1, 2], id="min-p"),
            pytest.param(
                {"xtc_probability": 0.5, "xtc_threshold": 0.1, "xtc_coin": np.array([0.4])}, [2, 3, 4, 5], id="xtc"
            ),
            pytest.param(
                {"xtc_probability": 0.5, "xtc_threshold": 0.1, "xtc_coin": np.array([0.5])},
                [0, 1, 2, 3, 4, 5],
                id="xtc-rests",
            ),
            # τ = 2: square roots .707 .447 .346 .283 .245 .2 over 2.229: .317 .518 .673 .80
            pytest.param({"temperature": 2.0, "top_p": 0.69}, [0, 1, 2, 3], id="hf-order"),
            pytest.param({"temperature": 2.0, "top_p": 0.69, "order": "mlx-lm"}, [0, 1], id="mlx-lm-order"),
            pytest.param({"temperature": 0.0, "top_k": 3}, [0], id="greedy"),
        ],
    )
    def test_hand_worked_sets(self, choice: dict[str, Any], ids: list[int]) -> None:
        """Probabilities .5 .2 .12 .08 .06 .04."""
        assert kept(WORKED, **choice) == ids

    def test_ties(self) -> None:
        """Of four equal tokens two are needed: the first two stay, the last two or all."""
        equal = np.zeros((1, 4))
        for choice in ({"top_k": 2}, {"top_p": 0.5}):
            assert kept(equal, **choice, ties="lower-id") == [0, 1]
            assert kept(equal, **choice, ties="all") == [0, 1, 2, 3]
        assert (kept(equal, top_k=2), kept(equal, top_p=0.5)) == ([0, 1, 2, 3], [2, 3])
        mlx = {"order": "mlx-lm"}
        assert (kept(equal, top_k=2, **mlx), kept(equal, top_p=0.5, **mlx)) == ([0, 1], [0, 1, 2, 3])

    def test_penalty_divides_positive_logits(self) -> None:
        """2 becomes 1 and -1 becomes -2; -1 in the history is padding."""
        logprobs = subject.filtered_logprobs(
            np.array([[2.0, -1.0, 1.0]]), **OFF, repetition_penalty=2.0, history=np.array([[0, 1, -1, 0]])
        )
        weights = np.exp([1.0, -2.0, 1.0])
        np.testing.assert_allclose(logprobs[0], np.log(weights / weights.sum()), rtol=1e-14)

    @pytest.mark.parametrize(
        ("choice", "message"),
        [
            ({"order": "vllm"}, "`order` is 'vllm'"),
            ({"temperature": -1.0}, "`temperature` is -1.0"),
            ({"top_p": 1.5}, "`top_p` is 1.5"),
            ({"top_k": -1}, "`top_k` is -1"),
            ({"xtc_probability": 0.5}, "`xtc_coin` is None"),
            ({"repetition_penalty": 1.5}, "`repetition_penalty` is 1.5"),
            ({"repetition_penalty": 1.5, "history": np.array([[6]])}, "`history` is 6"),
        ],
    )
    def test_errors_name_the_argument(self, choice: dict[str, Any], message: str) -> None:
        """Parameters outside their range, or without those they need, are refused."""
        with pytest.raises(ValueError, match=message):
            kept(WORKED, **choice)


class TestDraw:
    """From uniforms to tokens."""

    @pytest.mark.parametrize(
        ("u", "token"), [(0.0, 1), (0.19, 1), (0.2 / 0.32 - 1e-12, 1), (0.2 / 0.32 + 1e-12, 2), (1 - 2**-53, 2)]
    )
    def test_hand_worked_intervals(self, u: float, token: int) -> None:
        """With tokens 1 and 2 left, .2 and .12: the border lies at .625, and u = 0 picks no removed token."""
        logits = np.where(np.isin(np.arange(6), [1, 2]), WORKED, -math.inf)
        tokens, logprobs = subject.sample_tokens(logits, np.array([u]), **OFF)
        assert tokens.tolist() == [token]
        assert math.exp(logprobs[0]) == pytest.approx({1: 0.625, 2: 0.375}[token], rel=1e-14)

    def test_uniforms_are_in_range(self) -> None:
        """A uniform of 1.0 is refused."""
        with pytest.raises(ValueError, match="`uniforms` holds"):
            subject.sample_tokens(WORKED, np.array([1.0]), **OFF)


class TestPhilox:
    """Random numbers."""

    def test_published_vector(self) -> None:
        """Digits of pi as counter and key, as Random123 has them."""
        counter = np.array([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], np.uint32)
        got = subject.philox4x32_10(counter, np.array([0xA4093822, 0x299F31D0], np.uint32))
        assert got.tolist() == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
        assert got.dtype == np.uint32

    def test_uniform_and_coin_by_hand(self) -> None:
        """All zero: the words 6627e8d5 e169c58d bc57ac4c 9b00dbd8, 53 bits of each pair."""
        assert subject.uniforms(0, 0, 0, 0, 0) == (0x6627E8D5E169C58D >> 11) / 2**53
        assert subject.xtc_coins(0, 0, 0, 0, 0) == (0xBC57AC4C9B00DBD8 >> 11) / 2**53

    def test_errors_name_the_argument(self) -> None:
        """A word of 33 bits, a seed of 65, a key of three words."""
        for call, message in (
            (lambda: subject.uniforms(0, 1 << 32, 0, 0, 0), "`counter` is 4294967296"),
            (lambda: subject.uniforms(1 << 64, 0, 0, 0, 0), "`seed` is"),
            (lambda: subject.philox4x32_10(np.zeros(4, int), np.zeros(3, int)), "must be"),
        ):
            with pytest.raises(ValueError, match=message):
                call()

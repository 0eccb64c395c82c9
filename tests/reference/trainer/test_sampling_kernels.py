"""The fast sampler against the readable one and against the oracle: every filter, both orders, hostile rows."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates_reference.oracle import logprobs as oracle_logprobs
from gates_reference.oracle import sampling as oracle
from gates_reference.trainer import sampling
from gates_reference.trainer.rollout import sampler, table

ROWS, VOCABULARY, PROMPT = 6, 40, 3
CHOICES: dict[str, dict[str, Any]] = {
    "plain": {},
    "cold": {"temperature": 0.5},
    "greedy": {"temperature": 0.0},
    "top-k": {"top_k": 7, "temperature": 1.5},
    "top-k-beyond-vocabulary": {"top_k": 1000},
    "top-p": {"top_p": 0.8, "temperature": 1.5},
    "min-p": {"min_p": 0.0625, "temperature": 0.75},
    "xtc": {"xtc_probability": 0.5, "xtc_threshold": 0.03125},
    "penalty": {"repetition_penalty": 1.375},
    "greedy-penalty": {"repetition_penalty": 1.375, "temperature": 0.0},
    "all": {
        "top_k": 30,
        "top_p": 0.9375,
        "min_p": 0.015625,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.03125,
        "repetition_penalty": 1.25,
        "temperature": 1.25,
    },
}


def _request(choice: dict[str, Any], order: str) -> table.Request:
    prompts = [np.array([3, 5, 3], np.int32), np.array([8], np.int32)]
    return table.Request(
        prompts=prompts,
        rows=np.array([[i, j] for i in range(2) for j in range(ROWS // 2)]),
        samples=ROWS // 2,
        max_tokens=4,
        settings=sampling.Settings(**choice, order=order),
        eos_ids=np.zeros(0, np.int64),
        seed=9,
        round=2,
    )


def _logits(seed: int, scale: float = 3.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, scale, (ROWS, VOCABULARY)).astype(np.float32)


def _oracle_keywords(request: table.Request, step: int, said: np.ndarray) -> dict[str, Any]:
    keys = request.rows
    history = np.full((ROWS, PROMPT + step), -1)
    for row, (i, _) in enumerate(keys):
        text = np.concatenate([request.prompts[i], said[row, :step]])
        history[row, : len(text)] = text
    chosen = request.settings
    return {
        "order": chosen.order,
        "ties": "lower-id",
        "temperature": chosen.temperature,
        "top_k": chosen.top_k,
        "top_p": chosen.top_p,
        "min_p": chosen.min_p,
        "xtc_probability": chosen.xtc_probability,
        "xtc_threshold": chosen.xtc_threshold,
        "xtc_coin": oracle.xtc_coins(9, 2, keys[:, 0], keys[:, 1], np.full(ROWS, step)),
        "repetition_penalty": chosen.repetition_penalty,
        "history": history,
    }


@pytest.mark.parametrize("order", ["hf", "mlx-lm"])
@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
class TestThreeSamplers:
    """The readable sampler, the fast one and the oracle say the same."""

    def test_tokens_and_logprobs(self, choice: dict[str, Any], order: str) -> None:
        """Over four steps with a growing history: tokens are equal, and all three log-probs are the oracle's."""
        request = _request(choice, order)
        fast = sampler.Sampler(request, request.rows)
        said = np.full((ROWS, 4), -1)
        chosen = np.arange(ROWS)
        for step in range(4):
            logits = _logits(step)
            keywords = _oracle_keywords(request, step, said)
            u = oracle.uniforms(9, 2, request.rows[:, 0], request.rows[:, 1], np.full(ROWS, step))
            filtered = oracle.filtered_logprobs(logits, **keywords)
            tokens = oracle.draw(filtered, u)
            drawn, behaviour = fast.draw(logits, chosen, step)
            slow = sampling.sample(logits, u, request.settings, keywords["xtc_coin"], keywords["history"])
            assert drawn.tolist() == tokens.tolist()
            assert slow.tokens.tolist() == tokens.tolist()
            tau = request.settings.temperature
            want = {
                "model": oracle_logprobs.selective_log_softmax(logits, tokens, temperature=1.0),
                "temperature_scaled": np.zeros(ROWS)
                if tau == 0
                else oracle_logprobs.selective_log_softmax(logits, tokens, temperature=tau),
                "behaviour": filtered[chosen, tokens],
            }
            scored = fast.score(logits, drawn, behaviour)
            for name, values in want.items():
                assert np.abs(getattr(slow, name) - values).max() < 1e-12, name
                assert np.abs(getattr(scored, name) - values).max() < 2e-6, name  # float32 kernels, |lp| below 20
            said[:, step] = tokens

    def test_rows_do_not_depend_on_the_batch(self, choice: dict[str, Any], order: str) -> None:
        """Any subset of the rows in any order draws what it draws in the whole batch."""
        request = _request(choice, order)
        logits = _logits(7)
        whole, _ = sampler.Sampler(request, request.rows).draw(logits, np.arange(ROWS), 0)
        for chosen in (np.array([4]), np.array([5, 0, 3])):
            part, _ = sampler.Sampler(request, request.rows).draw(logits[chosen], chosen, 0)
            assert part.tolist() == whole[chosen].tolist()


class TestKeys:
    """The random numbers of the whole table, made at once."""

    def test_uniforms_and_coins_are_those_of_the_definition(self) -> None:
        """For every row and step the fast sampler's numbers are bit-equal to the readable sampler's."""
        request = _request({"xtc_probability": 0.5}, "hf")
        fast = sampler.Sampler(request, request.rows)
        assert fast.coins is not None
        for step in range(4):
            assert fast.uniforms[:, step].tolist() == sampling.uniforms(9, 2, request.rows, step).tolist()
            assert fast.coins[:, step].tolist() == sampling.coins(9, 2, request.rows, step).tolist()

    def test_coins_are_not_the_uniforms(self) -> None:
        """Words 2 and 3 are other words than 0 and 1."""
        rows = np.array([[0, 0], [1, 2]])
        assert not set(sampling.coins(9, 2, rows, 0)) & set(sampling.uniforms(9, 2, rows, 0))


class TestHostileRows:
    """Rows on which samplers go wrong."""

    @pytest.mark.parametrize("order", ["hf", "mlx-lm"])
    def test_ties_minus_infinity_and_huge_logits(self, order: str) -> None:
        """Equal logits, tokens of probability 0 and logits of 1e30 are drawn as the oracle draws them."""
        logits = np.zeros((ROWS, VOCABULARY), np.float32)
        logits[0, 5:] = -np.inf
        logits[1, 3] = 1e30
        logits[2] = -1e30
        logits[3, ::2] = 1.0
        request = _request({"top_k": 5, "top_p": 0.9}, order)
        u = oracle.uniforms(9, 2, request.rows[:, 0], request.rows[:, 1], np.zeros(ROWS, int))
        keywords = _oracle_keywords(request, 0, np.zeros((ROWS, 0), int))
        want = oracle.draw(oracle.filtered_logprobs(logits, **keywords), u).tolist()
        fast, _ = sampler.Sampler(request, request.rows).draw(logits, np.arange(ROWS), 0)
        assert fast.tolist() == want
        assert sampling.sample(logits, u, request.settings).tokens.tolist() == want

    def test_nan_logits_are_an_error(self) -> None:
        logits = _logits(1)
        logits[4, 11] = np.nan
        request = _request({}, "hf")
        with pytest.raises(ValueError, match=r"11"):
            sampler.Sampler(request, request.rows).draw(logits, np.arange(ROWS), 0)

    @settings(max_examples=60, deadline=None)
    @given(
        seed=st.integers(0, 2**32 - 1),
        scale=st.floats(0.01, 30.0),
        top_p=st.floats(0.05, 1.0),
        top_k=st.integers(0, VOCABULARY),
        temperature=st.floats(0.05, 4.0),
    )
    def test_any_filters(self, seed: int, scale: float, top_p: float, top_k: int, temperature: float) -> None:
        """Both samplers draw a token that the oracle admits, and the same one unless a threshold is within rounding."""
        choice = {"top_p": top_p, "top_k": top_k, "temperature": temperature}
        logits = _logits(seed, scale)
        for order in ("hf", "mlx-lm"):
            request = _request(choice, order)
            u = sampling.uniforms(9, 2, request.rows, 0)
            keywords = _oracle_keywords(request, 0, np.zeros((ROWS, 0), int)) | {"xtc_coin": None, "history": None}
            fast, _ = sampler.Sampler(request, request.rows).draw(logits, np.arange(ROWS), 0)
            slow = sampling.sample(logits, u, request.settings).tokens
            for tokens in (fast, slow):
                assert oracle.admissible(tokens, logits, u, 2.0**-40, **keywords).all()


class TestSettings:
    """What is refused, and by which name."""

    @pytest.mark.parametrize(
        "bad",
        [
            {"temperature": -1.0},
            {"top_p": 0.0},
            {"top_k": -1},
            {"min_p": 1.5},
            {"temperature": float("nan")},
            {"temperature": float("inf")},
            {"xtc_probability": 1.5},
            {"xtc_threshold": -0.1},
            {"repetition_penalty": 0.0},
            {"repetition_penalty": float("inf")},
            {"order": "vllm"},
            {"min_p": float("nan")},
        ],
        ids=str,
    )
    def test_out_of_range(self, bad: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(bad))):
            sampling.Settings(**bad)

    @pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
    def test_plain_means_that_nothing_acts(self, choice: dict[str, Any]) -> None:
        """`plain` and `penalises` follow from the values that differ from their defaults."""
        chosen = sampling.Settings(**choice)
        assert chosen.plain == (set(choice) <= {"temperature"} and chosen.temperature > 0)
        assert chosen.penalises == ("repetition_penalty" in choice)

    def test_a_filter_without_what_it_needs(self) -> None:
        """XTC without coins and a penalty without a history are errors of the readable sampler."""
        u = np.zeros(ROWS)
        for choice in ({"xtc_probability": 0.5}, {"repetition_penalty": 1.2}):
            with pytest.raises(ValueError, match=next(iter(choice))):
                sampling.sample(_logits(0), u, sampling.Settings(**choice))

    def test_orders_keep_other_sets(self) -> None:
        """The example of docs/definitions.md, "Sampling": temperature 2 with top-p 0.69 keeps 4 tokens in one order and 2 in the other."""
        logits = np.log([[0.5, 0.2, 0.12, 0.08, 0.06, 0.04]]).astype(np.float32)
        kept = {}
        for order, number in itertools.product(("hf", "mlx-lm"), range(200)):
            chosen = sampling.Settings(temperature=2.0, top_p=0.69, order=order)
            token = sampling.sample(logits, np.array([number / 200]), chosen).tokens[0]
            kept.setdefault(order, set()).add(int(token))
        assert kept == {"hf": {0, 1, 2, 3}, "mlx-lm": {0, 1}}


@pytest.mark.parametrize(
    ("weights", "u", "token"),
    [([0.0, 0.0, 1.0, 1.0], 0.0, 2), ([1.0, 3.0, 0.0], 1 - 2.0**-53, 1), ([1.0, 3.0], 0.25, 1)],
    ids=["zero-skips-filtered-tokens", "largest-stays-among-survivors", "boundary-is-the-next-token's"],
)
def test_draw_at_the_ends_of_intervals(weights: list[float], u: float, token: int) -> None:
    """The token is the first with C_k > u C_V, strictly; hand-made uniforms, as Philox seldom gives these."""
    assert sampling.draw(np.array([weights]), np.array([u])).tolist() == [token]


@pytest.mark.parametrize(
    ("weights", "choice", "kept"),
    [
        ((1, 4, 2, 1), {"top_p": 0.5}, [1]),  # 0.5 reaches 0.5
        ((1, 4, 2, 1), {"top_p": 0.8}, [0, 1, 2]),  # 0.5 + 0.25 < 0.8; of the two 0.125 the lower id
        ((1, 4, 2, 1), {"min_p": 0.5}, [1, 2]),  # 0.25 >= 0.5 * 0.5
        ((1, 4, 2, 1), {"top_k": 2, "top_p": 0.6}, [1]),  # renormalised: 0.5 / 0.75 >= 0.6
        ((1, 1, 1, 1), {"top_k": 2}, [0, 1]),
        ((1, 4, 2, 1), {"xtc_probability": 1.0, "xtc_threshold": 0.125}, [0, 2, 3]),  # 0.125 is not above 0.125
    ],
)
def test_filters_at_their_thresholds(weights: tuple[int, ...], choice: dict[str, float], kept: list[int]) -> None:
    """Equality at a bound, which no random row has."""
    left = sampling.keep(np.array([weights]) / sum(weights), sampling.Settings(**choice), np.zeros(1))
    assert np.flatnonzero(left[0]).tolist() == kept

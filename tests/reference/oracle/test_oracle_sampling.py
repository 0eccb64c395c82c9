"""Random numbers match published vectors; filters, draws and token equivalence match hand computations."""

import math
from typing import Any

import numpy as np
import pytest

from gates_reference.oracle.sampling import (
    admissible,
    draw,
    expected_differences,
    filtered_logprobs,
    logit_distance,
    philox4x32_10,
    token_intervals,
    uniforms,
    xtc_coins,
)

OFF: dict[str, Any] = {
    "order": "hf", "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "xtc_probability": 0.0,
    "xtc_threshold": 0.1, "xtc_coin": None, "repetition_penalty": 1.0, "history": None,
}  # fmt: skip
WORKED = np.log([0.5, 0.2, 0.12, 0.08, 0.06, 0.04])
ETA = 2.0**-22
BELOW_ONE = 1 - 2.0**-53


def kept(logits: Any, **change: Any) -> list[int]:
    """The ids that survive."""
    return np.flatnonzero(filtered_logprobs(logits, **OFF | change) > -np.inf).tolist()


class TestPhilox:
    """The generator."""

    @pytest.mark.parametrize(
        ("counter", "key", "want"),
        [
            ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
            ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
            (
                [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
                [0xA4093822, 0x299F31D0],
                [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
            ),
        ],
        ids=["zeros", "ones", "pi"],
    )
    def test_known_answers(self, counter: list[int], key: list[int], want: list[int]) -> None:
        """Random123's kat_vectors for philox4x32 with 10 rounds."""
        assert philox4x32_10(counter, key).tolist() == want
        assert philox4x32_10([counter, [1, 2, 3, 4]], key)[0].tolist() == want

    def test_uniform_and_coin_by_hand(self) -> None:
        """Counter and key 0: u = (0x6627E8D5E169C58D >> 11) / 2**53, coin = (0xBC57AC4C9B00DBD8 >> 11) / 2**53."""
        assert uniforms(0, 0, 0, 0, 0) == (0x6627E8D5E169C58D >> 11) / 2**53
        assert xtc_coins(0, 0, 0, 0, 0) == (0xBC57AC4C9B00DBD8 >> 11) / 2**53

    def test_order_of_counter_and_key(self) -> None:
        """Token, sample, prompt, round are the counter's words in this order; the seed's low word is the key's first."""
        words = philox4x32_10([5, 4, 3, 2], [0x89ABCDEF, 0x01234567]).tolist()
        assert uniforms(0x0123456789ABCDEF, 2, 3, 4, 5) == ((words[0] << 32 | words[1]) >> 11) / 2**53

    def test_broadcast_is_independent_of_the_batch(self) -> None:
        """One draw alone equals the same draw within a table; all are in [0, 1) with mean near a half."""
        table = uniforms(7, 1, np.arange(20)[:, None], 2, np.arange(500))
        assert table.shape == (20, 500)
        assert table[3, 9] == uniforms(7, 1, 3, 2, 9)
        assert np.all((table >= 0) & (table < 1))
        assert np.unique(table).size == table.size
        assert abs(table.mean() - 0.5) < 5 / math.sqrt(12 * table.size)

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: uniforms(-1, 0, 0, 0, 0), "`seed` is -1"),
            (lambda: uniforms(1 << 64, 0, 0, 0, 0), "`seed`"),
            (lambda: uniforms(0, 0, 0, 0, -1), "`counter` is -1"),
            (lambda: uniforms(0, 1 << 32, 0, 0, 0), "`counter` is 4294967296"),
            (lambda: philox4x32_10([0] * 3, [0] * 2), "shapes"),
        ],
    )
    def test_errors(self, call: Any, message: str) -> None:
        """Words have 32 bits and seeds 64."""
        with pytest.raises(ValueError, match=message):
            call()


class TestFilters:
    """Which tokens stay, and with what probability."""

    def test_the_two_orders_keep_different_sets(self) -> None:
        """With p = (.5 .2 .12 .08 .06 .04), tau = 2, top_p = .69.

        hf tempers first: roots .7071 .4472 .3464 .2828 .2449 .2 over their sum 2.2285 are
        .3173 .2007 .1554 .1269 .1099 .0897, with running mass .3173 .5180 .6734 .8003: four tokens reach .69.
        mlx-lm filters first: .5 .7: two tokens reach .69, and the temperature is applied last.
        """
        assert kept(WORKED, order="hf", temperature=2.0, top_p=0.69) == [0, 1, 2, 3]
        assert kept(WORKED, order="mlx-lm", temperature=2.0, top_p=0.69) == [0, 1]
        got = np.exp(filtered_logprobs(WORKED, **OFF | {"order": "mlx-lm", "temperature": 2.0, "top_p": 0.69}))
        np.testing.assert_allclose(got[:2], np.sqrt([0.5, 0.2]) / np.sqrt([0.5, 0.2]).sum(), rtol=1e-15)

    @pytest.mark.parametrize(
        ("change", "want"),
        [
            pytest.param({}, [0, 1, 2, 3, 4, 5], id="all off"),
            pytest.param({"top_k": 3}, [0, 1, 2], id="top-k"),
            pytest.param({"top_k": 99}, [0, 1, 2, 3, 4, 5], id="top-k beyond V"),
            pytest.param({"top_p": 0.49}, [0], id="first token reaches .49"),
            pytest.param({"top_p": 0.51}, [0, 1], id="second needed for .51"),
            pytest.param({"top_p": 0.0}, [0], id="at least one stays"),
            pytest.param({"min_p": 0.2}, [0, 1, 2], id="min-p .2 of .5 is .1"),
            pytest.param({"min_p": 1.0}, [0], id="min-p 1"),
            # above .1: .5 .2 .12, of which the least likely, .12, stays
            pytest.param({"xtc_probability": 0.5, "xtc_coin": 0.49}, [2, 3, 4, 5], id="xtc acts"),
            pytest.param({"xtc_probability": 0.5, "xtc_coin": 0.5}, [0, 1, 2, 3, 4, 5], id="xtc coin at q: no"),
            pytest.param(
                {"xtc_probability": 1.0, "xtc_coin": 0.0, "xtc_threshold": 0.3}, list(range(6)), id="xtc of one"
            ),
            # hf: top-3 renormalised is .61 .24 .15, top_p .6 keeps .61; mlx-lm: top_p .6 keeps .5 .2, then top-3
            pytest.param({"top_k": 3, "top_p": 0.6}, [0], id="hf: top-p after top-k"),
            pytest.param({"order": "mlx-lm", "top_k": 3, "top_p": 0.6}, [0, 1], id="mlx-lm: top-p first"),
            # top-p .75 keeps .5 .2 .12 = .61 .244 .146 of .82; min-p then sees the same quotients
            pytest.param({"top_p": 0.75, "min_p": 0.3}, [0, 1], id="top-p then min-p"),
            # survivors .61 .244 .146; with threshold .14 all are above it, unrenormalised .12 would not be
            pytest.param(
                {"top_p": 0.75, "xtc_probability": 1.0, "xtc_coin": 0.0, "xtc_threshold": 0.14}, [2], id="renormalised"
            ),
        ],
    )
    def test_sets(self, change: dict[str, Any], want: list[int]) -> None:
        """Each filter alone and in pairs on (.5 .2 .12 .08 .06 .04); what stays keeps its proportions."""
        assert kept(WORKED, **change) == want
        got = np.exp(filtered_logprobs(WORKED, **OFF | change))
        p = np.exp(WORKED)
        np.testing.assert_allclose(got[want], p[want] / p[want].sum(), rtol=1e-14)

    @pytest.mark.parametrize(
        ("order", "ties", "of_top_k", "of_top_p"),
        [
            # transformers: scores < kth go; cumsum of the ascending sort [0 1 2 3] <= 1/2 goes: 0 and 1
            ("hf", "library", [0, 1, 2, 3], [2, 3]),
            # mlx-lm: all but the first k of a partition go; log-probs < threshold go
            ("mlx-lm", "library", [0, 1], [0, 1, 2, 3]),
            ("mlx-lm", "all", [0, 1, 2, 3], [0, 1, 2, 3]),
            ("hf", "lower-id", [0, 1], [0, 1]),
        ],
    )
    def test_ties(self, order: str, ties: str, of_top_k: list[int], of_top_p: list[int]) -> None:
        """Four equal tokens, of which top-2 and top-p 1/2 need two; of -1 0 0 0 top-1 and top-p 1/4 need one."""
        for name, needed, least, want in (("top_k", 2, 1, of_top_k), ("top_p", 0.5, 0.25, of_top_p)):
            assert kept(np.zeros(4), order=order, ties=ties, **{name: needed}) == want
            one = {2: 1 if want == [0, 1] else 3, 4: 0}[len(want)]
            assert kept([-1.0, 0.0, 0.0, 0.0], order=order, ties=ties, **{name: least}) == ([one] if one else [1, 2, 3])

    def test_equals_share_their_fate_in_min_p_and_xtc(self) -> None:
        """Both filters compare; a thousand equals are cut at the lower ids where that is asked for."""
        logits = np.zeros(4)
        assert kept(logits, min_p=1.0) == [0, 1, 2, 3]
        assert kept(logits, xtc_probability=1.0, xtc_coin=0.0) == [0, 1, 2, 3]
        assert kept(np.zeros(1000), top_k=500, ties="lower-id") == list(range(500))
        with pytest.raises(ValueError, match="`ties` is 'any'"):
            kept(logits, ties="any")

    def test_xtc_acts_strictly_above_its_threshold(self) -> None:
        """With p = (1/2 1/4 1/4) only the first is above 1/4, and as the least likely of one it stays."""
        logits = np.log([2.0, 1.0, 1.0])
        assert np.exp(filtered_logprobs(logits, **OFF))[1] == 0.25  # the premise: no rounding here
        assert kept(logits, xtc_probability=1.0, xtc_coin=0.0, xtc_threshold=0.25) == [0, 1, 2]

    def test_repetition_penalty(self) -> None:
        """Positive logits are divided, negative multiplied, others untouched; a repeated id counts once."""
        got = filtered_logprobs([2.0, -1.0, 1.0], **OFF | {"repetition_penalty": 2.0, "history": [0, 1, 1, -1]})
        want = np.exp([1.0, -2.0, 1.0])
        np.testing.assert_allclose(np.exp(got), want / want.sum(), rtol=1e-15)

    def test_greedy(self) -> None:
        """Temperature 0 takes the lowest id of the penalised maximum, whatever other filters say."""
        assert kept([1.0, 3.0, 3.0], temperature=0.0, xtc_probability=1.0, xtc_coin=0.0) == [1]
        assert kept([1.0, 3.0, 3.0], temperature=0.0, repetition_penalty=9.0, history=[1]) == [2]

    @pytest.mark.parametrize("order", ["hf", "mlx-lm"])
    def test_rows_are_independent(self, order: str) -> None:
        """A row alone gives the bits that it gives in a batch, with its own coin and history."""
        rng = np.random.default_rng(1)
        logits, coins, history = rng.normal(0, 2, (3, 4, 30)), rng.random((3, 4)), rng.integers(-1, 30, (3, 4, 5))
        active = {"order": order, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "temperature": 0.8}
        active |= {"xtc_probability": 0.5, "xtc_threshold": 0.05, "repetition_penalty": 1.3}
        batch = filtered_logprobs(logits, **OFF | active | {"xtc_coin": coins, "history": history})
        for at in np.ndindex(3, 4):
            row = filtered_logprobs(logits[at], **OFF | active | {"xtc_coin": coins[at], "history": history[at]})
            np.testing.assert_array_equal(batch[at], row)
        np.testing.assert_allclose(np.exp(batch).sum(axis=-1), 1, rtol=1e-14)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"order": "vllm"}, "`order` is 'vllm'"),
            ({"temperature": -1.0}, "`temperature` is -1.0"),
            ({"top_k": -1}, "`top_k` is -1"),
            ({"top_p": 1.5}, "`top_p` is 1.5"),
            ({"min_p": math.nan}, "`min_p` is nan"),
            ({"xtc_probability": 0.5}, "`xtc_coin` is None"),
            ({"xtc_threshold": 2.0}, "`xtc_threshold` is 2.0"),
            ({"repetition_penalty": 1.1}, "`repetition_penalty` is 1.1"),
            ({"repetition_penalty": 0.0, "history": [0]}, "`repetition_penalty` is 0.0"),
            ({"repetition_penalty": 1.1, "history": [6]}, "`history` is 6"),
            ({"repetition_penalty": 1.1, "history": [[0]]}, "`history` has shape"),
        ],
    )
    def test_errors(self, change: dict[str, Any], message: str) -> None:
        """Parameters outside their range and missing ones are refused."""
        with pytest.raises(ValueError, match=message):
            filtered_logprobs(WORKED, **OFF | change)

    def test_nan_logits_are_refused(self) -> None:
        for temperature in (0.0, 1.0):
            with pytest.raises(ValueError, match="maximum nan"):
                filtered_logprobs([0.0, math.nan], **OFF | {"temperature": temperature})


class TestDraw:
    """The least k with C_k > u C_V."""

    @pytest.mark.parametrize(
        ("u", "token"), [(0.0, 1), (0.25 - 1e-12, 1), (0.25, 2), (0.5, 2), (0.75 - 1e-12, 2), (0.75, 4), (BELOW_ONE, 4)]
    )
    def test_by_hand(self, u: float, token: int) -> None:
        """With p = 0 1/4 1/2 0 1/4 0: sums 0 1/4 3/4 3/4 1 1; u = 0 never draws token 0, nor u near 1 token 5."""
        with np.errstate(divide="ignore"):
            assert draw(np.log([0, 0.25, 0.5, 0, 0.25, 0]), u) == token

    def test_intervals(self) -> None:
        """The same distribution unnormalised; every u draws the token whose interval holds it."""
        with np.errstate(divide="ignore"):
            logprobs = np.log([0.0, 0.5, 1, 0, 0.5, 0])
        low, high = token_intervals(logprobs)
        np.testing.assert_allclose(low, [0, 0, 0.25, 0.75, 0.75, 1])
        np.testing.assert_allclose(high, [0, 0.25, 0.75, 0.75, 1, 1])
        u = uniforms(1, 0, 0, 0, np.arange(200))
        tokens = draw(np.tile(logprobs, (200, 1)), u)
        assert np.all((low[tokens] <= u) & (u < high[tokens]))

    @pytest.mark.parametrize("u", [1.0, -0.1, math.nan])
    def test_errors(self, u: float) -> None:
        """A uniform is in [0, 1)."""
        with pytest.raises(ValueError, match="`u` is"):
            draw(WORKED, u)

    def test_nothing_to_draw(self) -> None:
        """A row without probability is refused."""
        with pytest.raises(ValueError, match="sum to 0"):
            draw([-math.inf, -math.inf], 0.5)


class TestAdmissible:
    """Right for its own logits."""

    def test_near_a_boundary_both_tokens_stand(self) -> None:
        """Half and half: at u = 1/2 + eta/2 both are right, at 1/2 + 2 eta only the second, at 1/2 - 2 eta the first."""
        logits = np.zeros((3, 2))
        u = np.array([0.5 + ETA / 2, 0.5 + 2 * ETA, 0.5 - 2 * ETA])
        assert admissible([0, 0, 0], logits, u, ETA, **OFF).tolist() == [True, False, True]
        assert admissible([1, 1, 1], logits, u, ETA, **OFF).tolist() == [True, True, False]

    def test_u_is_clipped_to_the_unit_interval(self) -> None:
        """At both ends the first and the last token stand, and nothing wraps round."""
        logits = np.zeros((2, 3))
        u = np.array([0.0, BELOW_ONE])
        assert admissible([0, 2], logits, u, ETA, **OFF).tolist() == [True, True]
        assert admissible([2, 0], logits, u, ETA, **OFF).tolist() == [False, False]

    @pytest.mark.parametrize(
        ("active", "coin"),
        [
            pytest.param({"top_p": 0.75}, None, id="top-p: the mass .75 of (.5 .25) reaches .75, not .75 + eta"),
            pytest.param({"min_p": 0.5 + ETA / 2}, None, id="min-p: .25 is half of .5"),
            pytest.param({"xtc_probability": 1.0, "xtc_threshold": 0.25}, 0.0, id="xtc: .25 is not above .25"),
        ],
    )
    def test_thresholds_move_by_eta(self, active: dict[str, Any], coin: float | None) -> None:
        """With p = 1/2 1/4 1/8 1/8: a token on the other side of a threshold stands at eta and falls without it."""
        logits = np.log([0.5, 0.25, 0.125, 0.125])
        sampling = OFF | active | {"xtc_coin": coin}
        options = [
            {int(draw(filtered_logprobs(logits, **sampling | {name: sampling[name] + shift}), u))
             for name in ("top_p", "min_p", "xtc_threshold") if name in active
             for shift in (-ETA, 0.0, ETA)}
            for u in (0.3, 0.6, 0.7, 0.99)
        ]  # fmt: skip
        assert any(len(tokens) > 1 for tokens in options)
        for u, tokens in zip((0.3, 0.6, 0.7, 0.99), options, strict=True):
            got = {t for t in range(4) if admissible(t, logits, u, ETA, **sampling)}
            assert got == tokens
            assert len({t for t in range(4) if admissible(t, logits, u, 0.0, **sampling)}) == 1

    def test_greedy_is_exact(self) -> None:
        """At temperature 0 only the lowest id of the maximum stands, at any eta."""
        sampling = OFF | {"temperature": 0.0}
        assert [bool(admissible(t, [1.0, 2, 2], 0.5, 0.5, **sampling)) for t in range(3)] == [False, True, False]

    @pytest.mark.parametrize("order", ["hf", "mlx-lm"])
    def test_its_own_draws_stand_and_mistakes_fall(self, order: str) -> None:
        """2,000 draws by the oracle stand; those of temperature 0.9 for 0.8, or of u + 1e-2, do not all."""
        rng = np.random.default_rng(2)
        logits = rng.normal(0, 2, (2000, 50)).astype(np.float32)
        sampling: dict[str, Any] = OFF | {
            "order": order, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "xtc_probability": 0.3,
            "xtc_threshold": 0.2, "xtc_coin": rng.random(2000),
        }  # fmt: skip
        u = rng.random(2000)
        assert np.all(admissible(draw(filtered_logprobs(logits, **sampling), u), logits, u, ETA, **sampling))
        hotter = draw(filtered_logprobs(logits, **sampling | {"temperature": 0.9}), u)
        assert np.mean(admissible(hotter, logits, u, ETA, **sampling)) < 0.99
        later = draw(filtered_logprobs(logits, **sampling), np.minimum(u + 1e-2, BELOW_ONE))
        assert np.mean(admissible(later, logits, u, ETA, **sampling)) < 0.99

    def test_shapes(self) -> None:
        """Leading axes are kept, coins and history with them; a token outside V is refused."""
        logits, u = np.zeros((2, 3, 4)), np.full((2, 3), 0.1)
        sampling: dict[str, Any] = OFF | {
            "xtc_probability": 0.5, "xtc_coin": u, "repetition_penalty": 1.5, "history": np.zeros((2, 3, 1), int),
        }  # fmt: skip
        assert admissible(np.zeros((2, 3), int), logits, u, ETA, **sampling).shape == (2, 3)
        with pytest.raises(ValueError, match="`token` is 4"):
            admissible(np.full((2, 3), 4), logits, u, ETA, **sampling)
        with pytest.raises(ValueError, match="`token` has shape"):
            admissible([0], logits, u, ETA, **sampling)


class TestDifferences:
    """How far apart two paths are."""

    def test_lambda_by_hand(self) -> None:
        """(1/2, 1/2) against (1/4, 3/4): intervals overlap in 1/4 and 1/2, so lambda is 1/4 per draw."""
        a, b = np.log([[0.5, 0.5]] * 3), np.log([[0.25, 0.75]] * 2 + [[0.5, 0.5]])
        assert expected_differences(a, b, **OFF) == pytest.approx(0.5, rel=1e-14)

    def test_lambda_predicts_the_differences(self) -> None:
        """With noise of 0.02 on 4,000 draws the count is within five square roots of lambda."""
        rng = np.random.default_rng(3)
        a = rng.normal(0, 1, (4000, 40))
        b = a + rng.normal(0, 0.02, a.shape)
        u = rng.random(4000)
        sampling = OFF | {"top_p": 0.9}
        count = np.sum(draw(filtered_logprobs(a, **sampling), u) != draw(filtered_logprobs(b, **sampling), u))
        expected = expected_differences(a, b, **sampling)
        assert expected > 20
        assert abs(count - expected) < 5 * math.sqrt(expected)

    def test_distance_by_hand(self) -> None:
        """log(1/2) against log(1/4) and log(3/4): the larger difference is log 2."""
        assert logit_distance(np.log([0.5, 0.5]), np.log([0.25, 0.75])) == pytest.approx(math.log(2), rel=1e-15)

    def test_distance_ignores_what_cannot_be_drawn(self) -> None:
        """A token at -30 against -40 nats does not count at the floor -20, and does at -50; -inf against 0 is inf."""
        a, b = [[0.0, -30.0]], [[0.0, -40.0]]
        assert logit_distance(a, b)[0] < 1e-12
        assert logit_distance(a, b, floor=-50.0)[0] == pytest.approx(10, rel=1e-12)
        assert logit_distance([0.0, -math.inf], [0.0, 0.0]) == math.inf

    def test_equal_logits_are_exactly_nothing(self) -> None:
        """Bit-equal rows have distance 0 and lambda 0; an offset is no distance beyond rounding."""
        a = np.random.default_rng(4).normal(0, 3, (5, 2, 30)).astype(np.float32)
        assert expected_differences(a, a.copy(), **OFF) == 0
        assert not np.any(logit_distance(a, a.copy()))
        assert logit_distance(a, a.copy()).shape == (5, 2)
        assert np.max(logit_distance(a, a.astype(np.float64) + 1)) < 1e-13

    @pytest.mark.parametrize("function", [logit_distance, lambda a, b: expected_differences(a, b, **OFF)])
    def test_errors(self, function: Any) -> None:
        """Shapes that differ and NaN are refused, NaN on both sides too."""
        with pytest.raises(ValueError, match="`logits_b` has shape"):
            function(np.zeros((2, 3)), np.zeros((2, 4)))
        with pytest.raises(ValueError, match="maximum nan"):
            function([[math.nan, 0.0]], [[math.nan, 0.0]])

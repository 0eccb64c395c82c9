"""`rlkernels.compat.rlox` beside rlox 1.2: the same results and exceptions, and what differs on purpose.

What rlox returns was recorded by `rlox/record.py` in an environment with rlox 1.2.0. Where a peers' environment of this
machine has that version, the record is made again and compared.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from gates.subjects.peers import environments
from rlkernels.compat import rlox

HERE = Path(__file__).parent / "rlox"
sys.path.insert(0, str(HERE))
import record  # noqa: E402 - a script beside the data that it makes

VERSION = "1.2.0"
RECORDED = json.loads((HERE / f"rlox-{VERSION}.json").read_text(encoding="utf-8"))
THEIRS: dict[str, Any] = RECORDED["outcomes"]
OURS: dict[str, Any] = record.outcomes(rlox)

#: KL(P || Q) over the three tokens of `record.P` and `record.Q`: 0.5 ln 2.5 - 0.2 ln 2.5.
EXACT_KL = 0.3 * math.log(2.5)

AGREEING = [
    "advantages",
    "advantages of equal rewards",
    "advantages of almost equal rewards",
    "advantages of groups",
    "kl of the vocabulary",
    "kl of the vocabulary, f32",
    "kl of batch",
    "kl of batch, f32",
    "packing",
    "packing with room left",
]
REFUSED = ["advantages of groups that do not divide", "schulman of different lengths", "packing of a long sequence"]
DEPARTING = [
    "advantages with a reward that was not given",
    "kl of an impossible token",
    "kl of batch with an impossible token",
    "schulman",
    "schulman, f32",
    "schulman of batch",
    "schulman of batch, f32",
    "schulman of token 0",
    "schulman of token 2",
    "schulman of close values, f32",
]


def close(got: Any, want: Any) -> bool:
    """Equal; floats within a few roundings of float32."""
    if isinstance(want, dict):
        return isinstance(got, dict) and got.keys() == want.keys() and all(close(got[key], want[key]) for key in want)
    if isinstance(want, list):
        return len(got) == len(want) and all(map(close, got, want))
    if isinstance(want, float):
        return math.isclose(got, want, rel_tol=4 * 2.0**-24)
    return bool(got == want)


class TestNames:
    """The module can stand in for rlox's kernels."""

    def test_all_of_the_documented_kernels(self) -> None:
        """Eleven names: six kernels in float64, four in float32, and packing."""
        assert len(rlox.__all__) == 11
        assert {function for function, _ in record.CALLS.values()} == set(rlox.__all__)
        assert all(getattr(rlox, name).__doc__ for name in rlox.__all__)

    def test_every_recorded_call_is_judged(self) -> None:
        """A call agrees, is refused by both, or departs; the token of equal probabilities tells nothing."""
        assert sorted([*AGREEING, *REFUSED, *DEPARTING, "schulman of token 1"]) == sorted(record.CALLS)


@pytest.mark.parametrize("name", AGREEING)
def test_as_rlox(name: str) -> None:
    """Here rlox does what it documents, and so does its replacement."""
    assert close(OURS[name], THEIRS[name])


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_both(name: str) -> None:
    """The same exception on both sides; ours names the argument."""
    kind, message = OURS[name]["raised"].split(": ", 1)
    assert kind == THEIRS[name]["raised"].split(":")[0]
    assert "`" in message


@pytest.mark.parametrize("name", DEPARTING)
def test_departures_are_still_there(name: str) -> None:
    """Here rlox 1.2 returns something else; a version that does not is recorded anew."""
    assert not close(OURS[name], THEIRS[name])


def test_an_impossible_token_adds_nothing() -> None:
    """0 log 0 = 0, where rlox has NaN; the docstring lists it among what is different on purpose."""
    assert THEIRS["kl of an impossible token"] == "nan"
    assert OURS["kl of an impossible token"] == pytest.approx(0.5 * math.exp(-1.0))
    assert "-inf" in (rlox.__doc__ or "").split("Different on purpose:")[1]


class TestSchulman:
    """k3 = exp(d) - d - 1 with d = log_ref - log_policy; rlox 1.2 has d the other way round."""

    def test_expectation_is_the_divergence(self) -> None:
        """Under the policy, k3 is unbiased; rlox's value is 29% too large here: 0.3551 against 0.2749."""
        ours, theirs = (
            sum(record.P[v] * outcomes[f"schulman of token {v}"] for v in range(3)) for outcomes in (OURS, THEIRS)
        )
        assert math.isclose(ours, EXACT_KL, rel_tol=1e-15)
        assert math.isclose(theirs, 0.35511278044, rel_tol=1e-9)

    def test_by_hand(self) -> None:
        """For d = -0.5, 1, 0, 1 ours sums exp(d) - d - 1 to 1.5431, rlox sums exp(-d) + d - 1 to 0.8845."""
        d = [-0.5, 1.0, 0.0, 1.0]
        assert math.isclose(OURS["schulman"], sum(math.exp(x) - x - 1 for x in d), rel_tol=1e-14)
        assert math.isclose(THEIRS["schulman"], sum(math.exp(-x) + x - 1 for x in d), rel_tol=1e-14)
        assert close(OURS["schulman of batch"], [math.exp(-0.5) - 0.5 + math.e - 2, math.e - 2])

    def test_close_values_keep_their_precision(self) -> None:
        """float32(-1.001) is 0.00100005 off: k3 is d**2 / 2 + d**3 / 6, where rlox cancels to 4.7684e-7."""
        d = float(np.float32(-1.001)) + 1
        assert math.isclose(OURS["schulman of close values, f32"], d**2 / 2 + d**3 / 6, rel_tol=2.0**-24)
        assert THEIRS["schulman of close values, f32"] == 4.76837158203125e-07


class TestOtherDepartures:
    """What differs on purpose."""

    def test_a_reward_that_was_not_given(self) -> None:
        """Undocumented in rlox, whose whole group becomes NaN; here the group is scored without it."""
        assert THEIRS["advantages with a reward that was not given"] == ["nan", "nan", "nan"]
        assert OURS["advantages with a reward that was not given"] == [-1.0, 0.0, 1.0]


class TestAsRloxTestsAsk:
    """What the unit tests of rlox's own repository ask of these functions, with their numbers.

    wojciechkpl/rlox: crates/rlox-core/src/llm/ops.rs, crates/rlox-core/src/training/packing.rs and
    tests/python/test_phase7.py at 258fc35. One of them is not met, on purpose: `test_token_kl_schulman_known_value`.
    """

    LOG_P = np.array([-1.0, -2.0, -0.5, -1.5, -0.3, -2.5])
    LOG_Q = np.array([-1.1, -1.9, -0.6, -1.4, -0.4, -2.4])

    def test_group_advantages(self) -> None:
        """A mean of 0; equal rewards and no rewards; groups; sizes that do not fit."""
        assert abs(rlox.compute_group_advantages(np.array([1.0, 0.5, 0.8])).mean()) < 1e-10
        assert rlox.compute_group_advantages(np.full(3, 5.0)).tolist() == [0, 0, 0]
        assert rlox.compute_group_advantages(np.array([])).shape == (0,)
        found = rlox.compute_batch_group_advantages(np.array([1.0, 2.0, 3.0, 10.0, 10.0, 10.0]), 3)
        assert abs(found[:3].sum()) < 1e-10
        assert found[3:].tolist() == [0, 0, 0]
        assert rlox.compute_batch_group_advantages(np.array([]), 4).shape == (0,)
        assert abs(rlox.compute_group_advantages(np.array([1.0, 2.0, 3.0], np.float32)).mean()) < 1e-5  # type: ignore[arg-type]

    @pytest.mark.parametrize(("rewards", "size"), [([1.0, 2.0, 3.0], 2), ([1.0], 0), ([], 0)])
    def test_group_sizes_that_do_not_fit(self, rewards: list[float], size: int) -> None:
        """ValueError."""
        with pytest.raises(ValueError, match=r"`group_size`|`rewards`"):
            rlox.compute_batch_group_advantages(np.array(rewards), size)

    @pytest.mark.parametrize("function", [rlox.compute_token_kl, rlox.compute_token_kl_schulman])
    def test_token_kl(self, function: Any) -> None:
        """0 for equal arrays and for none, never negative for k3, NaN for NaN, and no panic for infinity."""
        assert function(self.LOG_P, self.LOG_P) == 0.0
        assert function(np.array([]), np.array([])) == 0.0
        assert math.isnan(function(np.array([math.nan]), np.array([-1.0])))
        function(np.array([math.inf]), np.array([-1.0]))
        with pytest.raises(RuntimeError, match="`log_probs_ref` has 1 elements, must have 2"):
            function(np.array([0.1, 0.2]), np.array([0.1]))

    def test_known_values(self) -> None:
        """exp(-1) for the exact sum; e - 2 for k3 where the reference is the likelier one (rlox: the other way round)."""
        one, two = np.array([-1.0]), np.array([-2.0])
        assert math.isclose(rlox.compute_token_kl(one, two), math.exp(-1), abs_tol=1e-10)
        assert math.isclose(rlox.compute_token_kl_schulman(two, one), math.e - 2, abs_tol=1e-10)
        left, right = np.array([-0.5, -1.0, -3.0, 0.0]), np.array([-1.0, -0.5, -0.1, -2.0])
        assert rlox.compute_token_kl_schulman(left, right) >= 0

    @pytest.mark.parametrize("name", ["compute_token_kl", "compute_token_kl_schulman"])
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_batches_match_single_calls(self, name: str, dtype: Any) -> None:
        """One value for each run of `seq_len`; lengths that do not fit are ValueErrors."""
        single, batched = getattr(rlox, name), getattr(rlox, name.replace("token", "batch_token"))
        p, q = self.LOG_P.astype(dtype), self.LOG_Q.astype(dtype)
        got = batched(p, q, 3)
        assert got.dtype == dtype
        assert got.tolist() == pytest.approx([single(p[:3], q[:3]), single(p[3:], q[3:])], abs=1e-6)
        for wrong in ((p[:3], q[:3], 0), (p[:3], q[:3], 2), (p[:2], q[:1], 1)):
            with pytest.raises(ValueError, match=r"`seq_len`|`log_probs_ref`"):
                batched(*wrong)

    @staticmethod
    def _sequences(*lengths: int) -> list[Any]:
        return [np.arange(1000 * i, 1000 * i + length, dtype=np.uint32) for i, length in enumerate(lengths)]

    def test_packing(self) -> None:
        """One full bin, two bins, no sequence, one sequence; a bin holds its tokens and no padding."""
        assert [len(b["input_ids"]) for b in rlox.pack_sequences(self._sequences(3, 3), 6)] == [6]
        assert [len(b["input_ids"]) for b in rlox.pack_sequences(self._sequences(3, 3, 3), 6)] == [6, 3]
        assert rlox.pack_sequences([], 512) == []
        (one,) = rlox.pack_sequences([np.array([10, 20, 30], np.uint32)], 512)
        assert one["input_ids"].tolist() == [10, 20, 30]

    def test_a_long_sequence_is_an_error(self) -> None:
        """RuntimeError, which says which one and how long."""
        with pytest.raises(RuntimeError, match="sequence 1 has length 100, must be at most `max_length` 50"):
            rlox.pack_sequences(self._sequences(1, 100), 50)

    def test_bins(self) -> None:
        """Every token is there once; masks and positions belong to the tokens, to the end of the arrays."""
        sequences = self._sequences(10, 50, 20, 80, 30, 60, 15, 100, 40, 25)
        bins = rlox.pack_sequences(sequences, 128)
        assert sorted(np.concatenate([b["input_ids"] for b in bins])) == sorted(np.concatenate(sequences))
        assert sum(map(len, sequences)) / sum(len(b["input_ids"]) for b in bins) == 1
        for b in bins:
            assert len(b["input_ids"]) == len(b["attention_mask"]) == len(b["position_ids"]) <= 128
            assert isinstance(b["sequence_starts"], np.ndarray)
            assert b["sequence_starts"].dtype == np.uint64
            ends = [*b["sequence_starts"][1:].tolist(), len(b["input_ids"])]
            for start, end in zip(b["sequence_starts"].tolist(), ends, strict=True):
                assert b["position_ids"][start:end].tolist() == list(range(end - start))


class TestInputs:
    """Wrong inputs, and arrays of other libraries."""

    def test_types_and_layouts(self) -> None:
        """float32 gives float32 arrays; strided and MLX arrays are welcome."""
        assert rlox.compute_batch_token_kl_schulman_f32(np.zeros(4, "f4"), np.ones(4, "f4"), 2).dtype == np.float32
        assert rlox.compute_group_advantages(np.array([0.0, 9.0, 2.0, 9.0])[::2]).tolist() == [-1, 1]
        assert rlox.compute_group_advantages([0, 2]).tolist() == [-1, 1]  # type: ignore[arg-type]
        assert rlox.compute_token_kl_schulman(mx.array([-1.0]) * 2, mx.array([-2.0])) == 0
        assert isinstance(rlox.compute_token_kl(np.zeros(1), np.zeros(1)), float)

    @pytest.mark.parametrize(
        ("function", "arguments", "error", "message"),
        [
            ("compute_group_advantages", [1.0], TypeError, "`rewards` is of type float"),
            ("compute_group_advantages", [np.zeros((2, 2))], ValueError, r"`rewards` has shape \(2, 2\)"),
            ("compute_batch_group_advantages", [np.zeros(4), 0], ValueError, "`group_size` is 0"),
            (
                "compute_token_kl",
                [np.zeros((1, 2)), np.zeros((1, 2))],
                ValueError,
                r"`log_probs_policy` has shape \(1, 2\)",
            ),
            ("compute_token_kl", ["x", np.zeros(1)], TypeError, "`log_probs_policy` is of type str"),
            (
                "compute_token_kl_f32",
                [np.zeros(1, int), np.zeros(1)],
                TypeError,
                "`log_probs_policy` is an array of int64",
            ),
            (
                "compute_token_kl_f32",
                [np.zeros(1, "f4"), np.zeros(1)],
                TypeError,
                "`log_probs_ref` is an array of float64",
            ),
            ("compute_batch_token_kl", [np.zeros(4), np.zeros(4), 0], ValueError, "`seq_len` is 0"),
            ("compute_batch_token_kl", [np.zeros(4), np.zeros(4), 3], ValueError, "divisible by `seq_len` 3"),
            ("compute_batch_token_kl", [np.zeros(4), np.zeros(6), 2], ValueError, "`log_probs_ref` has 6 elements"),
            ("pack_sequences", [[np.zeros(2)], 3], TypeError, r"`sequences\[0\]` holds float64"),
            ("pack_sequences", [[np.zeros((2, 1), int)], 3], ValueError, r"`sequences\[0\]` has shape \(2, 1\)"),
            ("pack_sequences", [[np.array([-1])], 3], ValueError, r"`sequences\[0\]` has ids from -1 to -1"),
            ("pack_sequences", [[np.array([1])], 0], ValueError, "`max_length` is 0"),
        ],
    )
    def test_errors(self, function: str, arguments: list[Any], error: type[Exception], message: str) -> None:
        """The argument is named."""
        with pytest.raises(error, match=message):
            getattr(rlox, function)(*arguments)

    def test_nothing_to_pack(self) -> None:
        """No sequences give no bins; an empty one starts where it stands."""
        assert rlox.pack_sequences([], 3) == []
        assert rlox.pack_sequences([np.array([], np.uint32)], 1)[0]["sequence_starts"].tolist() == [0]


@pytest.mark.slow
def test_the_record_is_what_rlox_returns() -> None:
    """Against the real library, where an environment of the peers has it."""
    for peer in environments.peers():
        found = environments.environment(peer)
        if found.ready and found.versions.get("rlox") == VERSION:
            script = [str(found.python), "-I", str(HERE / "record.py")]
            again = subprocess.run(script, capture_output=True, text=True, check=True).stdout
            assert json.loads(again) == RECORDED
            return
    pytest.skip(f"no environment of a peer has rlox {VERSION}: `gates peers list` shows them")

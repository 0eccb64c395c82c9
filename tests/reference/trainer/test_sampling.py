"""The host sampler: Philox, filters and the inverse of the distribution function."""

import numpy as np
import pytest

from reference.trainer import sampling

# Random123's published known-answer vectors (kat_vectors of github.com/DEShawResearch/random123) of philox4x32, 10 rounds:
# counter words, key words, output words.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def _logits(probabilities: list[float]) -> np.ndarray:
    return np.log(np.array([probabilities])).astype(np.float32)


def _kept(probabilities: list[float], **settings: float) -> list[int]:
    kept = sampling.keep(np.array([probabilities]), sampling.Settings(**settings))
    return np.flatnonzero(kept[0]).tolist()


class TestPhilox:
    """The random words and the uniforms made of them."""

    @pytest.mark.parametrize(("counter", "key", "words"), KNOWN, ids=["zeros", "ones", "pi"])
    def test_known_answers(self, counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]) -> None:
        """The published vectors come out, the key's low word first."""
        seed = key[0] | key[1] << 32
        assert sampling.philox(seed, np.array([counter], np.uint32))[0].tolist() == list(words)

    def test_uniform_is_the_high_53_bits(self) -> None:
        """At seed 0 and counter 0 u is 0x6627E8D5E169C58D shifted right by 11, times 2**-53."""
        u = sampling.uniforms(0, 0, np.zeros((1, 2), np.int64), 0)
        assert u.tolist() == [(0x6627E8D5E169C58D >> 11) * 2.0**-53]

    def test_counter_is_step_sample_prompt_round(self) -> None:
        """The words of pi as counter are token, sample, prompt and round, in this order."""
        t, j, i, r = 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344
        u = sampling.uniforms(0xA4093822 | 0x299F31D0 << 32, r, np.array([[i, j]]), t)
        assert u.tolist() == [(0xD16CFE0994FDCCEB >> 11) * 2.0**-53]

    def test_rows_do_not_depend_on_each_other(self) -> None:
        """A row's uniform alone is its uniform among others."""
        pairs = np.array([[0, 0], [3, 1], [7, 7]])
        together = sampling.uniforms(9, 2, pairs, 5)
        assert [sampling.uniforms(9, 2, pairs[k : k + 1], 5)[0] for k in range(3)] == together.tolist()


class TestFilters:
    """Which tokens survive."""

    @pytest.mark.parametrize(
        ("settings", "kept"),
        [
            ({}, [0, 1, 2, 3]),
            ({"top_k": 2}, [1, 2]),
            ({"top_p": 0.5}, [1]),  # 0.5 reaches 0.5
            ({"top_p": 0.51}, [1, 2]),
            ({"top_p": 0.8}, [0, 1, 2]),  # 0.5 + 0.25 < 0.8; of the two 0.125 the lower id
            ({"min_p": 0.5}, [1, 2]),  # 0.25 >= 0.5 * 0.5
            ({"top_k": 2, "top_p": 0.6}, [1]),  # renormalised: 0.5 / 0.75 = 0.667 >= 0.6
        ],
        ids=["off", "top-k", "top-p-exact", "top-p-above", "top-p", "min-p", "renormalised"],
    )
    def test_kept_tokens(self, settings: dict[str, float], kept: list[int]) -> None:
        """The survivors of p = (.125, .5, .25, .125) are those of a hand computation."""
        assert _kept([0.125, 0.5, 0.25, 0.125], **settings) == kept

    def test_ties_keep_the_lower_id(self) -> None:
        """Of equal probabilities at the threshold the lower ids stay."""
        assert _kept([0.25, 0.25, 0.25, 0.25], top_k=2) == [0, 1]
        assert _kept([0.25, 0.25, 0.25, 0.25], top_p=0.7) == [0, 1, 2]

    def test_temperature_comes_first(self) -> None:
        """The example of docs/definitions.md, "Sampling": temperature 2 before top-p 0.69 keeps 4 tokens, not 2."""
        weights = np.array([[0.5, 0.2, 0.12, 0.08, 0.06, 0.04]]) ** 0.5
        assert np.count_nonzero(sampling.keep(weights, sampling.Settings(2.0, top_p=0.69))) == 4


class TestDraw:
    """From a uniform to a token."""

    def test_zero_uniform_skips_a_filtered_first_token(self) -> None:
        """At u = 0 the token is the first with weight, not token 0."""
        assert sampling.draw(np.array([[0.0, 0.0, 1.0, 1.0]]), np.array([0.0])).tolist() == [2]

    def test_largest_uniform_stays_among_the_survivors(self) -> None:
        """At the largest u the token is the last with weight, whatever follows it."""
        assert sampling.draw(np.array([[1.0, 3.0, 0.0]]), np.array([1 - 2.0**-53])).tolist() == [1]

    def test_boundary_belongs_to_the_next_token(self) -> None:
        """C_k > u C_V is strict: u = 1/4 of (1, 3) is token 1."""
        assert sampling.draw(np.array([[1.0, 3.0]]), np.array([0.25])).tolist() == [1]

    def test_temperature_zero_is_the_lowest_id_of_the_maximum(self) -> None:
        """Greedy ties go to the lower id, and no uniform matters."""
        logits = np.array([[1.0, 5.0, 5.0, 0.0]], np.float32)
        drawn = sampling.sample(logits, np.array([0.99]), sampling.Settings(0.0))
        assert drawn.tokens.tolist() == [1]

    def test_three_logprobs(self) -> None:
        """Model, tempered and behaviour log-probs of p = (1/2, 1/4, 1/8, 1/8), temperature 1/2, top-k 2, are worked by hand."""
        # squared and renormalised: 16, 4, 1, 1 over 22; among the first two: 16/20 and 4/20; u = 0.9 draws token 1.
        drawn = sampling.sample(_logits([0.5, 0.25, 0.125, 0.125]), np.array([0.9]), sampling.Settings(0.5, top_k=2))
        assert drawn.tokens.tolist() == [1]
        for found, expected in ((drawn.model, 1 / 4), (drawn.temperature_scaled, 4 / 22), (drawn.behaviour, 1 / 5)):
            assert found[0] == pytest.approx(np.log(expected), abs=1e-6)

    @pytest.mark.parametrize("bad", [{"temperature": -1.0}, {"top_p": 0.0}, {"top_k": -1}, {"min_p": 1.5}], ids=str)
    def test_settings_outside_their_range_are_errors(self, bad: dict[str, float]) -> None:
        """The message names the argument."""
        with pytest.raises(ValueError, match=next(iter(bad))):
            sampling.Settings(**bad)

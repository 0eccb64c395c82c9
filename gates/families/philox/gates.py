"""Is Philox 4x32-10 the published generator, and does a draw's uniform depend on its key alone?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gates.families.philox.op import PHILOX, UNIFORMS, XTC_COINS
from gates.model import Bound, Case, Draw, Evidence, Trial
from gates.registry import gate

#: Random123's kat_vectors for philox4x32 with 10 rounds: counter, key, words.
KNOWN = (
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
)
TOP = (1 << 32) - 1


def _words(texts: list[str]) -> np.ndarray[Any, Any]:
    return np.array([[int(word, 16) for word in text.split()] for text in texts], np.uint32)


def _known(rng: np.random.Generator) -> dict[str, Any]:
    del rng
    counters, keys, words = (list(column) for column in zip(*KNOWN, strict=True))
    return {"counter": _words(counters), "key": _words(keys), "published": _words(words)}


def _random(rng: np.random.Generator) -> dict[str, Any]:
    counter = rng.integers(0, 1 << 32, (500, 4), dtype=np.uint32)
    return {"counter": counter, "key": rng.integers(0, 1 << 32, (500, 2), dtype=np.uint32), "published": None}


def _one_key(rng: np.random.Generator) -> dict[str, Any]:
    counter = rng.integers(0, 1 << 32, (3, 7, 4), dtype=np.uint32)
    return {"counter": counter, "key": np.array([TOP, 1], np.uint32), "published": None}


def _wanted(t: Draw) -> np.ndarray[Any, Any]:
    counter, key, published = (t.inputs[name] for name in ("counter", "key", "published"))
    return np.asarray(t.want(PHILOX, counter=counter, key=key) if published is None else published)


def _distinct_words(t: Draw) -> Iterator[Evidence]:
    want = _wanted(t)
    yield t.precondition("distinct words", np.unique(want).size, ">=", want.size - 1)


@gate(
    "philox.known-answers",
    level="definition",
    name="philox4x32_10",
    question="Does Philox 4x32-10 give the words that Random123 publishes, and those of the definition elsewhere?",
    why="Seven rounds or swapped words look as random and reproduce nobody's draws.",
    ops=(PHILOX,),
    cases=(Case("published", _known, quick=True), Case("random", _random, quick=True), Case("one-key", _one_key)),
    bounds={"words that differ": Bound("exact", "the generator is defined bit by bit", 0)},
    requires=_distinct_words,
)
def known_answers(t: Trial) -> Iterator[Evidence]:
    """Compare with the published vectors, or else with the oracle, which reproduces them."""
    want = _wanted(t)
    words = t.got(PHILOX, counter=t.inputs["counter"], key=t.inputs["key"])["words"]
    differing = int(np.sum(words != want)) if words.shape == want.shape else want.size
    yield t.number("words that differ", differing, "<=")


def _grid(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "seed": int(rng.integers(0, 1 << 63)) * 2 + 1,
        "round_": 3,
        "prompt": rng.integers(0, 1 << 32, (5, 1, 1)),
        "sample": np.arange(4)[:, None],
        "token": np.arange(64),
    }


def _extremes(rng: np.random.Generator) -> dict[str, Any]:
    del rng
    ends = np.array([0, 1, TOP])
    return {
        "seed": (1 << 64) - 1,
        "round_": ends[:, None, None, None],
        "prompt": ends[:, None, None],
        "sample": ends[:, None],
        "token": ends,
    }


def _rows(rng: np.random.Generator) -> dict[str, Any]:
    prompt, sample, token = rng.integers(0, 1000, (3, 200))
    return {"seed": 42, "round_": rng.integers(0, 9, 200), "prompt": prompt, "sample": sample, "token": token}


def _distinct_uniforms(t: Draw) -> Iterator[Evidence]:
    both = [t.want(op, **t.inputs) for op in (UNIFORMS, XTC_COINS)]
    yield t.precondition("distinct uniforms and coins", np.unique(both).size, ">=", np.size(both))


@gate(
    "philox.uniforms.keyed",
    level="definition",
    name="uniforms",
    question="Do words 0–1 of counter (token, sample, prompt, round) give the uniform, and words 2–3 the XTC coin?",
    why="A draw that depends on the batch changes with every resample; two fields swapped give two rows one stream.",
    ops=(UNIFORMS, XTC_COINS),
    cases=(Case("grid", _grid, quick=True), Case("extremes", _extremes, quick=True), Case("rows", _rows)),
    bounds={
        "uniforms that differ": Bound("exact", "53 bits of two words, exact in float64", 0),
        "coins that differ": Bound("exact", "53 bits of two words, exact in float64", 0),
        "uniforms of one row that differ when it is asked for alone": Bound(
            "exact", "no other row has a part in it", 0, level="law"
        ),
    },
    requires=_distinct_uniforms,
)
def uniforms_keyed(t: Trial) -> Iterator[Evidence]:
    """Compare uniforms and coins bit by bit, and draw once more for one prompt alone."""
    inputs = dict(t.inputs)
    want, coins = t.want(UNIFORMS, **inputs), t.want(XTC_COINS, **inputs)
    got = t.got(UNIFORMS, **inputs)["uniforms"]
    yield t.number("uniforms that differ", _differing(got, want), "<=")
    yield t.number("coins that differ", _differing(t.got(XTC_COINS, **inputs)["uniforms"], coins), "<=")
    alone: dict[str, Any] = {
        name: np.broadcast_to(inputs[name], want.shape)[-1:] for name in ("round_", "prompt", "sample", "token")
    }
    again = t.got(UNIFORMS, seed=inputs["seed"], **alone)["uniforms"]
    yield t.number("uniforms of one row that differ when it is asked for alone", _differing(again, want[-1:]), "<=")


def _differing(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> int:
    return int(np.sum(got != want)) if np.shape(got) == want.shape else want.size

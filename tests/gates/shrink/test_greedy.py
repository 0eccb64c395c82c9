"""The search for a smaller failure, with predicates instead of gates."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.model import Recipe
from gates.shrink.greedy import shrink
from gates.shrink.moves import elements, measure

Inputs = dict[str, Any]


def batch(rows: int, width: int) -> Inputs:
    rng = np.random.default_rng(7)
    return {
        "policy": rng.normal(size=(rows, width)),
        "mask": rng.random((rows, width)) < 0.8,
        "rewards": rng.normal(size=rows),
        "group_size": 4,
        "lengths": np.full(rows, width, np.int64),
    }


def grouped(inputs: Inputs) -> bool:
    if inputs["group_size"] < 1:
        return False
    return inputs["policy"].shape[0] % inputs["group_size"] == 0 and len(inputs["rewards"]) == len(inputs["policy"])


class TestShrinking:
    """The search, with predicates instead of gates."""

    @pytest.mark.parametrize(
        ("inputs", "fails", "wanted"),
        [
            (batch(8, 16), lambda x: bool((x["policy"] > 1.0).any()), 3),
            (batch(8, 16), lambda x: grouped(x) and len(x["rewards"]) >= 2, 6),
            (batch(8, 16), lambda x: not x["mask"].all(), 2),
            (batch(8, 16), lambda x: x["lengths"].max() <= x["policy"].shape[1] and x["policy"].size > 0, 2),
            (
                {"tokens": np.arange(1.0, 11.0), "lengths": np.array([4, 1, 5])},
                lambda x: x["lengths"].sum() == len(x["tokens"]) and len(x["lengths"]) > 1,
                2,
            ),
            ({"x": np.ones(6), "parts": [2, 4]}, lambda x: sum(x["parts"]) == len(x["x"]) and len(x["parts"]) == 2, 2),
            (
                {"rewards": np.arange(56008.0), "group_size": 8},  # 7,001 groups: no half of them is a whole number
                lambda x: 0 < x["group_size"] <= len(x["rewards"]) and len(x["rewards"]) % x["group_size"] == 0,
                1,
            ),
        ],
        ids=[
            "one token",
            "one group",
            "one masked slot",
            "lengths follow the width",
            "flat sequences",
            "micro-batches",
            "a prime number of groups",
        ],
    )
    def test_a_few_elements_remain(self, inputs: Inputs, fails: Callable[[Inputs], bool], wanted: int) -> None:
        before = {name: np.copy(value) for name, value in inputs.items()}
        shrunk = shrink(inputs, fails, 20.0)
        assert fails(shrunk.inputs)
        assert shrunk.end == "smallest"
        assert max(value.size for value in shrunk.inputs.values() if isinstance(value, np.ndarray)) <= wanted
        assert all(np.array_equal(before[name], inputs[name]) for name in inputs), "the given inputs changed"

    @settings(deadline=None)  # the machine may pause
    @given(st.integers(1, 5), st.integers(1, 6), st.floats(-3, 3))
    def test_the_result_fails_and_is_not_larger(self, rows: int, width: int, limit: float) -> None:
        """For any threshold that the inputs exceed, the result exceeds it too."""
        inputs = {"x": np.random.default_rng(rows * width).normal(size=(rows, width)) * 2}
        if inputs["x"].max() <= limit:
            return
        shrunk = shrink(inputs, lambda x: bool((x["x"] > limit).any()), 5.0)
        assert (shrunk.inputs["x"] > limit).any()
        assert measure(shrunk.inputs) <= measure(inputs)
        assert shrunk.inputs["x"].size == 1

    @pytest.mark.parametrize(
        ("inputs", "fails", "wanted"),
        [
            ({"epsilon_high": 0.28, "beta": 0.3}, lambda x: x["beta"] > 0.0, {"epsilon_high": 0.2, "beta": 1.0}),
            ({"scale": 0.4375, "on": True}, lambda x: 0.0 < x["scale"] < 1.0, {"scale": 0.4, "on": True}),
            ({"seed": 987654321}, lambda x: x["seed"] % 3 == 2, {"seed": 2}),
            ({"seed": 987654321}, lambda x: x["seed"] > 20, {"seed": 987654321}),
            ({"top_k": 40}, lambda x: x["top_k"] > 5, {"top_k": 6}),
            ({"ddof": 1, "eps": float("inf")}, lambda x: x["eps"] > 0, {"ddof": 1, "eps": 1.0}),
            ({"delta": 1.7, "old": np.ones(3)}, lambda x: True, {"delta": None, "old": None}),
            ({"left": {"beta": 0.7}, "right": {"beta": 0.7}},
             lambda x: x["left"]["beta"] == x["right"]["beta"] > 0.5, {"left": {"beta": 1.0}, "right": {"beta": 1.0}}),
        ],
        ids=["defaults", "digits", "first seed", "no small seed", "integer", "declared stays", "nothing", "both calls"],
    )  # fmt: skip
    def test_scalars_become_simple(self, inputs: Inputs, fails: Callable[[Inputs], bool], wanted: Inputs) -> None:
        """Defaults, then 0, 1 and fewer digits, first seeds, and None for optional inputs; declared values stay."""
        shrunk = shrink(inputs, fails, 20.0, settled=frozenset({"ddof"}), optional=frozenset({"delta", "old"}))
        assert shrunk.inputs == wanted
        assert shrunk.end == "smallest"

    @pytest.mark.parametrize("row", [0, 2])
    def test_ids_are_renumbered_with_the_vocabulary(self, row: int) -> None:
        """Indexes into an axis are renumbered when it is shortened."""
        logits = np.random.default_rng(1).normal(size=(3, 400))
        logits[row, 321] = 50.0
        history = np.array([[7, 40, -1], [321, 399, 5], [8, 321, 321]])
        history[row, 1] = 321

        def fails(x: Inputs) -> bool:
            ids = x["history"]
            if ids.max() >= x["logits"].shape[1] or len(ids) != len(x["logits"]):
                return False
            return bool((np.take_along_axis(x["logits"], np.maximum(ids, 0), 1)[ids >= 0] >= 50.0).any())

        shrunk = shrink({"logits": logits, "history": history}, fails, 20.0)
        assert fails(shrunk.inputs)
        assert shrunk.inputs["logits"].shape == shrunk.inputs["history"].shape == (1, 1)

    @pytest.mark.parametrize("kind", ["same", "shuffled", "twice", "wider"])
    def test_two_calls_shrink_together(self, kind: str) -> None:
        """Rows and columns are removed from both calls of a law, and indexes between them stay valid."""
        rng = np.random.default_rng(3)
        left, take = rng.normal(size=(6, 5)), np.arange(30)
        left[4, 3] = 9.0
        right = left
        if kind == "shuffled":
            order = rng.permutation(6)
            right, take = left[order], np.arange(30).reshape(6, 5)[np.argsort(order)].reshape(-1)
        elif kind == "twice":
            right = np.concatenate([left, left])
        elif kind == "wider":
            right, take = np.pad(left, ((0, 0), (0, 2))), (np.arange(6)[:, None] * 7 + np.arange(5)).reshape(-1)

        def fails(x: Inputs) -> bool:
            a, b = x["left"]["x"], x["right"]["x"].reshape(-1)
            whole = len(x["take"]) == a.size and x["take"].max() < b.size
            return bool(whole and (b[x["take"]] == a.reshape(-1)).all() and (a > 5).any() and a.shape[1] > 1)

        shrunk = shrink({"left": {"x": left}, "right": {"x": right}, "take": take}, fails, 20.0)
        assert shrunk.inputs["left"]["x"].shape == (1, 2)
        assert shrunk.inputs["right"]["x"].size <= (4 if kind == "twice" else 2)

    def test_texts_are_removed(self) -> None:
        shrunk = shrink({"texts": ["a", "b", " c", "d", "e"]}, lambda x: any(t[0] == " " for t in x["texts"]), 20.0)
        assert shrunk.inputs == {"texts": [" c"]}

    def test_a_model_is_not_changed(self) -> None:
        """Its recipe stays, since another model is another failure; the recipe of prompts may change."""
        model = Recipe("model", {"seed": 11, "vocab": 272, "count": 5})
        inputs = {"model": model, "prompts": Recipe("data", {"kind": "sums", "seed": 77, "count": 12})}
        seen: list[Any] = []

        def fails(x: Inputs) -> bool:
            seen.append(x["model"])
            return bool(x["prompts"].spec["count"] >= 3)

        shrunk = shrink(inputs, fails, 20.0)
        assert shrunk.inputs == {"model": model, "prompts": Recipe("data", {"kind": "sums", "seed": 0, "count": 3})}
        assert all(recipe == model for recipe in seen)

    def test_ctrl_c_keeps_the_smallest_so_far(self) -> None:
        """The search returns the smallest input so far and why it ended."""
        left = iter(range(3))

        def fails(x: Inputs) -> bool:
            del x
            if next(left, None) is None:
                raise KeyboardInterrupt
            return True

        shrunk = shrink({"x": np.arange(1.0, 65.0)}, fails, 20.0)
        assert (shrunk.inputs["x"].size, shrunk.end) == (8, "stopped")

    def test_it_stops_after_the_budget(self) -> None:
        """Without time the inputs come back unchanged and unfinished."""
        shrunk = shrink(batch(8, 16), lambda x: True, 0.0)
        assert shrunk.end == "time"
        assert elements(shrunk.inputs) == elements(batch(8, 16))

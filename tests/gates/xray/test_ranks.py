"""Scripts on two ranks: gloo for PyTorch, whose environment TRL's lends, and MLX's ring."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import mlx_ranks, torch_ranks

from gates.xray import baseline

Xrayed = Callable[[str, int], dict[str, Any]]


@pytest.fixture(scope="module", params=["torch", "mlx"])
def xrayed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Xrayed:
    """Return a function that runs a variant on so many ranks, once."""
    folder = tmp_path_factory.mktemp(request.param)
    known: dict[tuple[str, int], dict[str, Any]] = {}
    ranks_of = {"torch": torch_ranks, "mlx": mlx_ranks}[request.param]

    def xray(variant: str, ranks: int) -> dict[str, Any]:
        if (variant, ranks) not in known:
            known[variant, ranks] = ranks_of(folder / f"{variant.replace(' ', '-')}-{ranks}", variant, ranks)
        return known[variant, ranks]

    return xray


def coefficients(document: dict[str, Any]) -> dict[str, float]:
    """Return the coefficients of the first update by the token's key."""
    rows = document["updates"][0]["rows"]
    pairs = itertools.chain.from_iterable(zip(row["keys"], row["coefficients"], strict=True) for row in rows)
    return {key: value for key, value in pairs if key}


@pytest.mark.slow
class TestTwoRanks:
    """The rows of one step, half of them on each rank."""

    @pytest.mark.parametrize("variant", ["row mean", pytest.param("token mean", marks=pytest.mark.long)])
    def test_updates_equal_those_of_one_process(self, variant: str, xrayed: Xrayed) -> None:
        """The joined coefficients of both updates are those of one process over the same rows, to their errors."""
        one, two = xrayed(variant, 1), xrayed(variant, 2)
        assert (one["world_size"], two["world_size"]) == (1, 2)
        changes = baseline.compare(one, two)
        assert (changes.none, changes.compared) == (True, 96), changes.sentence
        assert [update["unexplained"] < 1e-5 for update in two["updates"]] == [True, True]

    def test_gradients_that_are_summed_show(self, xrayed: Xrayed) -> None:
        """Gradients that nobody divides by the number of ranks have coefficients twice as large."""
        one, two = xrayed("row mean", 1), xrayed("summed", 2)
        assert not baseline.compare(one, two).none
        before, after = coefficients(one), coefficients(two)
        assert before.keys() == after.keys()
        np.testing.assert_allclose([after[key] for key in before], [2 * value for value in before.values()], atol=1e-6)

    @pytest.mark.long
    def test_a_normaliser_of_each_rank_shows(self, xrayed: Xrayed) -> None:
        """With six and two rows a token mean over the rank's own tokens weighs the tokens of two rows more."""
        assert not baseline.compare(xrayed("token mean", 1), xrayed("own normaliser", 2)).none


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        "fully_shard",
        pytest.param("fsdp", marks=pytest.mark.long),
        pytest.param("tensor parallel", marks=pytest.mark.long),
    ],
)
def test_shards_are_refused(variant: str, tmp_path: Path) -> None:
    """One sentence with the remedy; TestTwoRanks runs it, one process without shards."""
    document = torch_ranks(tmp_path / "two", variant, 2)
    (sentence,) = document["cannot"]
    assert "the parameters are sharded" in sentence
    assert "run one process, without sharding, on a tiny model" in sentence
    assert document["updates"] == []


@pytest.mark.long
def test_a_sharded_state_is_recorded(tmp_path: Path) -> None:
    """ZeroRedundancyOptimizer gives each rank whole gradients: its updates are those of one process, and AdamW is read."""
    one, two = (torch_ranks(tmp_path / str(ranks), "zero", ranks) for ranks in (1, 2))
    changes = baseline.compare(one, two)
    assert (changes.none, changes.compared) == (True, 96), changes.sentence
    for document in (one, two):
        readings = {reading["name"]: reading["sentence"] for reading in document["updates"][1]["readings"]}
        assert "the update follows AdamW with rate 0.01" in readings["update"]

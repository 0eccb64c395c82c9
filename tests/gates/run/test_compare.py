"""The one comparison on which every verdict rests."""

import math

import numpy as np
import pytest

from gates.model import Evidence
from gates.run.compare import worst

NAN, INF = math.nan, math.inf


class TestWorst:
    """The worst element in units of its scale."""

    @pytest.mark.parametrize(
        ("got", "want", "scale", "expected"),
        [
            ([1.0, 2.5], [1.0, 2.0], 0.1, 5.0),  # |2.5 − 2| / 0.1
            ([3.0, 1.0], [1.0, 2.0], [4.0, 0.1], 10.0),  # 2/4 = 0.5 and 1/0.1 = 10
            ([INF], [INF], 1.0, 0.0),
            ([INF], [-INF], 1.0, INF),
            ([1.0], [INF], 1.0, INF),
            ([INF], [1.0], 1.0, INF),
            ([NAN], [NAN], 1.0, 0.0),
            ([1.0], [NAN], 1.0, INF),
            ([0.0], [0.0], 0.0, 0.0),
            ([1e-300], [0.0], 0.0, INF),
            ([1e308], [-1e308], 1.0, INF),
        ],
    )
    def test_values(self, got: list[float], want: list[float], scale: float, expected: float) -> None:
        """Finite differences are scaled; what is not finite agrees with itself only."""
        assert worst(got, want, scale)[0] == pytest.approx(expected)

    def test_an_unwanted_nan_is_nan_in_any_position(self) -> None:
        """A NaN among right values is the worst element, and holds no relation."""
        observed, place = worst([1.0, NAN, 9.0], [1.0, 2.0, 3.0])
        assert math.isnan(observed)
        assert "[1]" in place
        assert not Evidence("q", observed, "<=", 1e9, "test").holds

    def test_shapes_and_emptiness_are_errors(self) -> None:
        """Nothing is compared with something of another shape, nor nothing with nothing."""
        with pytest.raises(ValueError, match="shape"):
            worst([1.0], [1.0, 2.0])
        with pytest.raises(ValueError, match="nothing to compare"):
            worst(np.zeros(0), np.zeros(0))


class TestRelation:
    """When evidence holds."""

    @pytest.mark.parametrize("relation", ["<=", "<", ">=", ">", "==", "!="])
    @pytest.mark.parametrize(("a", "b"), [(NAN, 1.0), (1.0, NAN), (NAN, NAN)])
    def test_nan_satisfies_no_relation(self, relation: str, a: float, b: float) -> None:
        """Not even !=."""
        assert not Evidence("q", a, relation, b, "test").holds  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("a", "relation", "b", "holds"),
        [
            (1, "<=", 1, True),
            (1, "<", 1, False),
            (2, ">", 1, True),
            (1, ">=", 2, False),
            (1, "==", 1, True),
            (1, "!=", 2, True),
        ],
    )
    def test_relations_mean_what_they_say(self, a: float, relation: str, b: float, holds: bool) -> None:
        assert Evidence("q", a, relation, b, "test").holds is holds  # type: ignore[arg-type]

    def test_the_sentence_follows_the_grammar(self) -> None:
        """`{quantity} is {observed}, must be {relation} {limit} ({where})`."""
        assert Evidence("loss", 2.0, "<=", 1.0, "b", "row 3").sentence() == "loss is 2, must be <= 1 (row 3)"

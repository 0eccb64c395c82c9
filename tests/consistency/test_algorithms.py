"""The table of algorithms against everything that has formulas, gates or texts of its own."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gates.families.loss import terms
from gates.registry import load
from gates.subjects import rlkernels as kernels
from gates.subjects.mlx_trainer import loss as trainer
from gates.subjects.numpy_baseline import loss as baseline
from gates_reference.algorithms import ALGORITHMS, PREFERENCES, Algorithm
from gates_reference.oracle import losses as oracle
from gates_reference.trainer.algorithms import registry

pytestmark = pytest.mark.fast

ROOT = Path(__file__).resolve().parents[2]
TABLE = "reference/gates_reference/algorithms.py"
CONVENTION = "rust/rlkernels/src/policy_loss/algorithm.rs"
DEFINITIONS = "docs/definitions.md"
POLICY = np.log(np.array([[0.5, 0.25], [0.125, 0.5]]))
NONE = dict.fromkeys(("epsilon_low", "epsilon_high", "delta", "max_length", "micro_batches", "dapo_denominator"))
Loss = Callable[..., Any]
LOSSES: dict[str, Loss] = {
    "reference/gates_reference/oracle/definitions/losses.py": oracle.policy_loss,
    "gates/subjects/numpy_baseline/loss.py": baseline.policy_loss,
    CONVENTION: kernels.policy_loss,
}


def inputs(one: Algorithm, advantages: Any) -> dict[str, Any]:
    constants = {**NONE, **one.constants, **({"micro_batches": [2]} if "micro_batches" in one.constants else {})}
    shared = {"policy": POLICY, "old": POLICY - 0.125, "reference": None, "beta": 0.0, "kl_ratio": "none"}
    return {**shared, "advantages": np.asarray(advantages), "algorithm": one.name, **constants}


def named_in_rust() -> set[str]:
    text = (ROOT / CONVENTION).read_text().partition("pub enum Algorithm")[2]
    own = re.split(r"macro_rules!|enum DapoDenominator", text)[0]
    return set(re.findall(r'\b[A-Z]\w* =>? "([\w-]+)"', own))


class TestPolicyLosses:
    """Every policy loss of the table is everywhere, and nothing else is."""

    @pytest.mark.parametrize("file", LOSSES)
    def test_names_are_those_of_the_table(self, file: str) -> None:
        """An unknown name is refused with a message that lists the known ones."""
        with pytest.raises(ValueError, match="algorithm") as refused:
            LOSSES[file](**{**inputs(ALGORITHMS["grpo"], [1.0, -1.0]), "algorithm": "none"})
        known = set(re.findall(r"""["']([\w+-]+)["']""", str(refused.value))) - {"none"}
        assert known == (named_in_rust() if file == CONVENTION else set(ALGORITHMS)), f"edit {file} or {TABLE}"

    @pytest.mark.parametrize("file", LOSSES)
    @pytest.mark.parametrize("one", ALGORITHMS.values(), ids=lambda one: one.name)
    def test_constants_and_rows_are_those_of_the_table(self, one: Algorithm, file: str) -> None:
        """A loss takes the constants of its row, and advantages of tokens only where a row has no single one."""
        if file == CONVENTION and one.name not in named_in_rust():
            pytest.skip("a kernel is optional")
        LOSSES[file](**inputs(one, [1.0, -1.0]))
        by_token = inputs(one, [[1.0, -1.0], [0.5, 2.0]])
        if not one.by_row:
            LOSSES[file](**by_token)
            return
        with pytest.raises(ValueError, match="advantages"):
            LOSSES[file](**by_token)

    @pytest.mark.parametrize(
        ("file", "names"),
        [
            (CONVENTION, named_in_rust),
            ("gates/subjects/mlx_trainer/loss.py", lambda: set(trainer.ALGORITHMS)),
            ("gates/subjects/rlkernels.py", lambda: set(kernels.CONVENTIONS["policy_loss"]["algorithm"])),
        ],
        ids=["rust", "trainer", "build"],
    )
    def test_lists_are_those_of_the_table(self, file: str, names: Callable[[], set[str]]) -> None:
        """Names in Rust, in the trainer and in the build; after a change of Rust: `make setup`."""
        wanted = set(ALGORITHMS) if "trainer" in file else named_in_rust()  # a kernel is optional
        assert names() == wanted <= set(ALGORITHMS), f"edit {file} or {TABLE}: {names() ^ wanted}"

    @pytest.mark.parametrize("one", ALGORITHMS.values(), ids=lambda one: one.name)
    def test_the_trainer_has_the_row_s_properties(self, one: Algorithm) -> None:
        """By row or token, the default aggregation, and the name of the class."""
        kind, settings = registry.ALGORITHMS[one.name]
        file = f"reference/gates_reference/trainer/algorithms/{one.name.replace('++', '_pp').replace('-', '_')}.py"
        aggregation = {"token-mean": "global"}.get(one.aggregation, one.aggregation)  # the trainer's word
        assert (kind.by_row, settings().aggregation) == (one.by_row, aggregation), f"edit {file} or {TABLE}"

    def test_every_algorithm_has_a_textbook_program(self) -> None:
        """So its gates know how far an honest program may be off."""
        assert {row.bound for row in ALGORITHMS.values()} <= set(terms.BOUNDS), (
            f"edit gates/families/loss/terms.py or {TABLE}"
        )

    @pytest.mark.parametrize("name", [*ALGORITHMS, *PREFERENCES])
    def test_it_is_defined(self, name: str) -> None:
        assert f"`{name}`" in (ROOT / DEFINITIONS).read_text(), f"edit {DEFINITIONS}: {name!r} has no definition"


class TestGates:
    """No algorithm without a gate."""

    @pytest.mark.parametrize("one", [*ALGORITHMS.values(), *PREFERENCES.values()], ids=lambda one: one.name)
    def test_every_algorithm_has_its_gate(self, one: Any) -> None:
        """The gate of its row exists, and some mutant is caught by it."""
        assert one.gate in load().gates, f"edit gates/families or {TABLE}: {one.name} has no gate {one.gate!r}"
        caught = {gate for mutant in load().mutants.values() for gate in mutant.caught_by}
        assert one.gate in caught, f"edit the mutants of {one.gate}: none is caught by it"

    def test_all_that_the_trainer_trains_is_in_the_table(self) -> None:
        assert set(registry.ALGORITHMS) == {*ALGORITHMS, *PREFERENCES}, (
            f"edit {TABLE} or reference/gates_reference/trainer"
        )
        files = (ROOT / "reference/gates_reference/trainer").glob("*/*.py")
        named = {
            name for file in files for name in re.findall(r'^    name = "([\w+-]+)"$', file.read_text(), re.MULTILINE)
        }
        assert named == {*ALGORITHMS, *PREFERENCES}, (
            f"edit {TABLE}: classes in reference/gates_reference/trainer that it lacks"
        )

    def test_cases_ask_for_the_table_s_algorithms(self) -> None:
        """The conventions that cases name are declared names, and each is asked for."""
        cases = [case for gate in load().gates.values() for case in gate.cases]
        assert {case.conventions["algorithm"] for case in cases if "algorithm" in case.conventions} == set(ALGORITHMS)

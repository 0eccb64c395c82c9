"""The NumPy baseline and the MLX trainer's ops are correct in every quick case: what `gates check --quick` judges, as a test."""

from collections import Counter

import pytest

from gates.registry import load
from gates.run.execute import run
from gates.run.plan import Options, plan, runs_a_model

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "least"), [("numpy", 500), ("reference", 350)])
def test_every_quick_case_of_an_op_without_a_model_is_correct(name: str, least: int) -> None:
    """A changed sign, bound, mask, denominator or dtype is a verdict of another status, with its reason."""
    known = load()
    cases = plan(known.gates.values(), [known.subjects[name]], quick=True)
    verdicts = [judged.verdict for judged in run([c for c in cases if not runs_a_model(c.gate)], Options(quick=True))]
    statuses = Counter(verdict.status for verdict in verdicts)
    assert [(v.gate, v.case, v.reason) for v in verdicts if v.status not in {"correct", "unsupported"}] == []
    assert statuses["correct"] >= least

"""Kernels and trainer are correct in every quick case, with each reason; run/test_edges.py holds the NumPy baseline to them."""

from collections import Counter

import pytest

from gates.registry import load
from gates.run.execute import run
from gates.run.plan import Options, plan

pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "least"), [("rlkernels", 400), ("reference", 380)])
def test_every_quick_case_is_correct(name: str, least: int) -> None:
    """A changed sign, bound, mask, denominator, dtype, draw or update is a verdict of another status."""
    known = load()
    cases = plan(known.gates.values(), [known.subjects[name]], quick=True)
    verdicts = [judged.verdict for judged in run(cases, Options(quick=True))]
    assert [(v.gate, v.case, v.reason) for v in verdicts if v.status not in {"correct", "unsupported"}] == []
    assert Counter(verdict.status for verdict in verdicts)["correct"] >= least

"""A subject that lacks an algorithm is `unsupported` in its cases, and judged in all others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from broken import verdicts

OLDER_BUILD = """
import rlkernels

whole = rlkernels.policy_loss

def policy_loss(*args, algorithm, **keywords):
    return whole(*args, algorithm="none such" if algorithm == "luspo" else algorithm, **keywords)

rlkernels.policy_loss = policy_loss
from gates.subjects.rlkernels import CONVENTIONS, OPS, VERSIONS
"""
WITHOUT_A_KERNEL = """
import rlkernels

del rlkernels.full_kl
from gates.subjects.rlkernels import CONVENTIONS, OPS, VERSIONS
"""
UNDECLARED = """
from gates.subjects.numpy_baseline.subject import OPS, loss

del loss.PRESETS["luspo"]
"""
DECLARED = UNDECLARED + 'CONVENTIONS = {"policy_loss": {"algorithm": tuple(loss.PRESETS)}}\n'


def statuses(folder: Path, code: str, gate: str) -> dict[bool, Counter[str]]:
    """Return how many verdicts of each status there are, in the cases with LUSPO in their name and in the others."""
    found: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for verdict in verdicts(folder, code, gate):
        found["luspo" in verdict.gate + verdict.case][verdict.status] += 1
    return found


@pytest.mark.parametrize("gate", ["loss.luspo.matches-definition", "loss.reductions.hold", "isa.bits-identical"])
def test_a_build_that_lacks_an_algorithm_is_unsupported_there(tmp_path: Path, gate: str) -> None:
    """The subject asks rlkernels which algorithms it has, so no case of another one fails; all else passes."""
    found = statuses(tmp_path, OLDER_BUILD, gate)
    assert set(found[True]) == {"unsupported"}
    assert set(found[False]) <= {"correct"}


def test_a_build_that_lacks_a_kernel_is_unsupported_there(tmp_path: Path) -> None:
    """Its op is not defined by that build."""
    assert set(statuses(tmp_path, WITHOUT_A_KERNEL, "kl.full.matches-definition")[False]) == {"unsupported"}


def test_a_declared_choice_of_algorithms_is_believed(tmp_path: Path) -> None:
    """A subject of a user's that declares its algorithms is asked for no other."""
    assert set(statuses(tmp_path, DECLARED, "loss.luspo.matches-definition")[True]) == {"unsupported"}


def test_who_declares_nothing_is_asked_everything(tmp_path: Path) -> None:
    """Without a declaration an algorithm that is refused is a failure, as any other exception."""
    assert set(statuses(tmp_path, UNDECLARED, "loss.luspo.matches-definition")[True]) == {"wrong"}

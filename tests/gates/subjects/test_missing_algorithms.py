"""A subject that lacks an algorithm is `unsupported` in its cases, and judged in all others."""

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
    """Count the verdicts of each status, separately for cases with LUSPO in their name."""
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for verdict in verdicts(folder, code, gate):
        counts["luspo" in verdict.gate + verdict.case][verdict.status] += 1
    return counts


@pytest.mark.parametrize("gate", ["loss.luspo.matches-definition", "loss.reductions.hold", "isa.bits-identical"])
def test_an_algorithm_missing_in_a_build_is_unsupported(tmp_path: Path, gate: str) -> None:
    """The subject declares only the algorithms of the build; all other cases pass."""
    counts = statuses(tmp_path, OLDER_BUILD, gate)
    assert set(counts[True]) == {"unsupported"}
    assert set(counts[False]) <= {"correct", "unsupported"}  # of algorithms that no build has


def test_a_kernel_missing_in_a_build_is_unsupported(tmp_path: Path) -> None:
    assert set(statuses(tmp_path, WITHOUT_A_KERNEL, "kl.full.matches-definition")[False]) == {"unsupported"}


def test_undeclared_algorithms_are_unsupported(tmp_path: Path) -> None:
    """A user's subject is judged only in the algorithms that it declares."""
    assert set(statuses(tmp_path, DECLARED, "loss.luspo.matches-definition")[True]) == {"unsupported"}


def test_without_a_declaration_every_algorithm_is_judged(tmp_path: Path) -> None:
    """Refusing an algorithm without a declaration is a failure, like any exception."""
    assert set(statuses(tmp_path, UNDECLARED, "loss.luspo.matches-definition")[True]) == {"raises", "hardening"}

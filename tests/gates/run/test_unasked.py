"""An op that a subject provides and no case judges is said, with the reason, and the run does not hold."""

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import here

from gates.model import Verdict
from gates.provided import Provided
from gates.results.jsonl import read
from gates.run.unasked import Asked

PROVIDES = {"loss": Provided("loss", {"algorithm": ("grpo", "cispo")}), "kl": Provided("kl")}
CORRECT = Verdict("g", "mine", "c", 0, "correct", "held", "", op="loss[grpo]", level="definition")
SUNDAYS = """
from gates.subjects.numpy_baseline import subject as plain

def token_kl(**inputs):
    raise NotImplementedError("only on Sundays")

OPS = {"token_kl": token_kl, "group_advantages": plain.OPS["group_advantages"]}
"""


def sentences(*verdicts: Verdict, provides: dict[str, Provided] = PROVIDES) -> list[str]:
    asked = Asked()
    for verdict in verdicts:
        asked.add(verdict)
    return asked.sentences("mine", provides)


def test_what_was_judged_is_not_said() -> None:
    assert sentences(CORRECT) == []


def test_a_declared_preset_that_no_case_judged_is_said() -> None:
    left = replace(CORRECT, status="unsupported", op="loss[cispo]", reason="it has clip_width 'one', not 'two'")
    assert sentences(CORRECT, left) == ["loss[cispo] of mine was not judged: it has clip_width 'one', not 'two' (1)"]
    assert sentences(CORRECT, left, replace(left, status="wrong")) == []


def test_a_preset_that_is_not_declared_is_not_said() -> None:
    assert sentences(CORRECT, replace(CORRECT, status="unsupported", op="loss[gspo]", reason="no")) == []


def test_hardening_judges_no_formula() -> None:
    raised = replace(CORRECT, status="hardening", cause="raised", op="kl", reason="kl raised: IndexError")
    assert sentences(raised, raised) == ["kl of mine was not judged: kl raised: IndexError (2)"]


def test_an_argument_that_another_one_kept_out_is_said() -> None:
    """A loss takes β, and every case with one gives an estimator that it has no argument for."""
    provides = {"loss": Provided("loss", arguments=("policy", "beta"))}
    reason = "loss has no argument `kl_estimator`"
    left = replace(
        CORRECT, status="unsupported", cause="argument", reason=reason, gave=frozenset(("beta", "kl_estimator"))
    )
    assert sentences(CORRECT, left, provides=provides) == [f"loss of mine was never given `beta`: {reason}"]
    given = replace(CORRECT, gave=frozenset(("beta",)))
    assert sentences(CORRECT, left, given, provides=provides) == []
    declined = replace(left, cause="lacking", reason="only on Sundays")  # NotImplementedError declines a case
    assert sentences(CORRECT, left, declined, provides=provides) == []


def test_an_argument_that_one_preset_was_not_given_is_said() -> None:
    """While another preset was; of an undeclared preset, or where no case gives it, nothing is said."""
    provides = {"loss": Provided("loss", {"algorithm": ("grpo", "cispo")}, arguments=("policy", "beta", "delta"))}
    reason = "loss has no argument `cispo_bound`"
    given, of_cispo = replace(CORRECT, gave=frozenset(("beta", "delta"))), replace(CORRECT, op="loss[cispo, row mean]")
    left = replace(of_cispo, status="unsupported", cause="argument", reason=reason, gave=frozenset(("beta",)))
    said = [f"loss[cispo] of mine was never given `beta`: {reason}"]
    assert sentences(given, of_cispo, left, provides=provides) == said
    assert sentences(given, of_cispo, left, replace(left, cause="lacking"), provides=provides) == []
    assert sentences(given, of_cispo, left, replace(given, op="loss[cispo]"), provides=provides) == []
    assert sentences(given, replace(of_cispo, op="loss[gspo]"), replace(left, op="loss[gspo]"), provides=provides) == []


def test_what_no_preset_was_given_is_said_once() -> None:
    provides = {"loss": Provided("loss", {"algorithm": ("grpo", "cispo")}, arguments=("policy", "beta"))}
    reason = "loss has no argument `kl_estimator`"
    left = replace(CORRECT, status="unsupported", cause="argument", reason=reason, gave=frozenset(("beta",)))
    of_cispo = [replace(verdict, op="loss[cispo]") for verdict in (CORRECT, left)]
    said = [f"loss of mine was never given `beta`: {reason}"]
    assert sentences(CORRECT, left, *of_cispo, provides=provides) == said


@pytest.mark.parametrize("select", ["kl.k1.matches-definition", "*matches-definition"])
def test_a_run_says_so_and_exits_with_3(tmp_path: Path, select: str) -> None:
    """Also where another op held."""
    (tmp_path / "mine.py").write_text(SUNDAYS)
    done = here("check", select, "--quick", "--subject", "./mine.py", "--out", "o", cwd=tmp_path)
    assert done.returncode == 3, done.stdout
    words = " ".join(done.stdout.split())
    assert "token_kl of mine was not judged: " in words
    assert "only on Sundays" in words
    (path,) = (tmp_path / "o").glob("*.jsonl")
    run = read(path)
    assert run.summary is not None
    assert len(run.summary.unasked) == 1
    assert run.summary.exit_code == 3


def test_an_op_that_no_chosen_gate_asks_is_not_said(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SUNDAYS)
    options = ["--quick", "--subject", "./mine.py", "--out", "o"]
    assert here("check", "advantages.matches-definition", *options, cwd=tmp_path).returncode == 0

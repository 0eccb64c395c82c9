"""Failing cases of a run: shrinking the first, and keeping the others as drawn."""

import time
from pathlib import Path

import numpy as np
import pytest
from counterexample_doubles import mutated

from gates.model import Verdict
from gates.registry import load
from gates.run.execute import run
from gates.run.plan import Options, PlannedCase
from gates.shrink import collect, probe
from gates.shrink.collect import Shrinker
from gates.shrink.failing_case import CannotShrinkError, Progress, shrink_case
from gates.shrink.file import read
from gates.shrink.probe import Asker
from gates.subjects.catalogue import from_file

OTHER_DDOF = """
def group_advantages(rewards, group_size, *, scale, ddof, eps, eps_mode, baseline):
    groups = rewards.reshape(-1, group_size)
    std = groups.std(axis=1, ddof=1 - ddof, keepdims=True)
    return {"advantages": ((groups - groups.mean(axis=1, keepdims=True)) / (std + eps)).reshape(-1)}

OPS = {"group_advantages": group_advantages}
"""


class TestShrinking:
    """Mutants are shrunk to a few numbers."""

    def test_shrinking_keeps_the_kind_of_failure(self, tmp_path: Path) -> None:
        """A program with the wrong ddof keeps two rewards: with one, ddof 1 gives NaN, which is another failure."""
        (tmp_path / "mine.py").write_text(OTHER_DDOF)
        registry = load()
        gate = registry.gates["advantages.matches-definition"]
        case = next(case for case in gate.cases if case.name == "group-mean-add-ddof0-float32")
        planned = PlannedCase(gate, from_file(str(tmp_path / "mine.py"), None), case)
        shrunk = shrink_case(planned, Options(), registry.subjects)
        assert shrunk.elements_after == 2
        assert "got nan" not in shrunk.words

    def test_a_correct_subject_has_no_counterexample(self) -> None:
        """The search refuses a case that does not fail."""
        registry = load()
        gate = registry.gates["kl.k1.matches-definition"]
        planned = PlannedCase(gate, registry.subjects["numpy"], gate.cases[0])
        with pytest.raises(CannotShrinkError, match="it did not fail again"):
            shrink_case(planned, Options(), registry.subjects)

    def test_many_groups_are_shrunk(self) -> None:
        """With 56,008 rewards in 7,001 groups, groups are removed before rows, whose halves would split a group."""
        registry = load()
        planned, options = mutated(registry, "isa.one-lane-of-one-set", "advantages-group-float32")
        shrunk = shrink_case(planned, options, registry.subjects)
        assert (shrunk.elements_before, shrunk.elements_after, shrunk.finished) == (262336, 3, True)

    def test_a_rollout_is_cut_to_a_few_tokens(self) -> None:
        """The cut limits each call between check and subject, including amounts that the check fixes."""
        registry = load()
        planned, options = mutated(registry, "rollout.scores-untempered", "top-p-batched")
        shrunk = shrink_case(planned, options, registry.subjects)
        assert (shrunk.unit, shrunk.judged_beside) == ("tokens", "reference")
        assert shrunk.elements_before == 768, "choose_eos and the rollout: 6 prompts × 8 samples × 8 tokens each"
        assert shrunk.elements_after == 2
        assert shrunk.cut == {"prompts": 1, "samples": 1, "max_tokens": 1}
        assert shrunk.words.endswith("each rollout cut to 1 prompt, 1 sample of each, 1 token")

    def test_a_trial_longer_than_the_budget_is_not_shrunk(self) -> None:
        registry = load()
        planned, options = mutated(registry, "rollout.batched-padding-visible", "greedy")
        start = time.monotonic()
        with pytest.raises(CannotShrinkError, match=r"one trial takes longer than the budget of 0\.2 s"):
            shrink_case(planned, options, registry.subjects, budget_s=0.2)
        assert time.monotonic() - start < 30.0, "the start of one worker, and no rollouts"


class Stopping(Progress):
    """Simulates Ctrl-C at the first smaller input."""

    def smaller(self, size: str) -> None:
        """Raise KeyboardInterrupt."""
        raise KeyboardInterrupt


class TestCollecting:
    """One failure of each gate and subject; the inputs of the others are kept as drawn."""

    def failing(self, tmp_path: Path, *gates: str, mutant: str = "loss.ratio-constant") -> Shrinker:
        """Return the collected failures of these gates with a mutant."""
        registry = load()
        mutation = registry.mutants[mutant]
        options = Options(mutant={"target": mutation.target, "patch": mutation.patch}, quick=True)
        host = registry.subjects[mutation.host]
        cases = [PlannedCase(gate, host, gate.cases[0]) for gate in map(registry.gates.__getitem__, gates)]
        maker = Shrinker(cases, options, registry.subjects, tmp_path)
        for judged in run(cases, options):
            maker.note(judged.verdict)
        return maker

    def test_the_first_few_are_shrunk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The others are kept as drawn, with the reason; both kinds fail again from their files."""
        monkeypatch.setattr(collect, "MOST", 1)
        maker = self.failing(tmp_path, "loss.grpo.matches-definition", "loss.dapo.matches-definition")
        small, drawn = maker.run()
        assert (small.reason, small.counterexample is not None and small.counterexample.elements_after <= 4) == (
            "",
            True,
        )
        assert drawn.reason == "only the first 1 failures of a run are shrunk"
        for kept in (small, drawn):
            assert kept.path is not None
            counterexample = read(kept.path)
            asker = Asker(maker.cases[0].subject, mutant=maker.options.mutant)
            try:
                gate = load().gates[counterexample.gate]
                assert asker.ask(gate, gate.cases[0], counterexample.inputs, counterexample.cut).state == "fails"
            finally:
                asker.close()

    def test_a_timeout_is_not_shrunk(self, tmp_path: Path) -> None:
        """Each try would take its whole limit; documented deviations are ignored."""
        gate = load().gates["rollout.batched.equals-naive"]
        planned = PlannedCase(gate, load().subjects["reference"], gate.cases[0])
        maker = Shrinker([planned], Options(), load().subjects, tmp_path)
        maker.note(Verdict(gate.id, "reference", gate.cases[0].name, 1, "wrong", "timeout", "no answer within 20 s"))
        maker.note(Verdict("other", "reference", "c", 1, "wrong", "departs", "documented"))
        (kept,) = maker.run()
        assert kept.reason == "a failure by timeout takes the whole time limit at each try"
        assert kept.path is not None
        assert read(kept.path).inputs == gate.cases[0].make(np.random.default_rng(1))

    def test_a_failing_search_does_not_fail_the_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """If a move cannot handle a plugin's inputs, they are kept as drawn, with the reason."""

        def broken(*_: object, **__: object) -> None:
            raise OverflowError("too large")

        monkeypatch.setattr(collect, "shrink_case", broken)
        gate = load().gates["kl.k1.matches-definition"]
        planned = PlannedCase(gate, load().subjects["numpy"], gate.cases[0])
        maker = Shrinker([planned], Options(), load().subjects, tmp_path)
        maker.note(Verdict(gate.id, "numpy", gate.cases[0].name, 1, "wrong", "bound", "y is 2, must be <= 1"))
        (kept,) = maker.run()
        assert kept.reason == "the search raised OverflowError: too large"
        assert kept.path is not None

    def test_ctrl_c_keeps_the_smallest_and_skips_the_rest(self, tmp_path: Path) -> None:
        """The first is kept at its smallest so far, the next as drawn."""
        maker = self.failing(tmp_path, "loss.grpo.matches-definition", "loss.dapo.matches-definition")
        stopped, left = maker.run(Stopping())
        assert stopped.counterexample is not None
        assert not stopped.counterexample.finished
        assert left.reason == "the search was stopped"
        assert stopped.path is not None
        assert left.path is not None


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("kl raised: ValueError: 3 rows, must be 4", "kl raised: ValueError: 1 rows, must be 2", True),
        ("kl raised: ValueError: data.seed is 7", "kl raised: ValueError: adapter.rank: found 0", False),
        ("kl raised: ValueError: a b c", "kl raised: TypeError: a b c", False),
        ("kl raised: ValueError", "kl raised: ValueError", True),
        ("kl.x is float64[8, 16], must be float32[8, 16]", "kl.x is float64[1, 2], must be float32[1, 2]", True),
        ("kl.x is float64[8, 16], must be float32[8, 16]", "kl.x is float32[2, 1], must be float32[2, 2]", False),
        ("kl error: shape (12, 1), must be (12,)", "kl error: shape (3, 1), must be (3,)", True),
        ("kl error: shape (12, 1), must be (12,)", "kl error: shape (3,), must be (3, 1)", False),
    ],
)
def test_exceptions_are_compared_without_numbers(first: str, second: str, same: bool) -> None:
    """A search must not slide from one message into another."""
    assert (probe._kind_of(first) == probe._kind_of(second)) is same

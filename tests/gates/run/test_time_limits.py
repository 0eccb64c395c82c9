"""Time limits of calls: the option, the first call that may compile, and ops that time out again and again."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from command_line import here
from doubles import DOUBLE, make_gate

from gates.model import Case, Evidence, Op, Subject, Trial, Verdict
from gates.report.not_judged import counted
from gates.results.jsonl import read
from gates.run.execute import run
from gates.run.plan import Options, plan
from gates.run.time_limits import TIMEOUTS, TimeLimit
from gates.worker.process import Worker

Maker = Callable[..., Subject]
HANGS = "import time\ntime.sleep(60)"
SLOW_AT_FIRST = "import time\ntime.sleep(2.0 if N.append(1) or len(N) == 1 else SECOND)\nreturn {'y': 2 * x}"
CASE = make_gate().cases[0]
MANY = tuple(Case(str(n), lambda rng: {"x": rng.normal(size=8)}, quick=True) for n in range(6))


def judged(subject: Subject, *cases: Case, **options: object) -> list[Verdict]:
    chosen = Options(time_limit_option="--time-limit", **{"time_limit": 0.2, **options})  # type: ignore[arg-type]
    return [found.verdict for found in run(plan([make_gate(cases=cases or (CASE,))], [subject], quick=True), chosen)]


class TestLimit:
    """The seconds of a call."""

    def test_the_option_stands_instead_of_the_cases(self) -> None:
        """Also where a real model would have more patience; the first call has five times as much, at most 120 s more."""
        assert TimeLimit.of(CASE, Options()) == TimeLimit(5.0, 20.0)
        assert TimeLimit.of(CASE, Options(time_limit=0.5)) == TimeLimit(0.5, 2.0)
        assert TimeLimit.of(CASE, Options(model="tiny")) == TimeLimit(150.0, 120.0)
        assert TimeLimit.of(CASE, Options(model="tiny", time_limit=1.0)) == TimeLimit(1.0, 4.0)

    def test_the_message_names_the_option(self, subject: Maker) -> None:
        """The first call of an op may compile; the message says how long it had."""
        (verdict,) = judged(subject(HANGS))
        assert (verdict.status, verdict.cause) == ("timeout", "timeout")
        assert verdict.reason.startswith(
            "double timeout: no answer within 1 s (0.2 s, and 0.8 s more for a first call, which may compile); "
            "--time-limit sets another limit; it wrote nothing to standard error"
        )

    def test_a_later_call_has_the_plain_limit(self, subject: Maker) -> None:
        """A function that hangs in its second call is ended after the limit."""
        body = SLOW_AT_FIRST.replace("2.0 if", "0.0 if").replace("SECOND", "60.0")
        first, second, third = judged(subject(body, head="N = []"), *MANY[:3], time_limit=0.5)
        assert [first.status, second.status, third.status] == ["correct", "timeout", "correct"]
        assert "no answer within 0.5 s; --time-limit sets another limit; " in second.reason

    def test_a_first_call_may_compile(self, subject: Maker) -> None:
        """Two seconds at first, and none later, are no timeout at half a second."""
        body = SLOW_AT_FIRST.replace("SECOND", "0.0")
        assert {verdict.status for verdict in judged(subject(body, head="N = []"), *MANY, time_limit=0.5)} == {
            "correct"
        }

    def test_an_op_that_declines_has_not_compiled(self, subject: Maker) -> None:
        """Its first answer with a value is the first call."""
        body = "if N.append(1) or len(N) == 1: raise NotImplementedError\nimport time\ntime.sleep(1.0)\nreturn {'y': 2 * x}"
        worker = Worker.start(subject(body, head="N = []"), threads=1)
        try:
            kinds = [worker.call("double", {"x": 1.0}, limit_s=0.5, first_more_s=5.0).kind for _ in range(3)]
        finally:
            worker.close()
        assert kinds == ["unsupported", "value", "timeout"]

    def test_a_first_call_that_exceeded_its_time_is_not_waited_for_again(self, subject: Maker) -> None:
        """So that a function that hangs ends soon."""
        first, second = judged(subject(HANGS), *MANY[:2])
        assert "no answer within 1 s (" in first.reason
        assert "no answer within 0.2 s; " in second.reason


class TestRepeatedTimeouts:
    """After three timeouts of an op the rest of it is not asked."""

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_the_other_cases_are_not_asked(self, subject: Maker, jobs: int) -> None:
        """With several workers, those that were in the middle of a call count too."""
        verdicts = judged(subject(HANGS), *MANY, most_timeouts=TIMEOUTS, jobs=jobs)
        counts = Counter(verdict.status for verdict in verdicts)
        assert counts.keys() == {"timeout", "not asked"}
        assert TIMEOUTS <= counts["timeout"] < TIMEOUTS + jobs
        unasked = {(v.reason, v.cause, v.op) for v in verdicts if v.status == "not asked"}
        assert unasked == {("after 3 timeouts of double", "timeout", "double")}

    def test_without_the_rule_every_case_is_asked(self, subject: Maker) -> None:
        """Proofs and calibrations judge every case."""
        assert {verdict.status for verdict in judged(subject(HANGS), *MANY[:4])} == {"timeout"}

    def test_timeouts_in_between_count(self, subject: Maker) -> None:
        """They need not follow each other; an op that answers in time is not affected."""
        body = "import time\ntime.sleep(60.0 if x[0] < 0 else 0.0)\nreturn {'y': 2 * x}"
        cases = tuple(
            Case(str(n), lambda rng, sign=sign: {"x": np.full(3, sign)}, quick=True)
            for n, sign in enumerate((1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 1.0))
        )
        statuses = [v.status for v in judged(subject(body), *cases, most_timeouts=TIMEOUTS, time_limit=0.5)]
        assert statuses == [*["correct", "timeout"] * 3, "not asked", "not asked"]

    def test_what_the_subject_lacks_stays_unsupported(self, subject: Maker) -> None:
        """A case that it does not declare is not counted as one that timeouts hid."""
        declared = subject(HANGS, head="CONVENTIONS = {'double': {'ddof': (0,)}}")
        lacked = Case("ddof1", lambda rng: {"x": np.ones(2)}, quick=True, conventions={"ddof": 1})
        verdicts = judged(declared, *MANY[:4], lacked, most_timeouts=TIMEOUTS)
        assert [v.status for v in verdicts] == [*["timeout"] * 3, "not asked", "unsupported"]

    def test_a_gate_that_calls_the_op_beside_others_is_not_asked(self, subject: Maker) -> None:
        """Whichever of its ops has timed out."""
        another = Op("another", {}, source="arithmetic")

        def both(t: Trial) -> Iterator[Evidence]:
            yield t.number("y", float(t.call(DOUBLE, **t.inputs).kind != "value"), "<=")

        gates_ = [make_gate(cases=MANY[:3]), make_gate(both, id="other", ops=(another, DOUBLE))]
        hangs = subject(HANGS)
        hangs.entry.write_text(hangs.entry.read_text() + "OPS['another'] = print\n")
        options = Options(time_limit=0.2, most_timeouts=TIMEOUTS)
        verdicts = [found.verdict for found in run(plan(gates_, [hangs], quick=True), options)]
        assert [(v.gate, v.status) for v in verdicts][-1] == ("other", "not asked")

    def test_the_report_says_why(self) -> None:
        """Apart from what rests on a definition that does not hold."""
        reasons = {
            ("mine", "not asked", "not asked: the definition does not hold (double of mine)"): 2,
            ("mine", "not asked", "after 3 timeouts of token_kl"): 5,
        }
        assert counted(reasons, "mine") == [
            "2 cases not asked of ops whose definition does not hold",
            "5 cases not asked after 3 timeouts of token_kl",
        ]


SLEEPS = "import time\nOPS = {'token_kl': lambda **_: time.sleep(60)}\n"


class TestOption:
    """`--time-limit` and `time_limit` of `[tool.gates]`."""

    @pytest.mark.parametrize("by_project", [False, True])
    def test_a_run_ends_after_three_timeouts(self, tmp_path: Path, by_project: bool) -> None:
        """Three at the given limit, the rest not asked."""
        (tmp_path / "mine.py").write_text(SLEEPS)
        if by_project:
            (tmp_path / "pyproject.toml").write_text("[tool.gates]\ntime_limit = 0.2\n")
        option = [] if by_project else ["--time-limit", "0.2"]
        done = here("check", "kl", "--subject", "./mine.py", "--jobs", "1", "--no-minimise", *option, cwd=tmp_path)
        assert done.returncode == 1
        (results,) = tmp_path.rglob("*.jsonl")
        run = read(results)
        assert run.header.time_limit == 0.2
        counts = Counter(verdict.status for verdict in run.verdicts)
        assert counts["timeout"] == 3
        assert counts["not asked"] > 50
        text = " ".join(done.stdout.split())
        assert "--time-limit sets another limit" in text
        assert f"{counts['not asked']} cases not asked after 3 timeouts of token_kl" in text

    @pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
    def test_it_must_be_seconds(self, tmp_path: Path, value: str) -> None:
        """Exit code 2 with the legal values."""
        done = here("check", "kl", "--subject", "numpy", f"--time-limit={value}", cwd=tmp_path)
        assert done.returncode == 2
        text = " ".join(done.stderr.replace("│", " ").split())
        assert "must be above 0 and finite" in text or "should be a valid number" in text

    @pytest.mark.parametrize("value", ["0", "-1.5", "nan", "'soon'"])
    def test_the_projects_must_be_seconds(self, tmp_path: Path, value: str) -> None:
        (tmp_path / "pyproject.toml").write_text(f"[tool.gates]\ntime_limit = {value}\n")
        done = here("check", "kl", "--subject", "numpy", cwd=tmp_path)
        assert done.returncode == 2
        assert "[tool.gates]: time_limit: " in done.stderr

    def test_help_has_an_example(self, tmp_path: Path) -> None:
        text = " ".join(here("check", "--help", cwd=tmp_path).stdout.replace("│", " ").split())
        assert "--time-limit SECONDS" in text
        assert "gates check --subject ./jitted.py --time-limit 120" in text

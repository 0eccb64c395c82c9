"""`pytest --gates`: one item for each subject, gate and case; pytest's options select, stop and report."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from importlib.metadata import entry_points
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from safetensors.numpy import save

import gates.diagnosis.collect  # noqa: F401  pytester forgets what is imported later, and a second import has other classes
from gates.model import ConfigurationError
from gates.registry import load
from gates.run.engines.subject_workers import SubjectWorkers
from gates.run.judge import Judged
from gates.run.plan import PlannedCase

pytest_plugins = "pytester"

INSTALLED = any(entry.name == "gates" for entry in entry_points(group="pytest11"))
LOADED = () if INSTALLED else ("-p", "gates.pytest.plugin")  # an environment installed before the plugin existed
SELECT = "--gates-select=advantages.constant-group-is-zero"
MINE = ("--gates", "--gates-subject=./mine.py", SELECT, "--gates-quick")
RIGHT = """
import numpy as np

def group_advantages(rewards, group_size, *, scale, ddof, eps, eps_mode, baseline):
    groups = rewards.reshape(-1, group_size).astype(np.float64)
    centred = groups - groups.mean(axis=1, keepdims=True)
    divisor = groups.std(axis=1, ddof=ddof, keepdims=True) + eps
    varies = groups.max(axis=1, keepdims=True) > groups.min(axis=1, keepdims=True)
    advantages = np.divide(centred, divisor, out=np.zeros_like(centred), where=varies)
    return {"advantages": advantages.reshape(-1).astype(rewards.dtype)}

OPS = {"group_advantages": group_advantages}
CONVENTIONS = {"group_advantages": {"scale": ("group",), "eps_mode": ("add",), "baseline": ("mean",)}}
"""
WRONG = RIGHT.replace(".reshape(-1).astype", ".reshape(-1).__add__(1e-3).astype")


@pytest.fixture
def mine(pytester: pytest.Pytester) -> pytest.Pytester:
    """Create a project with a correct subject in mine.py and a test of its own."""
    pytester.path.joinpath("mine.py").write_text(RIGHT)
    pytester.makepyfile(test_own="def test_own(): pass")
    return pytester


def ids(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("gates::")]


class TestItems:
    """Collection."""

    def test_an_item_for_each_gate_and_case(self, mine: pytest.Pytester) -> None:
        """Ids name subject, gate and case; the project's own tests are not run unless their path is named."""
        result = mine.runpytest(*LOADED, *MINE, "--collect-only", "-q")
        wanted = [case.name for case in load().gates["advantages.constant-group-is-zero"].cases if case.quick]
        assert ids(result) == [f"gates::mine::advantages.constant-group-is-zero[{name}]" for name in wanted]
        assert "test_own" not in result.stdout.str()

    def test_with_a_path_the_projects_tests_run_too(self, mine: pytest.Pytester) -> None:
        """Named paths are collected beside the items."""
        result = mine.runpytest(*LOADED, *MINE, "--collect-only", "-q", "test_own.py")
        assert "test_own.py::test_own" in result.outlines
        assert ids(result)

    def test_without_the_option_nothing_is_judged(self, mine: pytest.Pytester) -> None:
        """A project that has Gates installed runs its tests as before."""
        result = mine.runpytest(*LOADED)
        result.assert_outcomes(passed=1)

    def test_quick_plans_fewer_cases(self, mine: pytest.Pytester) -> None:
        """`--gates-quick` means the same as `gates check --quick`."""
        everything = mine.runpytest(*LOADED, *MINE[:-1], "--collect-only", "-q")
        quick = mine.runpytest(*LOADED, *MINE, "--collect-only", "-q")
        assert len(ids(quick)) < len(ids(everything)) == 22

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            ("--gates-select=nothing", "no gate matches 'nothing'"),
            ("--gates-subject=nobody", "must be one of numpy"),
            ("--gates-subject=./none.py", "there is no such file"),
            ("--gates-python=/no/python", "there is no such program"),
        ],
    )
    def test_a_mistake_is_one_sentence(self, mine: pytest.Pytester, option: str, message: str) -> None:
        """Pytest's usage error, exit code 4."""
        result = mine.runpytest(*LOADED, "--gates", option)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert message in result.stderr.str()
        assert "Traceback" not in result.stderr.str()


class TestOutcomes:
    """Pytest's outcome for each verdict."""

    def test_pass_and_unsupported(self, mine: pytest.Pytester) -> None:
        """An unsupported case is skipped with its reason."""
        result = mine.runpytest(*LOADED, *MINE[:-1], "-rs")
        result.assert_outcomes(passed=10, skipped=12)
        result.stdout.fnmatch_lines(["*unsupported: group_advantages of mine has eps_mode 'add', not 'inside'*"])

    def test_a_failure_shows_value_and_limit(self, mine: pytest.Pytester) -> None:
        """The message has the verdict's sentence and its evidence with reasons, and no traceback."""
        mine.path.joinpath("mine.py").write_text(WRONG)
        result = mine.runpytest(*LOADED, *MINE)
        assert result.ret == 1
        result.stdout.fnmatch_lines(
            ["*WRONG mine · advantages.constant-group-is-zero · *: *, must be <= 1*", "*claim: *", "*because *"]
        )
        result.stdout.no_fnmatch_line("*because signal")
        assert "pytest_items.py" not in result.stdout.str()

    @pytest.mark.parametrize(
        ("expires", "outcome", "message"),
        [
            ("2999-01-31", {"xfailed": 3, "skipped": 3}, "*waived until 2999-01-31 by ada: a known bug;*"),
            ("2001-01-31", {"failed": 1, "passed": 2, "skipped": 3, "warnings": 2}, "*WRONG mine*"),
        ],
        ids=["waived", "expired"],
    )
    def test_a_waived_failure_is_an_expected_failure(
        self, mine: pytest.Pytester, expires: str, outcome: dict[str, int], message: str
    ) -> None:
        """As in `gates check`, until the waiver expires; the message names the owner."""
        mine.path.joinpath("mine.py").write_text(WRONG)
        mine.path.joinpath("gates.toml").write_text(
            '[[waivers]]\nid = "advantages.*"\nsubject = "mine"\nreason = "a known bug"\n'
            f'issue = "https://example.org/1"\nowner = "ada"\nexpires = {expires}\n'
        )
        result = mine.runpytest(*LOADED, *MINE, "-rx", "-W", "default")
        result.assert_outcomes(**outcome)
        result.stdout.fnmatch_lines([message])

    @pytest.mark.parametrize(
        ("settings", "options", "message"),
        [
            ('require = ["mine:packing.truncates-only-by-name"]', [], "required, but unsupported: mine"),
            ("seed = 7", [], "(seed 3728005952)"),
            ("seed = 7", ["--gates-seed=0"], "(seed 1079004899)"),
            ('model = "./nowhere"', [], "is neither a folder nor an id"),
        ],
        ids=["requirement", "seed", "the option wins", "model"],
    )
    def test_settings_apply_without_an_option(
        self, mine: pytest.Pytester, settings: str, options: list[str], message: str
    ) -> None:
        """As in `gates check`: a missing requirement fails, and seed and model are those of the project."""
        mine.path.joinpath("mine.py").write_text(RIGHT if "require" in settings else WRONG)
        mine.path.joinpath("pyproject.toml").write_text(f"[tool.gates]\n{settings}\n")
        select = "--gates-select=packing.truncates-only-by-name" if "require" in settings else SELECT
        result = mine.runpytest(*LOADED, "--gates", "--gates-subject=./mine.py", select, "--gates-quick", *options)
        assert result.ret != 0
        assert message in result.stdout.str() + result.stderr.str()

    def test_a_required_subject_must_be_judged(self, mine: pytest.Pytester) -> None:
        """As in `gates check`: a library that cannot be imported must not turn CI green by skips."""
        mine.path.joinpath("mine.py").write_text("import no_such_library\nOPS = {}\n")
        assert mine.runpytest(*LOADED, *MINE).ret == 0
        mine.makepyprojecttoml('[tool.gates]\nrequire = ["mine"]\n')
        result = mine.runpytest(*LOADED, *MINE)
        assert result.ret == 1
        result.stdout.fnmatch_lines(["required, but skipped: mine · *: ModuleNotFoundError: *'no_such_library'*"])

    def test_a_required_gate_must_be_judged(self, mine: pytest.Pytester) -> None:
        """A requirement with gates fails for unsupported cases too."""
        mine.makepyprojecttoml('[tool.gates]\nrequire = ["mine:advantages"]\n')
        mine.runpytest(*LOADED, *MINE[:-1]).assert_outcomes(passed=10, failed=12)

    @pytest.mark.parametrize(
        ("settings", "options", "fails"),
        [
            ("", [], False),
            ("", ["--gates-strict"], True),
            ("", ["--gates-fail-on=fragile"], True),
            ('fail_on = "fragile"', [], True),
            ('fail_on = "fragile"', ["--gates-fail-on=wrong"], False),
        ],
    )
    def test_a_milder_grade_passes_with_a_warning(
        self, mine: pytest.Pytester, settings: str, options: list[str], fails: bool
    ) -> None:
        """`fragile` fails where `fail_on` or an option says so."""
        mine.path.joinpath("mine.py").write_text(WRONG)
        mine.makepyprojecttoml(f"[tool.gates]\n{settings}\n")
        result = mine.runpytest(*LOADED, *MINE, *options, "-k", "trl-float32 and not solved", "-W", "default")
        outcomes = result.parseoutcomes()
        assert ("failed" in outcomes, "warnings" in outcomes or "warning" in outcomes) == (fails, not fails)
        assert ("GradeWarning: fragile: mine · " in result.stdout.str()) == (not fails)

    def test_escape_sequences_of_a_subject_are_escaped(self, mine: pytest.Pytester) -> None:
        """An escape sequence in an error message does not reach the terminal."""
        mine.path.joinpath("mine.py").write_text(
            RIGHT.replace("groups = ", "raise ValueError('\\x1b[2J')\n    groups = ")
        )
        result = mine.runpytest(*LOADED, *MINE, "--color=no")
        assert "\x1b" not in result.stdout.str()
        result.stdout.fnmatch_lines(["*\\u001b*"])

    def test_an_error_in_a_gate_is_a_failure(self, mine: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        """A gate that raises is a fault of Gates, not a pass."""
        mine.makeconftest(
            """
            import dataclasses, pytest
            @pytest.hookimpl(trylast=True)
            def pytest_configure(config):
                def raises(trial):
                    raise RuntimeError("our own fault")
                    yield
                judge = config.pluginmanager.get_plugin("gates-judge")
                judge.cases = [dataclasses.replace(j, gate=dataclasses.replace(j.gate, check=raises)) for j in judge.cases]
            """
        )
        result = mine.runpytest(*LOADED, *MINE)
        assert result.ret == 1
        result.stdout.fnmatch_lines(["*ERROR mine · *: the gate raised RuntimeError: our own fault*"])

    def test_workers_of_another_checkout_end_the_session(
        self, mine: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A configuration error while judging is one sentence with pytest's exit code for usage errors."""

        def refuse(self: SubjectWorkers, planned: PlannedCase) -> Judged:
            raise ConfigurationError("judge and subject must be of one checkout")

        monkeypatch.setattr(SubjectWorkers, "judge", refuse)
        result = mine.runpytest(*LOADED, *MINE)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert "--gates: judge and subject must be of one checkout" in result.stdout.str()
        assert "Traceback" not in result.stdout.str()

    def test_an_absent_subject_is_skipped_with_its_remedy(
        self, mine: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A peer without an environment is skipped with the command that installs it."""
        monkeypatch.setenv("GATES_CACHE_DIR", str(mine.path / "empty"))
        result = mine.runpytest_subprocess(
            *LOADED,
            "--gates",
            "--gates-subject=mlxrl",
            "--gates-select=philox",
            "-rs",
            "-k",
            "mlxrl:: or known-answers",
        )
        result.stdout.fnmatch_lines(["*skipped: no environment yet; `gates peers sync mlxrl` makes it*"])
        assert result.ret == 0

    def test_junit_keeps_the_evidence(self, mine: pytest.Pytester) -> None:
        """Each number beside its limit is a property of the test case."""
        mine.path.joinpath("mine.py").write_text(WRONG)
        mine.runpytest(*LOADED, *MINE, "--junitxml=junit.xml", "-k", "solved-alike")
        case = next(iter(ET.parse(mine.path / "junit.xml").iter("testcase")))  # noqa: S314  written by pytest in this test
        properties = {p.get("name"): p.get("value") for p in case.iter("property")}
        assert case.get("classname") == "gates.mine"
        assert str(case.get("name")).startswith("advantages.constant-group-is-zero[")
        assert (properties["status"], properties["cause"]) == ("wrong", "bound")
        claims = [value for name, value in properties.items() if str(name).startswith("claim: ")]
        assert [value for value in claims if " <= 1.0 does not hold (at [" in str(value)]
        failure = case.find("failure")
        assert failure is not None
        assert str(failure.text).startswith("WRONG mine · ")

    def test_a_failure_of_pytest_itself_ends_the_worker(self, mine: pytest.Pytester) -> None:
        """After a timeout in the middle of a call, a fresh worker judges the next item correctly."""
        slow = RIGHT.replace(
            "    groups =",
            "    import time, pathlib\n    if not pathlib.Path('/MARK').exists():\n"
            "        pathlib.Path('/MARK').touch(); time.sleep(20)\n    groups =",
            1,
        ).replace("/MARK", str(mine.path / "mark"))
        mine.path.joinpath("mine.py").write_text(slow)
        result = mine.runpytest_subprocess(*LOADED, *MINE, "-o", "timeout=2", "-o", "timeout_method=signal")
        outcomes = result.parseoutcomes()
        assert outcomes["failed"] == 1
        assert outcomes["passed"] >= 1
        result.stdout.fnmatch_lines(["*Timeout*"])


class TestSettings:
    """Without an option `[tool.gates]` applies."""

    SHOW = """
        import pytest
        @pytest.hookimpl(trylast=True)
        def pytest_configure(config):
            judge = config.pluginmanager.get_plugin("gates-judge")
            limits = {job.subject.memory_limit for job in judge.cases}
            print("OPTIONS", judge.workers.options.seed, judge.workers.options.model, min(limits) > 2**28)
    """

    @pytest.mark.parametrize(("option", "seed"), [((), 7), (("--gates-seed=0",), 0)], ids=["silent", "named"])
    def test_seed_model_and_memory(self, mine: pytest.Pytester, option: tuple[str, ...], seed: int) -> None:
        """The seed and the model of the project; the memory of a worker is limited as in `gates check`."""
        model = mine.mkdir("tiny")
        model.joinpath("config.json").write_text("{}")
        model.joinpath("model.safetensors").write_bytes(save({"x": np.zeros(1)}))
        mine.makepyprojecttoml('[tool.gates]\nseed = 7\nmodel = "./tiny"\n')
        mine.makeconftest(self.SHOW)
        result = mine.runpytest(*LOADED, *MINE, *option, "--collect-only", "-s")
        assert f"OPTIONS {seed} {model.resolve()} True" in result.outlines

    @pytest.mark.parametrize("text", ["def f(:\n", "x = 1\n"])
    def test_a_file_that_cannot_be_judged_is_a_usage_error(self, mine: pytest.Pytester, text: str) -> None:
        """The session ends at the first item with the sentence of `gates check`."""
        mine.path.joinpath("mine.py").write_text(text)
        result = mine.runpytest(*LOADED, *MINE)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stdout.fnmatch_lines(["*--gates: mine.py*"])

    @pytest.mark.parametrize("by_project", [False, True])
    def test_the_time_limit(self, mine: pytest.Pytester, by_project: bool) -> None:
        """Three items of an op fail by timeout, and the rest of it is skipped."""
        body = "import time\nOPS = {'group_advantages': lambda **_: time.sleep(60)}\n"
        mine.path.joinpath("mine.py").write_text(body)
        if by_project:
            mine.makepyprojecttoml("[tool.gates]\ntime_limit = 0.2\n")
        option = () if by_project else ("--gates-time-limit=0.2",)
        result = mine.runpytest(*LOADED, *MINE[:-1], *option, "-rs")
        assert result.parseoutcomes()["failed"] == 3
        result.stdout.fnmatch_lines(
            [
                "*no answer within 1 s (0.2 s, and 0.8 s more for a first call*); --gates-time-limit sets another limit;*",
                "*not asked: after 3 timeouts of group_advantages*",
            ]
        )

    def test_a_time_limit_must_be_above_0(self, mine: pytest.Pytester) -> None:
        """A usage error of pytest."""
        result = mine.runpytest(*LOADED, *MINE, "--gates-time-limit=0")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert "--gates: a time limit of 0 s: must be above 0" in result.stderr.str()

    def test_a_missing_model_is_one_sentence(self, mine: pytest.Pytester) -> None:
        """Pytest's usage error names the setting."""
        mine.makepyprojecttoml('[tool.gates]\nmodel = "./none"\n')
        result = mine.runpytest(*LOADED, *MINE)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert "[tool.gates] model " in result.stderr.str()


class TestChoosing:
    """Pytest's own options act on the items."""

    def test_k_selects_by_name(self, mine: pytest.Pytester) -> None:
        """`-k` sees gate and case."""
        everything = mine.runpytest(*LOADED, *MINE[:-1], "--collect-only", "-q")
        chosen = mine.runpytest(*LOADED, *MINE[:-1], "--collect-only", "-q", "-k", "constant-group and float32")
        assert ids(chosen) == [name for name in ids(everything) if "float32" in name]
        assert 0 < len(ids(chosen)) < len(ids(everything))

    def test_an_id_on_the_command_line_suggests_a_k_expression(self, mine: pytest.Pytester) -> None:
        """The suggested expression selects the item whose id was pasted."""
        first = ids(mine.runpytest(*LOADED, *MINE, "--collect-only", "-q"))[0]
        result = mine.runpytest(*LOADED, *MINE, first)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        (line,) = (line for line in result.errlines if "is no path" in line)
        expression = line.partition("choose it by -k '")[2].rstrip("'")
        assert ids(mine.runpytest(*LOADED, *MINE, "--collect-only", "-q", "-k", expression)) == [first]

    def test_m_selects_by_marker(self, mine: pytest.Pytester) -> None:
        """`-m gates` leaves the items, `-m "not gates"` everything else."""
        result = mine.runpytest(*LOADED, *MINE, "test_own.py", "-m", "not gates", "--strict-markers")
        result.assert_outcomes(passed=1, deselected=len(ids(mine.runpytest(*LOADED, *MINE, "--collect-only", "-q"))))

    def test_x_stops_at_the_first_failure(self, mine: pytest.Pytester) -> None:
        """One failure, and no further item."""
        mine.path.joinpath("mine.py").write_text(WRONG)
        result = mine.runpytest(*LOADED, *MINE[:-1], "-x")
        assert result.parseoutcomes()["failed"] == 1

    def test_lf_runs_the_last_failures(self, mine: pytest.Pytester) -> None:
        """Only the items that failed run again; with the bug fixed they pass."""
        mine.path.joinpath("mine.py").write_text(WRONG)
        first = mine.runpytest(*LOADED, *MINE[:-1], "-W", "default").parseoutcomes()
        assert {name: first[name] for name in ("failed", "passed", "skipped")} == {
            "failed": 3,
            "passed": 7,
            "skipped": 12,
        }
        mine.path.joinpath("mine.py").write_text(RIGHT)
        again = mine.runpytest(*LOADED, *MINE[:-1], "--lf")
        again.assert_outcomes(passed=3, deselected=19)

    def test_xdist_gives_the_same_verdicts(self, mine: pytest.Pytester) -> None:
        """Counts and failing ids are the same with one process and with two."""
        mine.path.joinpath("mine.py").write_text(WRONG)
        options = (*LOADED, *MINE[:-1], "-rf", "-W", "default")
        alone = mine.runpytest(*options)
        both = mine.runpytest_subprocess(*options, "-n", "2")
        assert failures(both) == failures(alone) != []
        serial, parallel = alone.parseoutcomes(), both.parseoutcomes()
        assert {k: serial[k] for k in serial if k != "seconds"} == {k: parallel[k] for k in parallel if k != "seconds"}


def failures(result: pytest.RunResult) -> list[str]:
    return sorted(line.split(" - ")[0] for line in result.outlines if line.startswith("FAILED gates::"))


class TestCost:
    """The plugin's cost for sessions without `--gates`."""

    MODULES = """
        import json, sys
        def test_modules():
            loaded = [name for name in sys.modules if name.partition(".")[0] in {words}]
            print("LOADED", json.dumps(sorted(loaded)))
    """

    @pytest.mark.parametrize("modules", [{"gates"}, {"numpy", "pydantic", "rich", "typer", "reference", "rlkernels"}])
    def test_without_the_option_nothing_is_imported(self, pytester: pytest.Pytester, modules: set[str]) -> None:
        """Only the plugin's own file is imported, and no library."""
        pytester.makepyfile(self.MODULES.replace("{words}", repr(sorted(modules))))
        result = pytester.runpytest_subprocess(*LOADED, "-s", "-p", "no:hypothesispytest")
        (line,) = (line for line in result.outlines if "LOADED" in line)
        wanted = ["gates", "gates.pytest", "gates.pytest.plugin"] if modules == {"gates"} else []
        assert json.loads(line.partition("LOADED")[2].strip(" .")) == wanted

    def test_the_workers_end_with_the_session(self, mine: pytest.Pytester) -> None:
        """No worker outlives the session."""
        mine.makeconftest(
            """
            import psutil
            def pytest_runtest_logfinish(nodeid):
                judge = config_of[0].pluginmanager.get_plugin("gates-judge")
                seen.update(w.process.pid for w in judge.workers.workers.values())
            config_of, seen = [], set()
            def pytest_configure(config):
                config_of.append(config)
            def pytest_unconfigure(config):
                import atexit
                atexit.register(lambda: print("LEFT", len(seen), [pid for pid in seen if psutil.pid_exists(pid)]))
            """
        )
        result = mine.runpytest_subprocess(*LOADED, *MINE)
        assert "LEFT 1 []" in result.outlines


def test_a_full_disk_ends_the_session(mine: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence instead of a traceback for each item, and pytest's exit code for an internal error."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    result = mine.runpytest(*LOADED, *MINE)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    output = result.stdout.str() + result.stderr.str()
    assert "--gates: cannot start mine: Too many open files; raise the limit" in output


class TestAnotherChoice:
    """An item of an op that makes another choice does not call it a mistake."""

    select = ("--gates", "--gates-subject=./mine.py", "--gates-select=advantages.matches-definition", "--gates-quick")
    select += ("-W", "default")
    mistake = RIGHT.replace("groups - groups.mean(", "groups.mean(axis=1, keepdims=True) - groups * groups.mean(")

    def another(self, pytester: pytest.Pytester, text: str) -> None:
        """Write a subject that takes another ddof than the one it declares, or makes a mistake."""
        declared = '"baseline": ("mean",), "ddof": (1,)'
        pytester.path.joinpath("mine.py").write_text(text.replace('"baseline": ("mean",)', declared))

    def test_it_differs_and_the_choice_is_named(self, mine: pytest.Pytester) -> None:
        self.another(mine, RIGHT.replace("ddof=ddof", "ddof=0"))
        result = mine.runpytest(*LOADED, *self.select, "--junitxml=junit.xml")
        text = result.stdout.str()
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        assert "DIFFERS mine · advantages.matches-definition" in text
        assert "computes: group z-score with ddof 0 (asked: 1); declare ddof=(0,) if it is meant" in text
        assert "WRONG" not in text
        document = ET.parse(mine.path / "junit.xml")  # noqa: S314  written by pytest in this test
        statuses = {item.get("value") for item in document.iter("property") if item.get("name") == "status"}
        assert "differs" in statuses
        assert "wrong" not in statuses

    def test_it_passes_under_fail_on_wrong(self, mine: pytest.Pytester) -> None:
        self.another(mine, RIGHT.replace("ddof=ddof", "ddof=0"))
        result = mine.runpytest(*LOADED, *self.select, "--gates-fail-on=wrong")
        assert result.ret == pytest.ExitCode.OK
        assert "GradeWarning: differs: mine" in result.stdout.str()

    def test_a_mistake_is_wrong(self, mine: pytest.Pytester) -> None:
        self.another(mine, self.mistake)
        text = mine.runpytest(*LOADED, *self.select, "-x").stdout.str()
        assert "WRONG mine · advantages.matches-definition" in text

    @pytest.mark.parametrize(("text", "code"), [("another", 0), ("mistake", 1)])
    def test_a_waiver_of_differs(self, mine: pytest.Pytester, text: str, code: int) -> None:
        """It waives another choice, and no mistake."""
        self.another(mine, self.mistake if text == "mistake" else RIGHT.replace("ddof=ddof", "ddof=0"))
        waiver = 'id = "advantages.*"\nsubject = "mine"\ngrade = "differs"\nreason = "meant"\nissue = "#1"\n'
        mine.path.joinpath("pyproject.toml").write_text("")
        mine.path.joinpath("gates.toml").write_text(f'[[waivers]]\n{waiver}owner = "ada"\nexpires = 2999-01-31\n')
        assert mine.runpytest(*LOADED, *self.select).ret == code

"""Unknown names get suggestions; `list` and `explain` are readable for newcomers."""

import math
import os
import re
from datetime import date
from pathlib import Path

import pytest
from command_line import here

from gates.cli.selection import chosen
from gates.families.units import UNIT as UNITS
from gates.model import ConfigurationError
from gates.registry import load
from gates.report.catalogue import chosen as mutants_chosen
from gates.report.explanation import UNIT
from gates.results.jsonl import read
from gates.results.records import Waiver
from gates.run.session import Requirement
from gates.run.waivers import covers
from gates.subjects.catalogue import choose

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("token_kl", "it is an op, and the gates that use it are kl.k1.matches-definition, kl.k2.matches-definition, "),
        ("advantages.constent", "did you mean advantages"),
        ("kl.k3.matches-defintion", "did you mean kl.k3.matches-definition"),
        ("trianer", "did you mean trainer"),
        ("loss.grppo.matches", "did you mean loss.grpo.matches-definition"),
        ("qqqq", "no gate matches 'qqqq'; `gates list` shows the gates there are"),
    ],
    ids=["op", "half a name", "letter", "family", "no prefix", "nothing near"],
)
def test_an_unknown_gate_suggests_others(pattern: str, message: str) -> None:
    """The message repeats the name and suggests similar ones."""
    with pytest.raises(ConfigurationError, match=f"^no gate matches '{pattern}'; ") as error:
        chosen(load(), ["kl", pattern])
    assert message in str(error.value)


def test_patterns_select_like_the_registry() -> None:
    """Several patterns are joined; without any, all gates are selected."""
    assert chosen(load(), ["kl.k3", "philox.*"]) == load().select(("kl.k3", "philox.*"))
    assert chosen(load(), []) == tuple(load().gates.values())


def test_a_subject_file_in_this_folder_is_suggested(tmp_path: Path) -> None:
    """`--subject mylib` next to mylib_gates.py: the message gives the file as it must be typed."""
    (tmp_path / "mylib_gates.py").write_text("OPS = {}\n")
    done = here("check", "kl", "--subject", "mylib", cwd=tmp_path)
    assert done.returncode == 2
    assert "or a file (./mine.py); did you mean ./mylib_gates.py?" in " ".join(done.stderr.split())


def test_a_subject_named_twice_is_judged_once(tmp_path: Path) -> None:
    """By its name, by a variant's name, or by its file."""
    mine = tmp_path / "mine.py"
    mine.write_text("OPS = {}\n")
    names = ("reference", "reference@openblas", "numpy", "numpy", str(mine), f"{tmp_path}/./mine.py")
    subjects = choose(load(), names, None)
    assert [subject.name for subject in subjects] == ["reference", "reference@openblas", "numpy", "mine"]
    assert subjects[1].ops is None, "asked for by name: asked everything"
    assert choose(load(), names[1::-1], None) == subjects[1::-1]


def test_variants_are_judged_by_default_only_in_a_full_run() -> None:
    """Other runs judge each default subject once, and a variant only if it is named."""
    short = [subject.name for subject in choose(load(), (), None, variants=False)]
    assert short == ["numpy", "rlkernels", "reference"]
    full = [subject.name for subject in choose(load(), (), None)]
    assert {"rlkernels@scalar", "reference@openblas"} <= set(full) - set(short)
    named = choose(load(), ("rlkernels@scalar",), None, variants=False)
    assert [subject.name for subject in named] == ["rlkernels@scalar"]


@pytest.mark.parametrize("file", ["numpy.py", "numpy", "other/mine.py"])
def test_two_subjects_of_one_name_are_refused(tmp_path: Path, file: str) -> None:
    """A file or program named like another subject would be mistaken for it."""
    (tmp_path / "other").mkdir()
    for path in (tmp_path / "mine.py", tmp_path / file):
        path.write_text("OPS = {}\n")
        path.chmod(0o755)
    with pytest.raises(ConfigurationError, match="is taken; rename the file"):
        choose(load(), (str(tmp_path / "mine.py"), str(tmp_path / file)), None)


def test_list_counts_and_aligns(tmp_path: Path) -> None:
    """One mutant is `1 mutant`, and the descriptions of subjects stand in one column."""
    listed, subjects = here("list", "kl.k1", cwd=tmp_path).stdout.split("\nSubjects:\n")
    assert re.search(r" \d+ cases \(\d+ quick\), 1 mutant  Is k1 = −d", listed)
    assert len({line.index("  judged ") for line in subjects.splitlines()}) == 1


def test_explain_cites_documented_deviations(tmp_path: Path) -> None:
    """The deviation is named by its gate; cases that are not shown are counted."""
    text = here("explain", "kl.k3", cwd=tmp_path).stdout
    assert 'Deviation DEPARTURES_DOCUMENTED["token_kl[k3]"]' in text
    assert re.search(r"-float\d\d and \d+ more \(--json\)", text)
    assert f"          {UNIT}\n" in text
    assert UNIT not in here("explain", "philox.known-answers", cwd=tmp_path).stdout


def test_explain_prints_the_unit_of_the_limits() -> None:
    small = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    for dtype, unit in UNITS.items():
        power = str(round(math.log2(unit))).translate(small)
        assert f"2{power} of {dtype}" in UNIT


@pytest.mark.parametrize(
    ("returned", "code", "hint"),
    [("groups - groups[:, :1]", 0, False), ("groups", 1, True), ("groups)}\n1 / 0\n#", 1, False)],
    ids=["right", "wrong", "does not start"],
)
def test_a_failure_points_to_explain(tmp_path: Path, returned: str, code: int, hint: bool) -> None:
    """The last line names `gates explain` only if a gate failed."""
    (tmp_path / "mine.py").write_text(  # correct for this gate, which only asks for 0 in constant groups
        "def group_advantages(*, rewards, group_size, **_):\n"
        "    groups = rewards.reshape(-1, group_size)\n"
        f"    return {{'advantages': ({returned}).reshape(-1)}}\n"
        "OPS = {'group_advantages': group_advantages}\n"
    )
    select = ("advantages.constant-group-is-zero", "--quick", "--no-minimise")
    done = here("check", *select, "--subject", "./mine.py", cwd=tmp_path)
    assert done.returncode == code, done.stdout
    assert ("gates explain advantages.constant-group-is-zero says what was asked" in done.stdout) == hint


class TestAnyPrefix:
    """A prefix need not end at a dot; a complete name before a dot matches only itself."""

    @pytest.mark.parametrize(
        ("pattern", "wanted"),
        [
            ("kl.k", ["kl.k1.matches-definition", "kl.k2.matches-definition", "kl.k3.matches-definition"]),
            ("loss.gr", ["loss.grpo.matches-definition"]),
            ("loss.gspo", ["loss.gspo.matches-definition"]),
            ("loss.gspo-", ["loss.gspo-token.matches-definition"]),
            ("kl.k1.", ["kl.k1.matches-definition"]),
            ("advantages.norm", ["advantages.normalise-then-sum", "advantages.normalise-then-sum.ignores-units"]),
            ("*.half-logits.*", ["scoring.half-logits.upcast"]),
        ],
    )
    def test_a_prefix_selects_its_gates(self, pattern: str, wanted: list[str]) -> None:
        """Selections, requirements and waivers match alike."""
        registry = load()
        assert sorted(gate.id for gate in chosen(registry, [pattern])) == wanted
        requirement = Requirement.parse(f"numpy:{pattern}", ["numpy"])
        assert sorted(id_ for id_ in registry.gates if requirement.names("numpy", id_)) == wanted
        assert sorted(id_ for id_ in registry.gates if covers(waiver(pattern), id_, "any")) == wanted

    def test_an_empty_pattern_is_refused(self) -> None:
        """An empty variable of a script must not select everything."""
        with pytest.raises(ConfigurationError, match="no gate matches ''"):
            chosen(load(), [""])

    def test_mutants_are_selected_by_a_prefix_of_their_gate(self) -> None:
        """`gates mutants` knows the same patterns."""
        names = {mutant.name for mutant in mutants_chosen(load(), ["kl.k3.m"])}
        assert names == {mutant.name for mutant in mutants_chosen(load(), ["kl.k3"])}

    @pytest.mark.parametrize(
        "arguments",
        [
            ("list", "kl.k"),
            ("explain", "kl.k"),
            ("check", "kl.k", "--quick", "--subject", "numpy", "--require", "numpy:kl.k", "--shard", "1/40", "-v"),
        ],
    )
    def test_verbs_accept_prefixes(self, tmp_path: Path, arguments: tuple[str, ...]) -> None:
        done = here(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "kl.k1.matches-definition" in done.stdout or "token_kl[k1]" in done.stdout


def waiver(pattern: str) -> Waiver:
    return Waiver(id=pattern, subject="numpy", reason="r", issue="i", owner="o", expires=date(2027, 1, 1))


class TestUnknownWords:
    """Unknown names of every kind get the nearest known one."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("check", "--format", "jsn"), "did you mean 'json'?"),
            (("check", "--fail-on", "Fragil"), "did you mean 'fragile'?"),
            (("check", "--engine", "rai"), "did you mean 'ray'?"),
            (("calibrate", "--only", "modls"), "did you mean 'models'?"),
            (("report", "--format", "htm"), "did you mean 'html'?"),
            (("check", "--subject", "nmpy"), "did you mean 'numpy'?"),
            (("check", "kl", "--subject", "numpy", "--require", "nunpy"), "did you mean 'numpy'?"),
            (("peers", "sync", "mlxlr"), "did you mean 'mlxrl'?"),
            (("ops", "Token_KL"), "did you mean 'token_kl'?"),
            (("init", "mine", "--op", "tokenkl"), "did you mean 'token_kl'?"),
            (("check", "kl.k3.matches-defintion"), "did you mean kl.k3.matches-definition, "),
        ],
    )
    def test_the_nearest_name_is_suggested(self, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
        """Exit code 2."""
        done = here(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.replace("│", " ").split())

    def test_only_gates_nearest_uses_difflib(self) -> None:
        """One helper with one cutoff, which ignores case."""
        files = [file for file in (ROOT / "gates").rglob("*.py") if "difflib" in file.read_text()]
        assert files == [ROOT / "gates" / "nearest.py"]


class TestSubjectFiles:
    """A file that cannot be loaded is an error, never `skipped`."""

    @pytest.mark.parametrize("name", ["./mime.py", "mime.py", "{here}/mime.py"])
    def test_a_missing_file_suggests_the_nearest(self, tmp_path: Path, name: str) -> None:
        """The nearest file name is given as it must be typed."""
        (tmp_path / "mine.py").write_text("OPS = {}\n")
        done = here("check", "kl", "--subject", name.format(here=tmp_path), cwd=tmp_path)
        assert done.returncode == 2
        meant = f"{tmp_path}/mine.py" if name.startswith("{") else "./mine.py"
        assert f"there is no such file; did you mean {meant}?" in done.stderr

    def test_a_missing_folder_suggests_nothing(self, tmp_path: Path) -> None:
        done = here("check", "kl", "--subject", "./ci/mine.py", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (
            2,
            "gates: --subject ./ci/mine.py: there is no such file; the folder ci is not there\n",
        )

    def test_an_unreadable_file_is_a_usage_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Not tested as superuser, who may read any file."""
        (tmp_path / "mine.py").write_text("OPS = {}\n")
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(ConfigurationError, match=r"cannot be read; allow it \(chmod \+r\)"):
            choose(load(), (str(tmp_path / "mine.py"),), None)

    @pytest.mark.parametrize(
        ("body", "status", "code"),
        [
            ("open('/no/such/file')", "raises", 1),
            ("raise OSError('the licence server does not answer')", "raises", 1),
            ("from numpy import no_such_name", "raises", 1),
            ("import numpy.no_such_part", "raises", 1),
            ("import beside", "raises", 1),
            ("import no_such_library", "skipped", 3),
            ("import no_such_library.part", "skipped", 3),
            ("raise NotImplementedError('this processor has no AVX-512')", "skipped", 3),
        ],
    )
    def test_an_error_while_loading_is_graded(self, tmp_path: Path, body: str, status: str, code: int) -> None:
        """Only a missing library, or the file's own statement that it cannot run here, is not a failure."""
        (tmp_path / "beside.py").write_text("")
        (tmp_path / "mine.py").write_text(f"{body}\nOPS = {{}}\n")
        done = here("check", "kl.k1", "--quick", "--subject", "./mine.py", cwd=tmp_path)
        (file,) = (tmp_path / "results" / "runs").glob("*.jsonl")
        assert {verdict.status for verdict in read(file).verdicts} == {status}
        assert done.returncode == code

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("import numpy\n\ndef f(x:\n    return x\n", "gates: mine.py, line 3: Python "),
            ("def token_kl(policy, **rest): ...\n", "gates: mine.py must define OPS, a dict from the name of an op"),
            ("OPS = 3\n", "gates: mine.py, line 1: OPS is a int, must be a dict from the name of an op"),
        ],
    )
    def test_a_file_that_cannot_be_judged_is_a_usage_error(self, tmp_path: Path, text: str, message: str) -> None:
        """Exit code 2, one sentence, and no file of a run that judged nothing."""
        (tmp_path / "mine.py").write_text(text)
        done = here("check", "kl.k1", "--quick", "--subject", "./mine.py", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(message)
        assert len(done.stderr.splitlines()) == 1
        assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize(
    ("declared", "message"),
    [("'estimator': ('K2',)", "did you mean 'k2'?"), ("'estimater': ('k2',)", "did you mean 'estimator'?")],
)
def test_a_misspelt_convention_is_refused(tmp_path: Path, declared: str, message: str) -> None:
    """Otherwise its cases would be `unsupported` without a reason."""
    (tmp_path / "mine.py").write_text(
        f"OPS = {{'token_kl': lambda **inputs: {{}}}}\nCONVENTIONS = {{'token_kl': {{{declared}}}}}\n"
    )
    done = here("check", "kl.k2", "--quick", "--subject", "./mine.py", cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in " ".join(done.stderr.split())

"""A gate that is named wrongly is found from what was meant, and `list` and `explain` can be read by who is new."""

from __future__ import annotations

import math
import os
import re
from datetime import date
from pathlib import Path

import pytest
from command_line import gates

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
    ("pattern", "words"),
    [
        (
            "token_kl",
            "it is an op, and the gates that use it are kl.k1.matches-definition, kl.k2.matches-definition, ",
        ),
        ("advantages.constent", "did you mean advantages"),
        ("kl.k3.matches-defintion", "did you mean kl.k3.matches-definition"),
        ("trianer", "did you mean trainer"),
        ("loss.grppo.matches", "did you mean loss.grpo.matches-definition"),
        ("qqqq", "no gate matches 'qqqq'; `gates list` shows the gates there are"),
    ],
    ids=["op", "half a name", "letter", "family", "no prefix", "nothing near"],
)
def test_a_name_that_is_no_gates(pattern: str, words: str) -> None:
    """The sentence names what was looked for, and what may have been meant."""
    with pytest.raises(ConfigurationError, match=f"^no gate matches '{pattern}'; ") as error:
        chosen(load(), ["kl", pattern])
    assert words in str(error.value)


def test_patterns_choose_as_the_registry_does() -> None:
    """Several patterns, and none for all gates."""
    assert chosen(load(), ["kl.k3", "philox.*"]) == load().select(("kl.k3", "philox.*"))
    assert chosen(load(), []) == tuple(load().gates.values())


def test_a_subject_that_is_a_file_here_is_offered(tmp_path: Path) -> None:
    """`--subject mylib` beside mylib_gates.py: the sentence names the file as it must be written."""
    (tmp_path / "mylib_gates.py").write_text("OPS = {}\n")
    done = gates("check", "kl", "--subject", "mylib", cwd=tmp_path)
    assert done.returncode == 2
    assert "or a file (./mine.py); did you mean ./mylib_gates.py?" in " ".join(done.stderr.split())


def test_a_subject_that_is_named_twice_is_judged_once(tmp_path: Path) -> None:
    """By its own name, by the one whose variant it is, or by its file."""
    mine = tmp_path / "mine.py"
    mine.write_text("OPS = {}\n")
    names = ("reference", "reference@openblas", "numpy", "numpy", str(mine), f"{tmp_path}/./mine.py")
    subjects = choose(load(), names, None)
    assert [subject.name for subject in subjects] == ["reference", "reference@openblas", "numpy", "mine"]
    assert subjects[1].ops is None, "asked for by name: asked everything"
    assert choose(load(), names[1::-1], None) == subjects[1::-1]


def test_variants_are_judged_by_default_only_in_a_full_run() -> None:
    """A short run judges each default subject once; a variant that is named is judged in any run."""
    short = [subject.name for subject in choose(load(), (), None, variants=False)]
    assert short == ["numpy", "rlkernels", "reference"]
    full = [subject.name for subject in choose(load(), (), None)]
    assert {"rlkernels@scalar", "reference@openblas"} <= set(full) - set(short)
    named = choose(load(), ("rlkernels@scalar",), None, variants=False)
    assert [subject.name for subject in named] == ["rlkernels@scalar"]


@pytest.mark.parametrize("file", ["numpy.py", "numpy", "other/mine.py"])
def test_two_subjects_of_one_name_are_refused(tmp_path: Path, file: str) -> None:
    """A file, or a program, that is called as a registered subject or another file would be taken for it."""
    (tmp_path / "other").mkdir()
    for one in (tmp_path / "mine.py", tmp_path / file):
        one.write_text("OPS = {}\n")
        one.chmod(0o755)
    with pytest.raises(ConfigurationError, match="is taken; rename the file"):
        choose(load(), (str(tmp_path / "mine.py"), str(tmp_path / file)), None)


def test_list_counts_and_aligns(tmp_path: Path) -> None:
    """One mutant is no `1 mutants`, and the words after the subjects' names stand in one column."""
    listed, subjects = gates("list", "kl.k1", cwd=tmp_path).stdout.split("\nSubjects:\n")
    assert re.search(r" \d+ cases \(\d+ quick\), 1 mutant  Is k1 = −d", listed)
    assert len({line.index("  judged ") for line in subjects.splitlines()}) == 1


def test_explain_says_where_a_deviation_is_documented(tmp_path: Path) -> None:
    """Its key is the gate's name, which stands nowhere else; of the cases not shown the number is."""
    text = gates("explain", "kl.k3", cwd=tmp_path).stdout
    assert 'Deviation DEPARTURES_DOCUMENTED["token_kl[k3]"]' in text
    assert re.search(r"-float\d\d and \d+ more \(--json\)", text)
    assert f"          {UNIT}\n" in text
    assert UNIT not in gates("explain", "philox.known-answers", cwd=tmp_path).stdout


def test_the_unit_that_explain_prints_is_that_of_the_gates() -> None:
    """The powers of two in the sentence are those that limits are counted in."""
    small = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    for dtype, unit in UNITS.items():
        power = str(round(math.log2(unit))).translate(small)
        assert f"2{power} of {dtype}" in UNIT


@pytest.mark.parametrize(
    ("returned", "code", "hint"),
    [("groups - groups[:, :1]", 0, False), ("groups", 1, True), (")", 1, False)],
    ids=["right", "wrong", "does not start"],
)
def test_a_failure_is_followed_by_where_to_read_on(tmp_path: Path, returned: str, code: int, hint: bool) -> None:
    """`gates explain` is named where a gate's question was answered wrongly, and only there."""
    (tmp_path / "mine.py").write_text(  # right: 0 in constant groups, which is all that this gate asks
        "def group_advantages(*, rewards, group_size, **_):\n"
        "    groups = rewards.reshape(-1, group_size)\n"
        f"    return {{'advantages': ({returned}).reshape(-1)}}\n"
        "OPS = {'group_advantages': group_advantages}\n"
    )
    select = ("advantages.constant-group-is-zero", "--quick", "--no-minimise")
    done = gates("check", *select, "--subject", "./mine.py", cwd=tmp_path)
    assert done.returncode == code, done.stdout
    assert ("gates explain advantages.constant-group-is-zero says what was asked" in done.stdout) == hint


class TestAnyPrefix:
    """A prefix need not end at a dot; where one does, it means that alone."""

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
    def test_gates_of_a_pattern(self, pattern: str, wanted: list[str]) -> None:
        """The same in a selection, a requirement and a waiver."""
        registry = load()
        assert sorted(gate.id for gate in chosen(registry, [pattern])) == wanted
        requirement = Requirement.parse(f"numpy:{pattern}", ["numpy"])
        assert sorted(id_ for id_ in registry.gates if requirement.names("numpy", id_)) == wanted
        assert sorted(id_ for id_ in registry.gates if covers(waiver(pattern), id_, "any")) == wanted

    def test_nothing_is_no_prefix(self) -> None:
        """An empty variable of a script must not select everything."""
        with pytest.raises(ConfigurationError, match="no gate matches ''"):
            chosen(load(), [""])

    def test_a_mutant_by_the_begin_of_its_gate(self) -> None:
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
    def test_verbs(self, tmp_path: Path, arguments: tuple[str, ...]) -> None:
        """As they are typed."""
        done = gates(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "kl.k1.matches-definition" in done.stdout or "token_kl[k1]" in done.stdout


def waiver(pattern: str) -> Waiver:
    return Waiver(id=pattern, subject="numpy", reason="r", issue="i", owner="o", expires=date(2027, 1, 1))


class TestUnknownWords:
    """The nearest known word is named, whatever kind of word it is."""

    @pytest.mark.parametrize(
        ("arguments", "words"),
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
    def test_the_nearest_is_named(self, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
        """Exit code 2."""
        done = gates(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert words in " ".join(done.stderr.replace("│", " ").split())

    def test_difflib_is_used_in_one_place(self) -> None:
        """One helper, with one limit and without regard to capitals."""
        files = [file for file in (ROOT / "gates").rglob("*.py") if "difflib" in file.read_text()]
        assert files == [ROOT / "gates" / "nearest.py"]


class TestSubjectFiles:
    """A file that cannot be judged is a mistake of the command or of the subject, never `skipped`."""

    @pytest.mark.parametrize("name", ["./mime.py", "mime.py", "{here}/mime.py"])
    def test_a_missing_file_has_a_neighbour(self, tmp_path: Path, name: str) -> None:
        """The nearest file name is given as it must be typed."""
        (tmp_path / "mine.py").write_text("OPS = {}\n")
        done = gates("check", "kl", "--subject", name.format(here=tmp_path), cwd=tmp_path)
        assert done.returncode == 2
        meant = f"{tmp_path}/mine.py" if name.startswith("{") else "./mine.py"
        assert f"there is no such file; did you mean {meant}?" in done.stderr

    def test_a_missing_folder(self, tmp_path: Path) -> None:
        """Nothing in it can be near."""
        done = gates("check", "kl", "--subject", "./ci/mine.py", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (
            2,
            "gates: --subject ./ci/mine.py: there is no such file; the folder ci is not there\n",
        )

    def test_a_file_that_must_not_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The superuser may read any."""
        (tmp_path / "mine.py").write_text("OPS = {}\n")
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(ConfigurationError, match=r"cannot be read; allow it \(chmod \+r\)"):
            choose(load(), (str(tmp_path / "mine.py"),), None)

    @pytest.mark.parametrize(
        ("body", "status", "code"),
        [
            ("open('/no/such/file')", "wrong", 1),
            ("raise OSError('the licence server does not answer')", "wrong", 1),
            ("from numpy import no_such_name", "wrong", 1),
            ("import numpy.no_such_part", "wrong", 1),
            ("import beside", "wrong", 1),
            ("import no_such_library", "skipped", 3),
            ("import no_such_library.part", "skipped", 3),
            ("raise NotImplementedError('this processor has no AVX-512')", "skipped", 3),
        ],
    )
    def test_what_fails_while_it_is_loaded(self, tmp_path: Path, body: str, status: str, code: int) -> None:
        """Only a library that is installed nowhere, or the file's own word that it cannot run here, is no failure."""
        (tmp_path / "beside.py").write_text("")
        (tmp_path / "mine.py").write_text(f"{body}\nOPS = {{}}\n")
        done = gates("check", "kl.k1", "--quick", "--subject", "./mine.py", cwd=tmp_path)
        (file,) = (tmp_path / "results" / "runs").glob("*.jsonl")
        assert {verdict.status for verdict in read(file).verdicts} == {status}
        assert done.returncode == code


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("'estimator': ('K2',)", "did you mean 'k2'?"),
        ("'estimater': ('k2',)", "did you mean 'estimator'?"),
    ],
)
def test_a_misspelt_convention_is_refused(tmp_path: Path, declared: str, words: str) -> None:
    """Otherwise its cases would be `unsupported`, and nobody would know why."""
    (tmp_path / "mine.py").write_text(
        f"OPS = {{'token_kl': lambda **inputs: {{}}}}\nCONVENTIONS = {{'token_kl': {{{declared}}}}}\n"
    )
    done = gates("check", "kl.k2", "--quick", "--subject", "./mine.py", cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in " ".join(done.stderr.split())

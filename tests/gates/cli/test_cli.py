"""The commands from the shell: exit codes, last lines, one sentence for every usage error."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import RIGHT, gates, here

from gates.cli import setup
from gates.results.jsonl import read
from gates_reference import tiny

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_any_encoding_can_print_every_formula(encoding: str) -> None:
    """Characters that the locale's encoding lacks are escaped."""
    command = [sys.executable, "-m", "gates", "explain", "kl.k3.matches-definition"]
    done = subprocess.run(
        command, capture_output=True, check=False, timeout=120, env=os.environ | {"PYTHONIOENCODING": encoding}
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert ("\u2212".encode(encoding, "backslashreplace")) in done.stdout


def test_ctrl_c_during_imports_prints_no_traceback() -> None:
    """Exit code 130 and one line."""
    code = "import typer.main, gates.cli, signal\ntyper.main.get_command = lambda app: signal.raise_signal(signal.SIGINT)\ngates.cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "gates: interrupted\n")


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="a scheduling policy of Linux")
class TestScheduling:
    """SCHED_BATCH is set, unless the user chose a policy."""

    def test_workers_inherit_it(self, tmp_path: Path) -> None:
        """The subject's process has the policy."""
        policy = tmp_path / "policy"
        subject = tmp_path / "mine.py"
        subject.write_text(
            f"import os\nfrom pathlib import Path\n{RIGHT}\nPath({str(policy)!r}).write_text(str(os.sched_getscheduler(0)))\n"
        )
        done = gates("check", "advantages.constant-group-is-zero", "--subject", str(subject), cwd=tmp_path)
        assert policy.exists(), done.stdout + done.stderr
        assert int(policy.read_text()) == os.SCHED_BATCH

    def test_a_policy_of_the_user_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Such as SCHED_IDLE or a real-time policy."""
        monkeypatch.setattr(os, "sched_getscheduler", lambda _pid: os.SCHED_IDLE)
        monkeypatch.setattr(os, "sched_setscheduler", lambda *_: pytest.fail("the policy is changed"))
        setup.batch_scheduling()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "no-such-gate"], "no gate matches 'no-such-gate'; `gates list` shows"),
        (["check", "--subject", "nobody"], "must be one of numpy, rlkernels"),
        (["check", "--subject", "./none.py"], "there is no such file"),
        (["check", "--subject", "./text.txt"], "no such file"),
        (["check", "--model", "./nowhere"], "neither a folder nor an id"),
        (["check", "--model", "."], "has no config.json"),
        (["check", "--model", "nobody/no-such-model"], "is not in the Hugging Face cache"),
        (["check", "--jobs", "1000"], "--jobs"),
        (["check", "--require", "mlxrl"], "'mlxrl' is not in this run"),
        (
            ["check", "--subject", "numpy", "philox", "--require", "numpy:philx"],
            "no gate matches 'philx'; did you mean philox",
        ),
        (
            ["check", "--subject", "numpy", "philox", "--require", "numpy:kl"],
            "judges nothing of that subject and those gates",
        ),
        (
            ["check", "--subject", "numpy", "--require", "numpy:klx"],
            "--require numpy:klx: no gate matches 'klx'; did you mean kl?",
        ),
        (["check", "--python", "/no/python", "--subject", "./x.py"], "there is no such program"),
        (["check", "--out", "/proc/nowhere"], "cannot write results"),
        (["check", "--out", "x", "--record"], "give one of them"),
        (["check", "--seed", "-1"], "--seed"),
        (["check", "--baseline", "none.jsonl"], "cannot read none.jsonl"),
        (["check", "--baseline", "none.jsonl", "--format", "junit"], "has no place for --baseline"),
        (["check", "--waivers", "none.toml"], "cannot read none.toml"),
        (["check", "--shard", "6/5"], "must be INDEX/COUNT with 1 <= INDEX <= COUNT, such as 2/5"),
        (["check", "--resume", "none.jsonl"], "cannot resume none.jsonl: No such file"),
        (["check", "--resume", "."], "Is a directory; name the file of an interrupted run"),
        (["check", "--resume", "x.jsonl", "--out", "o"], "leave out --out and --record"),
        (["merge", "none.jsonl"], "cannot read none.jsonl"),
        (["explain", "no-such-gate"], "no gate matches"),
        (["mutants", "no-such-mutant"], "no mutant matches"),
        (["report"], "needs at least one"),
        (["report", "none.jsonl"], "cannot read none.jsonl"),
        (["report", "."], "cannot read ."),
        (["report", "--schema", "--out", "."], "cannot write ."),
        (["prove", "nothing"], "no gate matches"),
        (["calibrate", "nothing"], "no gate matches"),
        (["calibrate", "kl", "--only", "models"], "none of the 5 selected gates is of that kind"),
        (["calibrate", "kl", "--seeds", "0"], "--seeds"),
        (["calibrate", "kl", "--resume", "none.jsonl"], "cannot resume none.jsonl"),
        (["calibrate", "kl", "--resume", "x", "--out", "o"], "leave out --out"),
        (["peers", "sync", "nobody"], "nobody"),
        (["nonsense"], "No such command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_usage_error_is_one_sentence(tmp_path: Path, arguments: list[str], message: str) -> None:
    """No traceback, exit code 2, and what to do."""
    (tmp_path / "mine_gates.py").write_text(RIGHT)  # found by a check that names nobody
    done = here(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_requirement_without_an_effect_is_refused() -> None:
    """A default subject gets the cases of its own ops, so that this one is judged by no gate of preferences."""
    done = here("check", "preference.cpo.matches-definition", "--require", "rlkernels", cwd=ROOT)
    assert done.returncode == 2, done.stderr
    assert "--require rlkernels: this run judges nothing of that subject" in done.stderr


class TestCheck:
    """`gates check` on a subject file."""

    def test_a_correct_subject_passes(self, tmp_path: Path) -> None:
        """Declared ops are judged; the last line has exit code and counts, and the JSONL is complete."""
        (tmp_path / "mine.py").write_text(RIGHT)
        done = gates("check", "advantages.constant-group-is-zero", "--subject", "./mine.py", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == "exit 0: all 1 correct"
        assert done.stdout.startswith("mine · 1 op judged · 1 correct ")
        assert re.search(r"  correct    group_advantages \(\d+ cases, \d+ mutants? would have been seen\)", done.stdout)
        (file,) = (tmp_path / "results" / "runs").glob("*.jsonl")
        assert json.loads(file.read_text().splitlines()[-1])["exit_code"] == 0

    def test_a_wrong_subject_fails_with_a_number(self, tmp_path: Path) -> None:
        """A wrong deviation is one failure with observed value, limit and place, and exit code 1."""
        (tmp_path / "mine.py").write_text(RIGHT.replace("ddof=ddof", "ddof=0"))
        done = here("check", "advantages.matches-definition", "--subject", "./mine.py", cwd=tmp_path)
        assert done.returncode == 1
        text = " ".join(done.stdout.split())
        assert "mine · 1 op judged · 1 differs" in text
        assert re.search(
            r"DIFFERS group_advantages computes: .* advantage is off by .* \(limit .*\) at \[.*\(.* of .* cases\)", text
        )
        assert done.stdout.splitlines()[-1] == "exit 1: 1 differs"

    def test_verbose_has_a_line_for_each_case_and_the_table(self, tmp_path: Path) -> None:
        """The lines of `-v` stand before the usual screen."""
        (tmp_path / "mine.py").write_text(RIGHT)
        select = ("advantages.constant-group-is-zero", "--subject", "./mine.py")
        short, long = (here("check", *select, *more, cwd=tmp_path).stdout for more in ([], ["-v"]))
        number = long.count("CORRECT     mine · advantages.constant-group-is-zero · ")
        assert number > 1
        assert f"advantages.constant-group-is-zero  correct {number} (+" in long
        assert "unsupported: mine: group_advantages of mine has eps_mode 'add'" in long
        assert "CORRECT " not in short
        assert long.splitlines()[-1] == short.splitlines()[-1]

    def test_nothing_measured_is_exit_code_3(self, tmp_path: Path) -> None:
        """A run whose cases are all unsupported measured nothing, which is not a success."""
        (tmp_path / "mine.py").write_text(RIGHT)
        done = here("check", "packing", "--subject", "./mine.py", cwd=tmp_path)
        assert done.returncode == 3
        assert done.stdout.splitlines()[0] == "mine · not judged: 1 op that mine does not have (pack_sequences)"
        assert done.stdout.splitlines()[-1].startswith("exit 3: nothing was judged")

    def test_a_requirement_turns_unsupported_into_failure(self, tmp_path: Path) -> None:
        """`--require mine:packing` fails where packing is not provided."""
        (tmp_path / "mine.py").write_text(RIGHT)
        done = here("check", "packing", "--subject", "./mine.py", "--require", "mine:packing", cwd=tmp_path)
        assert done.returncode == 1
        assert "required, but unsupported: mine" in done.stdout

    def test_a_subject_that_does_not_start_is_one_line(self, tmp_path: Path) -> None:
        """A file that raises fails every case, and the reason is printed once."""
        (tmp_path / "mine.py").write_text("1 / 0\n")
        done = here("check", "packing", "--subject", "./mine.py", cwd=tmp_path)
        assert done.returncode == 1
        assert " ".join(done.stdout.split()).count("ZeroDivisionError") == 1
        assert done.stdout.splitlines()[-1] == "exit 1: 1 raises"
        assert "mine · did not start" in done.stdout

    def test_json_lines_are_json(self, tmp_path: Path) -> None:
        """`--json` prints one verdict a line and nothing else on stdout."""
        (tmp_path / "mine.py").write_text(RIGHT)
        done = here(
            "check", "packing", "advantages.constant-group-is-zero", "--subject", "./mine.py", "--json", cwd=tmp_path
        )
        statuses = [json.loads(line)["status"] for line in done.stdout.splitlines()]
        assert statuses.count("correct") == 10
        assert statuses.count("unsupported") == len(statuses) - 10 > 11

    def test_a_document_is_the_only_output(self, tmp_path: Path) -> None:
        """`--format junit` prints XML and nothing else; the count goes to stderr."""
        (tmp_path / "mine.py").write_text(RIGHT)
        done = here(
            "check", "packing.truncates-only-by-name", "--subject", "./mine.py", "--format", "junit", cwd=tmp_path
        )
        assert done.stdout.startswith("<?xml")
        assert done.stdout.count("<testcase ") == 1  # unsupported cases are counted elsewhere
        assert done.stderr.splitlines()[-1].startswith("exit 3: nothing was judged")

    @pytest.mark.parametrize("form", ["text", "md"])
    def test_a_baseline_shows_what_broke_and_changes_no_exit_code(self, tmp_path: Path, form: str) -> None:
        """A case that passed before is a new failure; the counts stay the last line of text."""
        command = ["check", "advantages.matches-definition", "--quick", "--subject", "./mine.py", "--format", form]
        (tmp_path / "mine.py").write_text(RIGHT)
        assert here(*command, "--out", "old", cwd=tmp_path).returncode == 0
        (before,) = (tmp_path / "old").glob("*.jsonl")
        (tmp_path / "mine.py").write_text(RIGHT.replace("ddof=ddof", "ddof=0"))
        done = here(*command, "--baseline", str(before), cwd=tmp_path)
        assert done.returncode == 1
        assert (
            "new failure: mine · advantages.matches-definition · group-mean-add-ddof1-float32: correct → differs"
            in done.stdout
        )
        if form == "text":
            assert done.stdout.splitlines()[-1] == "exit 1: 1 differs"
        (tmp_path / "mine.py").write_text(RIGHT)
        done = here(*command, "--baseline", str(before), cwd=tmp_path)
        assert done.returncode == 0
        assert "no changes" in done.stdout.lower()

    def test_github_gets_annotations_and_a_summary(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Under GitHub Actions the text has `::error` lines, the count stays last, and the summary is markdown."""
        (tmp_path / "mine.py").write_text(RIGHT.replace("ddof=ddof", "ddof=0"))
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
        done = here("check", "advantages.matches-definition", "--quick", "--subject", "./mine.py", cwd=tmp_path)
        assert done.returncode == 1
        assert "::error file=mine.py,line=4,title=mine · group_advantages::differs in " in done.stdout
        assert done.stdout.splitlines()[-1] == "exit 1: 1 differs"
        assert "| `group_advantages` | differs (" in (tmp_path / "summary.md").read_text()


def test_the_model_of_the_folder_is_judged(tmp_path: Path) -> None:
    """The gates run on the folder's model, and the results record its digest."""
    folder = tiny.build({"seed": 77, "vocab": 272})
    options = ["--model", str(folder), "--subject", "reference", "--quick", "--out", "o"]
    done = here("check", "trainer.adapters-off-is-base", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (tmp_path / "o").glob("*.jsonl")
    run = read(file)
    assert run.header.model == str(folder)
    assert {tuple(model.spec.items()) for model in run.models} == {(("path", str(folder)),)}
    assert len(run.models[0].hash) == 64


@pytest.mark.parametrize(("options", "code"), [([], 3), (["--require", "mlxrl"], 1)], ids=["skipped", "required"])
def test_a_peer_without_an_environment_is_skipped_and_never_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], code: int
) -> None:
    """Without an environment the verdict is `skipped` with its remedy; `--require` makes that a failure."""
    monkeypatch.setenv("GATES_CACHE_DIR", str(tmp_path / "empty"))
    done = gates("check", "packing", "--subject", "mlxrl", *options, cwd=tmp_path)
    assert done.returncode == code
    assert "mlxrl · not judged: no environment yet; `gates peers sync mlxrl` makes it" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"exit {code}: ")


class TestOtherVerbs:
    """The verbs that do not judge."""

    def test_list_shows_every_gate_with_a_mutant(self, tmp_path: Path) -> None:
        """Each gate has cases, some of them in proofs, and at least one mutant that it catches."""
        data = json.loads(here("list", "--json", cwd=tmp_path).stdout)
        assert len(data["gates"]) >= 20
        for gate in data["gates"]:
            assert gate["mutants"], gate["id"]
            assert any(case["proof"] for case in gate["cases"]), gate["id"]

    def test_explain_prints_question_source_limits_and_mutants(self, tmp_path: Path) -> None:
        """Everything a reader needs to doubt a gate is on one page."""
        text = here("explain", "kl.k3.matches-definition", cwd=tmp_path).stdout
        for message in (
            "Question",
            "Schulman",
            "because k·2u·S",
            "kl.k3-expm1-minus-d",
            "reported in: rlox 1.2",
            "in training: ",
        ):
            assert message in text

    def test_explain_ends_with_file_and_line(self, tmp_path: Path) -> None:
        """The line is the first of the check's function, decorators included."""
        text = here("explain", "philox.known-answers", cwd=tmp_path).stdout
        prefix, _, location = text.splitlines()[-1].rpartition(" ")
        file, _, line = location.partition(":")
        assert (prefix, file) == ("defined in", "gates/families/philox/gates.py")
        lines = (ROOT / file).read_text().splitlines()[int(line) - 1 :]
        assert lines[0].startswith("@gate(")
        assert lines[1].strip().startswith('"philox.known-answers"')

    @pytest.mark.parametrize(
        "verb",
        [
            "check",
            "list",
            "explain",
            "mutants",
            "prove",
            "calibrate",
            "report",
            "merge",
            "replay",
            "ops",
            "init",
            "peers",
        ],
    )
    def test_help_has_examples(self, tmp_path: Path, verb: str) -> None:
        """Every verb's help names its options, and shows examples."""
        verbs = [verb, "sync"] if verb == "peers" else [verb]
        done = here(*verbs, "--help", cwd=tmp_path)
        assert done.returncode == 0
        assert f"gates {verb}" in done.stdout.split("Examples:")[1]

    def test_report_is_a_function_of_the_file(self, tmp_path: Path) -> None:
        """Rendering twice gives the same bytes, and `--out` writes them."""
        (tmp_path / "mine.py").write_text(RIGHT)
        here("check", "advantages.constant-group-is-zero", "--subject", "./mine.py", "--out", "o", cwd=tmp_path)
        (file,) = (tmp_path / "o").glob("*.jsonl")
        first = here("report", str(file), cwd=tmp_path).stdout
        assert here("report", str(file), "--out", "R.md", cwd=tmp_path).returncode == 0
        assert (tmp_path / "R.md").read_text() == first
        assert re.search(r"\| `advantages.constant-group-is-zero` \| correct \d+, unsupported \d+ \|", first)

"""`gates peers` from the shell, with a library that needs no network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gates.errors import ExitCode

ROOT = Path(__file__).resolve().parents[3]
ADAPTER = """
import numpy as np

VERSIONS = {"fake": "1.0"}
CONVENTIONS = {"token_kl": {"estimator": ("k1",), "reduction": ("none",), "kl_ratio": ("none",), "rows": ("mask",)}}


def token_kl(policy, reference, *, mask, lengths, old, **conventions):
    if lengths is not None or mask is None or policy.ndim != 2:
        raise NotImplementedError("a mask is needed")
    kl = np.where(mask, policy - reference, 0).astype(policy.dtype)
    return {"kl": KL}


OPS = {"token_kl": token_kl}
"""
DECLARED = """
[[coverage]]
source = "functions fake.kl"
[coverage.rows]
kl = ["judged", "token_kl"]

[[finding]]
id = "fake-sign"
class = "bug"
grade = "wrong"
use = "default"
ops = ["token_kl[k1]"]
where = "fake/kl.py:1"
quote = "def kl"
says = "The estimate has the other sign."
computes = "-k1"
number = "-1 for 1"
consequence = "The policy moves away."
repro = "print(-1)\\nassert -1 < 0"
"""
RUN = """
import sys
from pathlib import Path
from gates.subjects.peers import environments
environments.HERE = Path(sys.argv[1])
from gates.cli import main
sys.argv = ["gates", *sys.argv[2:]]
main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with one peer and its environment, which holds a package with one function."""
    folder = tmp_path_factory.mktemp("peers")
    (folder / "fake.txt").write_text("# distribution: fake\n# import: fake\n# purpose: tests\n")
    (folder / "fake.toml").write_text(DECLARED)
    write(folder, "-kl")
    assert run(folder, "sync").returncode == 0
    (packages,) = (folder / "cache").glob("peers/fake-*/lib/python*/site-packages")
    (packages / "fake").mkdir()
    (packages / "fake" / "kl.py").write_text("def kl(): ...\n")
    (packages / "numpy.pth").write_text(f"{Path(sys.modules['numpy'].__file__ or '').parents[1]}\n")
    return folder


def write(folder: Path, formula: str) -> None:
    (folder / "fake.py").write_text(ADAPTER.replace("KL}", f"{formula}}}"))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GATES_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-c", RUN, str(folder), "peers", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=240,
        check=False,
    )


def test_a_finding_explains_a_grade(folder: Path) -> None:
    """The op is wrong, the finding says so and its program reproduces it, so the command passes and writes the record."""
    write(folder, "-kl")
    done = run(folder, "check", "fake", "--record", "--jobs", "1")
    assert done.returncode == ExitCode.HELD, done.stdout + done.stderr
    assert "1 wrong" in done.stdout
    assert "fake-sign" in done.stdout
    assert "1 of 1 findings reproduced" in done.stdout
    assert "1 peers judged, 0 problems with the records" in done.stdout
    assert (folder / "results" / "conformance" / "fake.jsonl").is_file()


def test_a_finding_that_the_check_contradicts_fails(folder: Path) -> None:
    """The library fixed the bug, so the record is out of date."""
    write(folder, "kl")
    done = run(folder, "check", "--json", "--jobs", "1")
    assert done.returncode == ExitCode.FAILED, done.stdout + done.stderr
    (peer,) = json.loads(done.stdout)
    assert peer["problems"] == ["fake-sign: the check does not grade token_kl[k1] wrong"]
    assert {grade["grade"] for grade in peer["grades"]} == {"correct"}


@pytest.mark.parametrize("severity", ["absent", "hardening"])
def test_a_grade_without_a_finding_fails(folder: Path, severity: str) -> None:
    """A finding about hardening explains no wrong formula."""
    write(folder, "2 * kl")
    text = (folder / "fake.toml").read_text()
    milder = text.replace('"bug"', '"numeric"').replace('"wrong"', '"hardening"')
    (folder / "fake.toml").write_text(milder if severity == "hardening" else text.partition("[[finding]]")[0])
    try:
        done = run(folder, "check", "--jobs", "1")
    finally:
        (folder / "fake.toml").write_text(text)
    assert done.returncode == ExitCode.FAILED, done.stdout + done.stderr
    assert "! no finding says why token_kl[k1] of fake is graded wrong" in " ".join(done.stdout.split())


def test_a_short_run_leaves_parameter_sets_out(folder: Path) -> None:
    """Each is a process that imports the library, which may take seconds."""
    write(folder, "-kl")
    file = folder / "fake.py"
    file.write_text(f'{file.read_text()}\nVARIANTS = {{"fast": (("token_kl",), {{"fast": True}})}}\n')
    subjects = []
    for option in ((), ("--quick",)):
        done = run(folder, "check", "--json", "--jobs", "1", *option)
        (peer,) = json.loads(done.stdout)
        subjects.append({grade["subject"] for grade in peer["grades"]})
    assert subjects == [{"fake", "fake@fast"}, {"fake"}]


def test_programs_are_shown_and_run(folder: Path) -> None:
    """They run in the library's environment, without Gates."""
    assert "assert -1 < 0" in run(folder, "repro", "fake-sign", "--show").stdout
    done = run(folder, "repro")
    assert done.returncode == ExitCode.HELD, done.stderr
    assert "1 of 1 findings hold" in done.stdout
    (outcome,) = json.loads(run(folder, "repro", "fake-sign", "--json").stdout)
    assert outcome == {"id": "fake-sign", "holds": True, "output": "-1"}


def test_a_program_that_is_too_long_is_said_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    """Exit code 2 and the file with the reason, without a traceback."""
    for name in ("fake.txt", "fake.py"):
        (tmp_path / name).write_text((folder / name).read_text())
    (tmp_path / "fake.toml").write_text(DECLARED.replace('repro = "', 'repro = "' + "0\\n" * 20))
    done = run(tmp_path, "repro", "fake-sign")
    assert done.returncode == ExitCode.USAGE
    assert "fake.toml" in done.stderr
    assert "must have at most 20" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_new_record_is_compared_with_an_old_one(folder: Path) -> None:
    """The default is the newest record; the exit code says whether anything changed."""
    newest = folder / "results" / "conformance" / "fake.jsonl"
    old = folder / "old.jsonl"
    old.write_text(newest.read_text().replace('"grade":"wrong"', '"grade":"correct"', 1))
    done = run(folder, "diff", "old.jsonl")
    assert done.returncode == ExitCode.FAILED, done.stderr
    assert "token_kl[k1] of fake: correct → wrong: fake-sign" in done.stdout
    assert run(folder, "diff", str(newest)).returncode == ExitCode.HELD
    assert json.loads(run(folder, "diff", "old.jsonl", str(newest), "--json").stdout)["worse"][0]["after"] == "wrong"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "no file old.jsonl"), ("other", "old.jsonl is of other"), ("{}\n", "old.jsonl:1 is no conformance record")],
)
def test_what_cannot_be_compared_is_refused(folder: Path, content: str | None, reason: str) -> None:
    newest, old = folder / "results" / "conformance" / "fake.jsonl", folder / "old.jsonl"
    old.unlink(missing_ok=True)
    if content == "other":
        old.write_text(newest.read_text().replace('"peer":"fake"', '"peer":"other"', 1))
    elif content:
        old.write_text(content)
    done = run(folder, "diff", "old.jsonl", str(newest))
    assert done.returncode == ExitCode.USAGE, done.stdout
    assert reason in " ".join(done.stderr.split())


def test_rows_are_listed(folder: Path) -> None:
    """Every public name with its status and reason."""
    done = run(folder, "coverage")
    assert done.returncode == ExitCode.HELD
    assert "judged                 fake.kl.kl  token_kl" in done.stdout
    assert "fake: 1 names, judged 1 of 1 in scope" in done.stdout


def test_rows_of_a_record_are_renewed_alone(folder: Path) -> None:
    """Grades and findings stay as they were judged; without a record, and of another version, there is nothing to renew."""
    record, declaration = folder / "results" / "conformance" / "fake.jsonl", folder / "fake.toml"
    write(folder, "-kl")
    assert run(folder, "check", "fake", "--record", "--jobs", "1").returncode == ExitCode.HELD
    before, text = record.read_text().splitlines(), declaration.read_text()
    declaration.write_text(text.replace('["judged", "token_kl"]', '["out of scope", "logging"]'))
    try:
        assert run(folder, "coverage", "--record").returncode == ExitCode.HELD
        after = record.read_text().splitlines()
        record.write_text(record.read_text().replace('"version":"', '"version":"9', 1))
        other = run(folder, "coverage", "--record")
        record.unlink()
        without = run(folder, "coverage", "--record")
    finally:
        declaration.write_text(text)
    changed = [line for line in after if line not in before]
    assert [json.loads(line)["status"] for line in changed] == ["out of scope"]
    assert (other.returncode, without.returncode) == (ExitCode.USAGE, ExitCode.USAGE)
    assert "`gates peers check fake --record` judges that" in other.stderr
    assert "`gates peers check fake --record` writes it" in without.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("check", "fakke"), "'fakke' is no peer; did you mean 'fake'?"),
        (("repro", "fake-sing"), "'fake-sing' is no finding; did you mean 'fake-sign'?"),
        (("check", "--record", "--quick"), "--record is given with --quick"),
        (("sync", "other"), "'other' is no peer"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(folder: Path, arguments: tuple[str, ...], reason: str) -> None:
    """Exit code 2 and one sentence."""
    done = run(folder, *arguments)
    assert done.returncode == ExitCode.USAGE
    assert reason in done.stderr


def test_a_missing_environment_is_reported(folder: Path, tmp_path: Path) -> None:
    """It is reported, and fails a run that requires it; with nothing judged the code says so."""
    for name in ("fake.txt", "fake.toml", "fake.py"):
        (tmp_path / name).write_text((folder / name).read_text())
    done = run(tmp_path, "check")
    assert done.returncode == ExitCode.NOTHING
    assert "fake: not judged: no environment yet" in done.stderr
    done = run(tmp_path, "check", "--require", "all")
    assert done.returncode == ExitCode.FAILED
    assert "required, but not installed: fake" in done.stdout

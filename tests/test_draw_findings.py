"""tools/draw_findings.py in a small repository, and the list of draws."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import draw_findings  # noqa: E402

pytestmark = pytest.mark.fast

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """A repository with two libraries of three findings, and the command git in it."""

    def run(*words: str) -> str:
        named = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", *named, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    folder = tmp_path / draw_findings.PEERS
    folder.mkdir(parents=True)
    for library in ("one", "two"):
        tables = (f'[[finding]]\nid = "{library}-{number}"\n' for number in range(3))
        (folder / f"{library}.toml").write_text("".join(tables))
    (folder / "one.txt").write_text("no table")
    run("init", "-q")
    run("add", "-A")
    run("commit", "-q", "-m", "two libraries")
    return run


def test_the_order_is_that_of_the_hash() -> None:
    """`printf cb | sha256sum` begins with 103d, that of cc with 355b, that of ca with 6959."""
    assert draw_findings.drawn("c", ["a", "b", "c"], 2) == ["b", "c"]


def test_each_finding_of_the_commit_can_be_drawn(git: Git, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is in the working tree alone is not drawn."""
    (tmp_path / draw_findings.PEERS / "one.toml").write_text('[[finding]]\nid = "later"\n')
    draw_findings.main(["HEAD", "--count", "10"], tmp_path)
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == f"{git('rev-parse', 'HEAD').strip()}: 6 of 6 findings"
    assert rows == [f"{library}  {library}-{number}" for library in ("one", "two") for number in range(3)]


def test_a_short_name_draws_as_the_full_one(git: Git, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hash is that of the full name."""
    full = git("rev-parse", "HEAD").strip()
    draw_findings.main([full, "--count", "2"], tmp_path)
    long = capsys.readouterr().out
    draw_findings.main([full[:8], "--count", "2"], tmp_path)
    assert capsys.readouterr().out == long
    assert len(long.splitlines()) == 3


@pytest.mark.parametrize("count", ["0", "-3", "many"])
def test_a_draw_has_findings(count: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A count below 1 is refused."""
    with pytest.raises(SystemExit):
        draw_findings.main(["HEAD", f"--count={count}"], tmp_path)
    assert "--count" in capsys.readouterr().err


@pytest.mark.usefixtures("git")
@pytest.mark.parametrize("commit", ["nothing", "--help-me", ""])
def test_no_such_commit_is_a_sentence(commit: str, tmp_path: Path) -> None:
    """Git's own sentence, no traceback."""
    with pytest.raises(SystemExit) as ended:
        draw_findings.main(["--", commit], tmp_path)
    assert "fatal" in str(ended.value)


def test_the_list_of_draws_is_readable() -> None:
    """Each names a whole commit, and no more fell than were judged."""
    draws = tomllib.loads((ROOT / "results" / "conformance" / "draws.toml").read_text(encoding="utf-8"))["draw"]
    assert all(len(draw["commit"]) == 40 and 0 <= draw["refuted"] <= draw["judged"] <= 30 for draw in draws)
    assert len({draw["commit"] for draw in draws}) == len(draws)

"""tools/newest_peer.py with commands that are not run, and the workflow that calls it."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import newest_peer  # noqa: E402
from newest_peer import Ran  # noqa: E402

from gates.subjects.peers import environments  # noqa: E402

pytestmark = pytest.mark.fast

PEERS = ROOT / "gates" / "subjects" / "peers"


class Commands:
    """Commands that end with given codes; a check writes a record, and the pin is noted while they run."""

    def __init__(self, folder: Path, newest: str, **codes: int) -> None:
        self.pinned, self.record = folder / "rlox.txt", folder / "results" / "conformance" / "rlox.jsonl"
        self.newest, self.codes, self.ran, self.pins = newest, codes, list[str](), list[str]()

    def __call__(self, command: Sequence[str]) -> Ran:
        """Note the command."""
        verb = next(word for word in ("index", "sync", "check", "diff") if word in command)
        self.ran.append(verb)
        self.pins += [line for line in self.pinned.read_text().splitlines() if line.startswith("rlox==")]
        if verb == "check":
            self.record.write_text("a new record\n")
        printed = f"rlox ({self.newest})\n" if verb == "index" else f"{verb} says so\n"
        return Ran(self.codes.get(verb, 0), printed)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with the peer rlox alone."""
    shutil.copytree(PEERS / "base", tmp_path / "base")
    shutil.copy(PEERS / "rlox.txt", tmp_path)
    (tmp_path / "results" / "conformance").mkdir(parents=True)
    (tmp_path / "results" / "conformance" / "rlox.jsonl").write_text("the record\n")
    peer = replace(environments.peers()["rlox"], requirements=tmp_path / "rlox.txt")
    monkeypatch.setattr(environments, "peers", lambda: {"rlox": peer})
    monkeypatch.setattr(newest_peer, "ROOT", tmp_path)
    return tmp_path


def report(commands: Commands, out: Path) -> tuple[int, str]:
    """Run the tool; afterwards the checkout must be as before."""
    files = (commands.pinned, commands.record)
    before = [file.read_bytes() for file in files]
    code = newest_peer.main(["rlox", "--out", str(out)], commands)
    assert [file.read_bytes() for file in files] == before
    file = out / "rlox.md"
    return code, file.read_text() if file.is_file() else ""


def test_a_newer_release_is_judged_with_its_pin_changed(folder: Path) -> None:
    """A record that no longer holds is part of the report; pin and record are put back."""
    commands = Commands(folder, "9.9", check=1, diff=1)
    code, text = report(commands, folder / "report")
    assert code == 1
    assert commands.ran == ["index", "sync", "check", "diff"]
    assert commands.pins[1:] == ["rlox==9.9"] * 3
    assert text.startswith("# rlox 1.2.0 → 9.9\n")
    assert "diff says so" in text
    assert (folder / "report" / "rlox.jsonl").read_text() == "a new record\n"


def test_the_pinned_release_is_not_judged_again(folder: Path) -> None:
    commands = Commands(folder, environments.pinned(environments.peers()["rlox"]))
    assert report(commands, folder / "report") == (0, "")
    assert commands.ran == ["index"]


@pytest.mark.parametrize(("codes", "command"), [({"sync": 2}, "sync"), ({"check": 2}, "check")])
def test_what_cannot_be_installed_or_judged_is_reported(folder: Path, codes: dict[str, int], command: str) -> None:
    code, text = report(Commands(folder, "9.9", **codes), folder / "report")
    assert code == 1
    assert f"`gates peers {command} rlox` ended with 2" in text


def test_an_index_without_the_library_is_an_error(folder: Path) -> None:
    with pytest.raises(SystemExit, match="names no release of rlox"):
        report(Commands(folder, "9.9", index=1), folder / "report")


def test_a_pin_may_stand_in_a_shared_file() -> None:
    file, text = newest_peer.pin(environments.peers()["transformers"], "9.9")
    assert file.name == "transformers.txt"
    assert "transformers==9.9" in text.splitlines()


def test_the_workflow_judges_every_peer_on_a_schedule() -> None:
    """Names come from `gates peers list`, actions are pinned, and no expression stands in a script."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "newest-peers.yml").read_text())
    assert set(workflow[True]) == {"schedule", "workflow_dispatch"}  # YAML reads the word `on` as true
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert all("@" in step["uses"] and len(step["uses"].partition("@")[2]) == 40 for step in steps if "uses" in step)
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []
    assert any("tools/newest_peer.py" in step.get("run", "") for step in steps)

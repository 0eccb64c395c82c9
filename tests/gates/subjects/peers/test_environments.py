"""An environment is either ready or not, after interruptions and with concurrent syncs."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gates.subjects.peers import discovery, environments, installer
from gates.subjects.peers.environments import Peer, PeerError

ROOT = Path(__file__).resolve().parents[4]
FAKE = "fake"
HEADER = "# distribution: fake-distribution\n# import: fake\n# purpose: tests\n"
TWO_PROCESSES = """
import sys
from pathlib import Path
from gates.subjects.peers import environments
environments.peers()["fake"] = environments.Peer("fake", "fake", "fake", Path(sys.argv[1]))
lines = []
environments.sync("fake", on_line=lines.append)
print(sum(line.startswith("making") for line in lines))
"""


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Peer:
    """Return a peer without requirements, whose environment needs no network."""
    requirements = tmp_path / "fake.txt"
    requirements.write_text(HEADER)
    monkeypatch.setenv(environments.CACHE_VARIABLE, str(tmp_path / "cache"))
    fake = Peer(FAKE, "fake-distribution", "fake", requirements, purpose="tests")
    monkeypatch.setattr(environments, "peers", lambda: {FAKE: fake})
    return fake


@pytest.fixture(params=["uv", "pip"])
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with each installer."""
    if request.param == "pip":
        monkeypatch.setattr(installer, "uv", lambda: None)
    elif installer.uv() is None:
        pytest.skip("uv is not installed beside this interpreter: run `make setup`")
    return str(request.param)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the peer's distribution into a folder that only pip's settings name."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    facts = "fake_distribution-1.0.dist-info"
    with zipfile.ZipFile(folder / "fake_distribution-1.0-py3-none-any.whl", "w") as file:
        file.writestr(f"{facts}/METADATA", "Metadata-Version: 2.1\nName: fake-distribution\nVersion: 1.0\n")
        file.writestr(
            f"{facts}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{facts}/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.mark.usefixtures("peer")
class TestEnvironment:
    """The location of an environment."""

    def test_lookup_creates_nothing(self, tmp_path: Path) -> None:
        environment = environments.environment(FAKE)
        assert not environment.ready
        assert environment.versions == {}
        assert environment.path.parent == (tmp_path / "cache" / "peers").resolve()
        assert environment.python == environment.path / "bin" / "python"
        assert not (tmp_path / "cache").exists()

    def test_path_depends_on_the_requirements(self, peer: Peer) -> None:
        before = environments.environment(FAKE).path
        assert environments.environment(FAKE).path == before
        peer.requirements.write_text(f"{HEADER}numpy==2.4.6\n")
        assert environments.environment(FAKE).path != before

    def test_path_does_not_depend_on_the_header(self, peer: Peer) -> None:
        before = environments.environment(FAKE).path
        peer.requirements.write_text(HEADER.replace("tests", "a better sentence"))
        assert environments.environment(FAKE).path == before

    def test_path_depends_on_the_interpreter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = environments.environment(FAKE).path
        monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
        assert environments.environment(FAKE).path != before

    def test_cache_is_the_users_by_default(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Without an override environments live in the user's cache folder."""
        monkeypatch.delenv(environments.CACHE_VARIABLE)
        monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
        assert environments.environment(FAKE).path.parent == tmp_path / "rl-gates" / "peers"

    @pytest.mark.parametrize("marker", ["", "{", "[]", '{"versions": 1}'], ids=["empty", "torn", "list", "no-versions"])
    def test_broken_marker_is_not_ready(self, marker: str) -> None:
        environment = environments.environment(FAKE)
        environment.python.parent.mkdir(parents=True)
        environment.python.touch()
        (environment.path / environments.MARKER).write_text(marker)
        assert not environments.environment(FAKE).ready

    def test_lost_interpreter_is_not_ready(self) -> None:
        environment = environments.environment(FAKE)
        environment.python.parent.mkdir(parents=True)
        environment.python.symlink_to(environment.path / "gone")
        (environment.path / environments.MARKER).write_text('{"versions": {}}')
        assert not environments.environment(FAKE).ready

    def test_unknown_name_lists_the_known(self) -> None:
        with pytest.raises(PeerError, match="'nobody' is no peer; must be one of fake"):
            environments.environment("nobody")


@pytest.mark.usefixtures("peer")
class TestSync:
    """Making an environment."""

    @pytest.mark.parametrize("tool", ["uv", pytest.param("pip", marks=pytest.mark.long)], indirect=True)
    @pytest.mark.usefixtures("tool", "wheel")
    def test_interrupted_sync_starts_over(self, peer: Peer) -> None:
        """After Ctrl-C the environment is not ready; the next sync starts over, and the one after it is quick."""
        peer.requirements.write_text(f"{HEADER}fake-distribution==1.0\n")

        def interrupt(line: str) -> None:
            if not line.startswith("making"):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            environments.sync(FAKE, on_line=interrupt)
        half = environments.environment(FAKE)
        assert half.python.exists()
        assert not half.ready
        lines: list[str] = []
        environment = environments.sync(FAKE, on_line=lines.append)
        assert lines[0].startswith("removing what is left")
        assert environment.ready
        assert environment.versions["fake-distribution"] == "1.0"
        facts = json.loads((environment.path / environments.MARKER).read_text())
        assert facts["peer"] == FAKE
        assert facts["seconds"] > 0
        again: list[str] = []
        assert environments.sync(FAKE, on_line=again.append) == environment
        assert again == []

    @pytest.mark.usefixtures("wheel")
    def test_a_broken_environment_is_rebuilt(self, peer: Peer) -> None:
        """A removed or changed package is noticed by the next sync."""
        peer.requirements.write_text(f"{HEADER}fake-distribution==1.0\n")
        environment = environments.sync(FAKE, on_line=lambda _: None)
        (folder,) = environment.path.glob("lib/python*/site-packages/fake_distribution-1.0.dist-info")
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        lines: list[str] = []
        assert environments.sync(FAKE, on_line=lines.append).ready
        assert lines[0] == "the environment is broken: fake-distribution is not 1.0; making it anew"
        assert environments.broken(environments.environment(FAKE)) == ""

    def test_an_interpreter_that_does_not_start_is_broken(self) -> None:
        environment = environments.sync(FAKE, on_line=lambda _: None)
        environment.python.unlink()
        environment.python.symlink_to("/bin/false")
        assert environments.broken(environment) == "its interpreter does not start"

    def test_offline_the_cache_is_used(self, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        """If the index is unreachable, uv retries from its cache; the first error is reported."""
        if installer.uv() is None:
            pytest.skip("uv is not installed beside this interpreter: run `make setup`")
        peer.requirements.write_text(f"{HEADER}fake-distribution==1.0\n")
        commands: list[list[str]] = []

        def run(_: Peer, command: list[str], *__: object) -> None:
            commands.append(command)
            if "install" in command and "--offline" not in command:
                raise PeerError("the package index cannot be reached")
            if "-c" in command:
                __[0]("{}")  # type: ignore[operator]  # the installed versions

        monkeypatch.setattr(environments, "_run", run)
        environments.environment(FAKE).path.mkdir(parents=True)
        lines: list[str] = []
        monkeypatch.setattr(environments.shutil, "rmtree", lambda _: None)
        environments.sync(FAKE, on_line=lines.append)
        assert [("--offline" in command) for command in commands if "install" in command] == [False, True]
        assert "the package index cannot be reached; trying with what is cached" in lines

    def test_two_processes_make_it_once(self, peer: Peer) -> None:
        """One of two concurrent syncs builds the environment, and both find it ready."""
        command = [sys.executable, "-c", TWO_PROCESSES, str(peer.requirements)]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        both = [subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        outputs = [process.communicate(timeout=120)[0].strip() for process in both]
        assert [process.returncode for process in both] == [0, 0]
        assert sorted(outputs) == ["0", "1"]
        assert environments.environment(FAKE).ready

    @pytest.mark.usefixtures("tool")
    def test_unreachable_index_is_reported(self, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        """The error names the cause and the command to run later."""
        peer.requirements.write_text(f"{HEADER}fake-distribution==1.0\n")
        monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
        monkeypatch.setenv("PIP_RETRIES", "1")
        with pytest.raises(PeerError, match=r"index cannot be reached.*`gates peers sync fake`"):
            environments.sync(FAKE, on_line=lambda _: None)
        assert not environments.environment(FAKE).ready

    @pytest.mark.usefixtures("wheel")
    def test_missing_distribution_is_named(self, peer: Peer, tool: str) -> None:
        """The error of either installer names the pin."""
        peer.requirements.write_text(f"{HEADER}fake-distribution==2.0\n")
        with pytest.raises(
            PeerError, match=rf"{tool} ended with status 1: .*fake-distribution==2\.0.*peers sync fake`"
        ):
            environments.sync(FAKE, on_line=lambda _: None)

    def test_failed_step_is_quoted(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The error has the step's last error line and its exit status."""
        broken = tmp_path / "python"
        broken.write_text("#!/bin/sh\necho 'Error: ensurepip is not available'\nexit 3\n")
        broken.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(broken))
        with pytest.raises(PeerError, match="venv ended with status 3: Error: ensurepip is not available"):
            environments.sync(FAKE, on_line=lambda _: None)

    def test_unwritable_cache_names_the_variable(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv(environments.CACHE_VARIABLE, str(tmp_path / "file"))
        with pytest.raises(PeerError, match=environments.CACHE_VARIABLE):
            environments.sync(FAKE, on_line=lambda _: None)


@pytest.mark.usefixtures("peer")
class TestListing:
    """The rows of `gates peers list`."""

    def test_row_of_an_absent_environment(self, peer: Peer) -> None:
        """It has the pinned version and size 0 and is not ready."""
        peer.requirements.write_text(HEADER + 'other==9\nFake-Distribution==1.2.3; sys_platform == "linux"\n')
        (row,) = environments.listing()
        assert (row.name, row.version, row.ready, row.size, row.purpose) == (FAKE, "1.2.3", False, 0, "tests")
        assert row.path == environments.environment(FAKE).path

    def test_size_counts_bytes(self) -> None:
        environment = environments.environment(FAKE)
        (environment.path / "inner").mkdir(parents=True)
        (environment.path / "inner" / "file").write_bytes(b"12345")
        assert environments.listing()[0].size == 5

    def test_a_vanished_file_has_no_size(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Files may vanish while another process installs."""
        environment = environments.environment(FAKE)
        environment.path.mkdir(parents=True)
        (environment.path / "file").write_bytes(b"12345")
        monkeypatch.setattr(environments.os, "walk", lambda path: [(str(path), [], ["file", "gone"])])
        assert environments.listing()[0].size == 5


@pytest.mark.parametrize("peer", environments.peers().values(), ids=list(environments.peers()))
def test_every_package_is_pinned(peer: Peer) -> None:
    """Each line pins one package and has no URL; NumPy is listed because the worker needs it."""
    lines = discovery.packages(peer.requirements).splitlines()
    pinned = re.compile(r"[a-z0-9-]+(\[[a-z]+\])?==[0-9][0-9.]*(post[0-9]+)?(; .+)?")
    assert [line for line in lines if not pinned.fullmatch(line)] == []
    assert any(line.startswith("numpy==") for line in lines)
    assert any(line.startswith(f"{peer.distribution}==") for line in lines)

"""Checkpoints: whole or not at all, bit-exact resume, kills at any moment, mlx_lm's layout."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import mlx.core as mx
import pytest
import runs

from gates_reference.trainer import lora
from gates_reference.trainer import model as models
from gates_reference.trainer.checkpoint import folders, jsonl, layout, state
from gates_reference.trainer.config import read, write
from gates_reference.trainer.engine import rollout
from gates_reference.trainer.loop import run as loop_run

KILLS = int(os.environ.get("KILLS", "2"))


class StopError(Exception):
    """Ends a run in the middle."""


class StopAfter(loop_run.sinks.Callback):
    """Raises after a step, before its checkpoint."""

    def __init__(self, step: int) -> None:
        self._step = step

    def step(self, step: int, numbers: object, times: object) -> None:
        if step == self._step:
            raise StopError


def _stopped(config: read.Config, step: int, *, resume: bool = False) -> None:
    """Train until a step is done, and stop before its checkpoint."""
    with pytest.raises(StopError):
        runs.train(config, resume=resume, told=[StopAfter(step)])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    runs.train(runs.config(folder))
    return runs.digests(folder)


@pytest.mark.parametrize("stops", [[1], [3], [4], [2, 5], [6]], ids=str)
def test_resumed_run_has_the_bytes_of_one_run(tmp_path: Path, whole: dict[str, str], stops: list[int]) -> None:
    """Stopped after any steps and resumed, metrics, tables, adapters and optimizer are byte for byte those of one run."""
    config = runs.config(tmp_path / "run")
    for step in stops:
        _stopped(config, step, resume=True)
    summary = runs.train(config, resume=True)
    assert runs.digests(tmp_path / "run") == whole
    assert summary.warnings == []


def test_resume_without_optimizer_moments_differs(tmp_path: Path, whole: dict[str, str]) -> None:
    """Without the optimizer's moments the end differs: the comparison above can fail."""
    config = runs.config(tmp_path / "run")
    _stopped(config, 5)
    path = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    saved = mx.load(str(path / "optimizer.safetensors"))
    mx.save_safetensors(
        str(path / "optimizer.safetensors"), {k: mx.zeros_like(v) if "model" in k else v for k, v in saved.items()}
    )
    saved_state = json.loads((path / "state.json").read_text())
    saved_state["files"]["optimizer.safetensors"] = folders._digest(path / "optimizer.safetensors")
    (path / "state.json").write_text(json.dumps(saved_state))
    runs.train(config, resume=True)
    assert runs.digests(tmp_path / "run") != whole


def test_raised_steps_continue_a_finished_run(tmp_path: Path) -> None:
    """A constant schedule lets a finished run be lengthened: 4 steps and 2 more are 6."""
    runs.train(runs.config(tmp_path / "a", loop={"steps": 4}))
    runs.train(runs.config(tmp_path / "a", loop={"steps": 6}), resume=True)
    runs.train(runs.config(tmp_path / "b", loop={"steps": 6}))
    assert runs.digests(tmp_path / "a") == runs.digests(tmp_path / "b")


def test_resume_refuses_another_configuration(tmp_path: Path) -> None:
    """The message names the key that differs and both values."""
    runs.train(runs.config(tmp_path / "run", loop={"steps": 2, "evaluate_every_steps": 0}))
    other = runs.config(
        tmp_path / "run", loop={"steps": 2, "evaluate_every_steps": 0}, optimizer={"learning_rate": 1e-3}
    )
    with pytest.raises(layout.CheckpointError, match=r"optimizer\.learning_rate was 0\.005 and is 0\.001"):
        runs.train(other, resume=True)


def test_checkpoint_without_a_newer_key_gets_its_default(tmp_path: Path, whole: dict[str, str]) -> None:
    """A checkpoint of a trainer without some key is gone on with, unless the key is set to something else now."""
    config = runs.config(tmp_path / "run")
    _stopped(config, 5)
    for path in (tmp_path / "run" / "checkpoints").glob("step-*/state.json"):
        content = json.loads(path.read_text())
        del content["config"]["rollout"]["min_p"]
        content["config_digest"] = state.config_digest(content["config"])
        path.write_text(json.dumps(content))
    other = runs.config(tmp_path / "run", rollout={**config.rollout.model_dump(), "min_p": 0.5})
    with pytest.raises(layout.CheckpointError, match=r"rollout\.min_p was 0\.0 and is 0\.5"):
        runs.train(other, resume=True)
    runs.train(config, resume=True)
    assert runs.digests(tmp_path / "run") == whole


@pytest.mark.parametrize("name", ["adapters.safetensors", "optimizer.safetensors", "state.json"])
def test_truncated_checkpoint_is_skipped(tmp_path: Path, whole: dict[str, str], name: str) -> None:
    """With any file cut short, the one before is used, the user is told, and the end is the same."""
    config = runs.config(tmp_path / "run")
    _stopped(config, 5)
    newest = tmp_path / "run" / "checkpoints" / "step-00000004"
    content = (newest / name).read_bytes()
    (newest / name).write_bytes(content[: len(content) // 2])
    summary = runs.train(config, resume=True)
    assert len(summary.warnings) == 1
    assert "step-00000004 is not whole" in summary.warnings[0]
    assert runs.digests(tmp_path / "run") == whole


def test_prune_keeps_the_newest_checkpoints(tmp_path: Path) -> None:
    """Of the checkpoints at 2, 4 and 6 two are left, and nothing half-done."""
    half = tmp_path / "run" / "checkpoints" / "step-00000009.part"
    half.mkdir(parents=True)
    runs.train(runs.config(tmp_path / "run"))
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == [
        "step-00000004",
        "step-00000006",
    ]


def _torn(run: Path, step: int) -> None:
    """A checkpoint of this step with half of its adapters, made from one that is there or from nothing."""
    path = run / "checkpoints" / f"step-{step:08d}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "state.json").write_text(json.dumps({"step": step, "files": {"adapters.safetensors": "0" * 64}}))
    (path / "adapters.safetensors").write_bytes(b"half")


@pytest.mark.parametrize(
    ("keep", "torn", "left"),
    [
        pytest.param(1, [6], [4], id="one-kept"),
        pytest.param(2, [6, 8], [2, 4], id="as-many-torn-as-kept"),
        pytest.param(2, [3, 9], [2, 4], id="one-torn-below"),
        pytest.param(1, [4, 6], [4], id="saved-again"),
    ],
)
def test_prune_removes_damaged_checkpoints_before_intact_ones(
    tmp_path: Path, whole: dict[str, str], keep: int, torn: list[int], left: list[int]
) -> None:
    """A run that goes back behind torn checkpoints keeps what it saves from there on, and can be killed and resumed again."""
    config = runs.config(
        tmp_path / "run", output={**runs.config(tmp_path / "run").output.model_dump(), "keep_checkpoints": keep}
    )
    _stopped(config, 3)
    for step in torn:
        _torn(tmp_path / "run", step)
    _stopped(config, 5, resume=True)
    assert list(folders.steps(tmp_path / "run" / "checkpoints")) == left
    path, _, complaints = folders.newest(tmp_path / "run" / "checkpoints")
    assert path is not None
    assert (path.name, complaints) == ("step-00000004", [])
    assert runs.train(config, resume=True).warnings == []
    assert runs.digests(tmp_path / "run") == whole


@pytest.mark.parametrize("at", range(6))
def test_kill_during_prune_leaves_an_intact_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Stopped before any rename or removal of `prune`, the checkpoint that was just saved is the newest whole one."""

    def write(part: Path) -> None:
        (part / "adapters.safetensors").write_bytes(b"all")

    for step in (5, 10):
        folders.save(tmp_path / "checkpoints", step, {}, write)
    for step in (15, 20):
        _torn(tmp_path, step)
    calls = 0

    def stopping(what: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > at:
                raise StopError
            return what(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", stopping(Path.rename))
        patch.setattr(folders.shutil, "rmtree", stopping(folders.shutil.rmtree))
        with pytest.raises(StopError):
            folders.prune(tmp_path / "checkpoints", 1, {15, 20})
    newest = folders.newest(tmp_path / "checkpoints")[0]
    assert newest is not None
    assert newest.name == "step-00000010"


def test_shortened_metrics_file_is_refused(tmp_path: Path) -> None:
    """A metrics file shorter than its checkpoint says was changed by someone; nothing is invented."""
    config = runs.config(tmp_path / "run", loop={"steps": 2, "evaluate_every_steps": 0})
    runs.train(config)
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    with pytest.raises(layout.CheckpointError, match=r"metrics\.jsonl: has 0 bytes"):
        runs.train(config, resume=True)


def test_truncated_last_line_is_removed(tmp_path: Path) -> None:
    """Whatever stands beyond the recorded length goes; readers leave a torn line out."""
    path = tmp_path / "x.jsonl"
    file = jsonl.Lines(path)
    file.write({"step": 1, "loss": float("nan")})
    length = file.length()
    file.write({"step": 2})
    file.close()
    path.write_bytes(path.read_bytes()[:-3])
    assert jsonl.read(path) == [{"step": 1, "loss": "nan"}]
    jsonl.cut(path, length)
    assert path.stat().st_size == length


def test_resume_refuses_changed_data(tmp_path: Path) -> None:
    """A run is not gone on with on rows that have changed since: its data order would mean other prompts."""
    file = tmp_path / "rows.jsonl"
    rows = [json.dumps({"prompt": f"{n}+1=", "answer": n + 1}) for n in range(6)]
    file.write_text("\n".join(rows))
    data = {"kind": "jsonl", "path": str(file), "count": None, "validation_rows": 0}
    tables = {"data": data, "loop": {"steps": 4, "evaluate_every_steps": 0}}
    _stopped(runs.config(tmp_path / "run", **tables), 3)
    file.write_text("\n".join([*rows, json.dumps({"prompt": "9+1=", "answer": 10})]))
    with pytest.raises(layout.CheckpointError, match=r"other rows of data than .*rows\.jsonl"):
        runs.train(runs.config(tmp_path / "run", **tables), resume=True)
    file.write_text("\n".join(rows) + "\n")
    summary = runs.train(runs.config(tmp_path / "run", **tables), resume=True)
    used = json.loads((tmp_path / "run" / "used.json").read_text())
    assert summary.steps == 4
    assert used["data"]["rows"] == 6
    assert [one["name"] for one in used["rewards"]] == ["low"]
    digest = hashlib.sha256((tmp_path / "reward.py").read_bytes()).hexdigest()
    assert used["rewards"][0]["file_digest"] == digest


class TestUsedJson:
    """`used.json` tells of every process that made a run's steps."""

    LOOP: ClassVar = {"steps": 6, "head_rows": 5, "evaluate_every_steps": 0}

    @staticmethod
    def _used(folder: Path) -> dict[str, Any]:
        used = json.loads((folder / "run" / "used.json").read_text())
        return {name: used[name] for name in ("rollout_paths", "head_calls", "resumed_at_steps")}

    def test_every_process_of_a_run_is_listed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Resumed at 2 and at 4, each time by another path of the rollout: three paths, both steps, the head's most pieces."""
        config = runs.config(tmp_path / "run", loop=self.LOOP)
        once = rollout.Source.once

        def by(path: str) -> Any:
            def call(self: rollout.Source, *arguments: Any) -> Any:
                made = once(self, *arguments)
                self.paths.clear()
                self.paths.add(path)
                return made

            return call

        for path, stop in (("one", 3), ("two", 5)):
            monkeypatch.setattr(rollout.Source, "once", by(path))
            _stopped(config, stop, resume=True)
        monkeypatch.setattr(rollout.Source, "once", by("three"))
        runs.train(config, resume=True)
        used = self._used(tmp_path)
        assert used["rollout_paths"] == ["one", "three", "two"]
        assert used["resumed_at_steps"] == [2, 4]
        assert used["head_calls"] >= 2

    def test_resume_of_a_finished_run_changes_no_byte(self, tmp_path: Path) -> None:
        """No step was taken, so there is nothing to tell; a file that is gone, or of an earlier end, is made again."""
        runs.train(runs.config(tmp_path / "run", loop={**self.LOOP, "steps": 2}))
        file = tmp_path / "run" / "used.json"
        early = file.read_bytes()
        config = runs.config(tmp_path / "run", loop=self.LOOP)
        runs.train(config, resume=True)
        before, told = file.read_bytes(), self._used(tmp_path)
        assert told["rollout_paths"] == ["batched"]
        assert told["resumed_at_steps"] == [2]
        runs.train(config, resume=True)
        assert file.read_bytes() == before
        file.write_bytes(early)  # as a kill between the last checkpoint and this file leaves it
        runs.train(config, resume=True)
        assert self._used(tmp_path) == told
        file.unlink()
        runs.train(config, resume=True)
        assert self._used(tmp_path) == told

    def test_checkpoint_of_an_older_trainer_is_accepted(self, tmp_path: Path, whole: dict[str, str]) -> None:
        """Without the entry it is gone on with, to the same bytes; only what ran since is known."""
        config = runs.config(tmp_path / "run")
        _stopped(config, 5)
        for path in (tmp_path / "run" / "checkpoints").glob("step-*/state.json"):
            content = json.loads(path.read_text())
            del content["ran"]
            path.write_text(json.dumps(content))
        runs.train(config, resume=True)
        assert runs.digests(tmp_path / "run") == whole
        assert self._used(tmp_path) == {"rollout_paths": ["batched"], "head_calls": 1, "resumed_at_steps": [4]}


def test_load_refuses_adapters_of_another_shape(tmp_path: Path) -> None:
    """The message names the first array that does not fit."""
    runs.train(runs.config(tmp_path / "run", loop={"steps": 1, "evaluate_every_steps": 0}))
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    loaded = models.load({"hidden": 32})
    with lora.attached(loaded.model, {"rank": 3}):
        lora.freeze(loaded.model)
        with pytest.raises(layout.CheckpointError, match="first of 28 that differ"):
            layout.load(newest, loaded.model)


def _start(config: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gates", "trainer", "train", str(config), "--resume", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.timeout(60 + 30 * KILLS)
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """SIGKILL at random moments of one run after another; resumed to its end, every byte is that of an uninterrupted run.

    `KILLS=100` is the record's number. A moment is drawn from the time between the start of training and its end.
    """
    files: dict[str, Path] = {}
    for name in ("whole", "killed"):
        tables = runs.tables(tmp_path / name / "run", loop={"steps": 24})
        files[name] = tmp_path / f"{name}.toml"
        files[name].write_text(write.toml(tables))
    start = time.monotonic()
    process = _start(files["whole"])
    began = _training(tmp_path / "whole" / "run", process, 0.0) - start
    assert process.wait() == 0
    seconds = max(time.monotonic() - start - began, 0.5)
    expected = runs.digests(tmp_path / "whole" / "run")
    moments = random.Random(0)  # noqa: S311  reproducible moments, not secrets
    kills = identical = ends = 0
    while kills < KILLS:
        since = time.time()
        process = _start(files["killed"])
        _training(tmp_path / "killed" / "run", process, since)
        try:
            process.wait(timeout=moments.uniform(0, seconds / 3))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        assert process.returncode == 0  # it got to its end: begin again
        assert runs.digests(tmp_path / "killed" / "run") == expected
        identical, ends = kills, ends + 1
        _clear(tmp_path / "killed" / "run")
    process = _start(files["killed"])
    assert process.wait() == 0
    assert runs.digests(tmp_path / "killed" / "run") == expected
    identical, ends = kills, ends + 1
    said = f"{kills} kills, {identical} of them behind an end that is identical, {ends} ends"
    print(said)  # noqa: T201  tools/long_proofs.py reads it


def _clear(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def _training(folder: Path, process: subprocess.Popen[bytes], since: float) -> float:
    """The moment at which the process has loaded everything and trains: it writes config.json then."""
    file = folder / "config.json"
    while process.poll() is None and not (file.exists() and file.stat().st_mtime >= since - 1e-3):
        time.sleep(0.005)
    return time.monotonic()

"""The trace of a run: what it holds, that it changes nothing, and that a killed run has the same one."""

import json
from pathlib import Path

import numpy as np
import pytest
from runs import config, lines, train
from safetensors import safe_open

from gates.recorded.trace import judged_folder
from gates_reference.trainer import trace
from gates_reference.trainer.metrics.callbacks import Callback


class StoppedError(Exception):
    """A run ends here."""


class Stopper(Callback):
    """Ends a run after a step, before its checkpoint."""

    def __init__(self, at: int) -> None:
        self.at = at

    def step(self, step: int, *_: object) -> None:
        if step == self.at:
            raise StoppedError


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / trace.FOLDER).glob("*.safetensors"))}


def test_a_run_is_the_same_with_a_trace(tmp_path: Path) -> None:
    """Watching changes no number and no adapter; without being asked for it leaves no folder."""
    plain = train(config(tmp_path / "plain"))
    traced = train(config(tmp_path / "traced", output={"trace": True}))
    assert plain.adapter_digest == traced.adapter_digest
    assert lines(tmp_path / "plain") == lines(tmp_path / "traced")
    assert not (tmp_path / "plain" / trace.FOLDER).exists()
    names = set(contents(tmp_path / "traced"))
    assert names == {
        *(f"step-{n:08d}.safetensors" for n in range(1, 7)),
        *(f"step-{n:08d}-update-01.safetensors" for n in range(1, 7)),
        *(f"evaluation-{n:08d}.safetensors" for n in (3, 6)),
    }


def test_a_stopped_run_has_the_same_trace(tmp_path: Path) -> None:
    """Steps after the last checkpoint are written again with the same bytes; halves of files and later steps are removed."""
    whole, cut = (config(tmp_path / name, output={"trace": True}) for name in ("whole", "cut"))
    train(whole)
    with pytest.raises(StoppedError):
        train(cut, told=[Stopper(5)])
    folder = tmp_path / "cut" / trace.FOLDER
    (folder / "step-00000005.safetensors.part").write_bytes(b"half")
    (folder / "step-00000009-update-01.safetensors").write_bytes(b"of another run")
    train(cut, resume=True)
    assert contents(tmp_path / "whole") == contents(tmp_path / "cut")
    assert not list(folder.glob("*.part"))


def test_each_file_is_a_recorded_step(tmp_path: Path) -> None:
    """`gates judge` reads the folder: the loss and the advantages are correct, the sampler's drift is a finding."""
    train(config(tmp_path / "run", output={"trace": True}, loop={"steps": 2, "iterations": 2, "micro_batch_rows": 3}))
    verdicts = {finding.quantity: finding.status for finding in judged_folder(tmp_path / "run")}
    assert verdicts["policy_loss[grpo]"] == "correct"
    assert verdicts["group_advantages"] == "correct"
    assert verdicts["sampler drift"] == "finding"


def test_a_wrong_step_of_a_folder_is_named(tmp_path: Path) -> None:
    """One update with another loss makes the folder wrong, by the name of its file."""
    sections = {"loop": {"steps": 2}, "rollout": {"samples_per_prompt": 3}}
    train(config(tmp_path / "run", output={"trace": True}, **sections))
    path = tmp_path / "run" / trace.FOLDER / "step-00000002-update-01.safetensors"
    with safe_open(path, framework="np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
        metadata = dict(file.metadata())
    arrays["gradient"] = np.roll(arrays["gradient"], 1, axis=1)
    facts = json.loads(metadata.pop(trace.FOLDER))
    trace.write(path, arrays, {k: v for k, v in metadata.items() if k != "recorded_step"}, facts)
    (finding,) = [each for each in judged_folder(tmp_path / "run") if each.quantity == "policy_loss[grpo]"]
    assert finding.status == "wrong"
    assert finding.reason.startswith("step-00000002-update-01: ")
    assert "(wrong in 1 of 2 files)" in finding.reason

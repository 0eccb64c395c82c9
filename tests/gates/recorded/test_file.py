"""An invalid file is refused with one sentence that names tensor or setting and the remedy."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from steps import EXAMPLE, SETTINGS, verdicts, write

from gates.model import ConfigurationError
from gates.recorded import fields
from gates.recorded.file import WIDEST, open_step
from gates.recorded.step import Step

STEP = EXAMPLE.recorded("none")


def changed(name: str, index: tuple[int, ...], value: float) -> dict[str, Any]:
    """Return one tensor of the step with one number changed."""
    array = STEP[name].copy() if STEP[name].dtype != bool else STEP[name].astype(np.int8)
    array[index] = value
    return {name: array}


TENSORS = [  # tensors, omitted tensors, message
    ({"polcy": STEP["policy"]}, (), "tensor `polcy` is unknown; did you mean 'policy'?"),
    ({"old": STEP["old"][:, :-1]}, (), "tensor `old` has shape [16, 23], must be [16, 24] as `policy` has"),
    ({"rewards": STEP["rewards"][:-1]}, (), "tensor `rewards` has shape [15], must be [16]"),
    ({"loss": STEP["rewards"]}, (), "tensor `loss` has shape [16], must be ()"),
    ({"policy": STEP["policy"][0]}, (), "tensor `policy` has shape [24], must be (B, T)"),
    ({"policy": STEP["policy"].astype(ml_dtypes.bfloat16)}, (), "dtype BF16, must be F32 or F64; write it with `.float()`"),
    ({"groups": STEP["rewards"]}, ("group_size",), "tensor `groups` has dtype F32, must be I64"),
    ({"old": STEP["old"].astype(np.float64)}, (), "tensor `old` has dtype F64, `policy` F32: write both"),
    ({"rewards": STEP["rewards"].astype(np.float64)}, (), "tensor `rewards` has dtype F64, `advantages` F32: write both"),
    ({}, ("loss",), "tensor `gradient` is given without `loss`: add it"),
    ({}, ("advantages",), "tensor `loss` is given without `advantages`: add it"),
    ({}, ("reference",), "setting `beta` is 0.04 but there is no tensor `reference`: add it, or leave `beta` out"),
    ({}, ("old",), "setting `epsilon_low` asks for a ratio but there is no tensor `old`: add it, or write `ratio`"),
    ({"policy": STEP["policy"][:0]}, (), "`policy` has shape [0, 24]"),
    (changed("policy", (3, 0), np.nan), (), "tensor `policy` is nan at [3, 0], where a token stands: record a finite number"),
    (changed("sampling", (3, 0), np.inf), (), "tensor `sampling` is inf at [3, 0]"),
    (changed("mask", (2, 5), 2), (), "tensor `mask` is 2 at [2, 5], must be 0 or 1 everywhere"),
    (changed("rewards", (1,), np.inf), (), "tensor `rewards` is inf at [1], must be finite, or NaN for not scored"),
    ({"mask": np.zeros((16, 24), bool)}, (), "tensor `mask` holds no token"),
]  # fmt: skip
SETTING = [
    ({"epsilon_hi": "0.2"}, (), "setting `epsilon_hi` is unknown; did you mean 'epsilon_high'?"),
    ({"algorithm": "gpro"}, (), "setting `algorithm` is 'gpro', must be one of grpo,"),
    ({"beta": "much"}, (), "setting `beta` is 'much', must be a number"),
    ({"beta": "nan"}, (), "setting `beta` is 'nan', must be a finite number"),
    ({"ddof": "1.5"}, (), "setting `ddof` is '1.5', must be an integer"),
    ({"ddof": "2"}, (), "setting `ddof` is 2, must be 0 or 1"),
    ({"group_size": "5"}, (), "setting `group_size` is 5, must divide the 16 rows"),
    ({"recorded_step": "2"}, (), "its `recorded_step` is '2', this version of Gates reads '1'"),
    ({}, ("recorded_step",), "its metadata have no `recorded_step`"),
    ({}, ("kl_ratio",), "setting `beta` needs `kl_ratio`: write one of"),
    ({}, ("epsilon_high",), "setting `algorithm` is 'grpo', which needs `epsilon_high`"),
    ({"algorithm": "dapo"}, (), "needs `dapo_denominator`: write one of global, group, trl"),
    ({}, ("ddof",), "setting `scale` is given without `ddof`: write all of"),
    ({"scale": "none"}, (), "setting `ddof` means nothing with `scale` 'none': leave it out"),
    ({"ratio": "on-policy"}, (), "setting `ratio` is 'on-policy' but there is a tensor `old`"),
    ({"correction": "tis"}, ("sampling",), "setting `correction` needs the tensor `sampling`"),
    ({"delta": "1.1"}, (), "`delta` is 1.1, must be finite and above 1 + epsilon_high"),
    ({"algorithm": "bnpo-trl", "micro_batches": "4,4"}, (), "blocks of [4, 4] rows"),
]


class TestContradictions:
    """Tensors and settings that contradict each other."""

    @pytest.mark.parametrize(("tensors", "without", "message"), TENSORS, ids=[message for *_, message in TENSORS])
    def test_a_contradicting_tensor_is_refused(
        self, tmp_path: Path, tensors: dict[str, Any], without: tuple[str, ...], message: str
    ) -> None:
        path = write(tmp_path / "step.safetensors", tensors, without=without)
        with pytest.raises(ConfigurationError) as error:
            verdicts(path)
        assert message in str(error.value)
        assert str(error.value).startswith(str(path))
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize(("settings", "without", "message"), SETTING, ids=[message for *_, message in SETTING])
    def test_a_contradicting_setting_is_refused(
        self, tmp_path: Path, settings: dict[str, str], without: tuple[str, ...], message: str
    ) -> None:
        path = write(tmp_path / "step.safetensors", settings=settings, without=without)
        with pytest.raises(ConfigurationError) as error:
            verdicts(path)
        assert message in str(error.value)
        assert str(error.value).startswith(str(path))

    def test_groups_and_group_size_exclude_each_other(self, tmp_path: Path) -> None:
        """The message asks to leave one out."""
        path = write(tmp_path / "step.safetensors", {"groups": np.repeat(np.arange(4), 4)})
        with pytest.raises(ConfigurationError, match="`group_size` and tensor `groups` are both given"):
            open_step(path)

    def test_format_in_the_metadata_is_ignored(self, tmp_path: Path) -> None:
        """Writers of torch and transformers add `format`."""
        assert open_step(write(tmp_path / "step.safetensors", settings={"format": "pt"})).rows == 16


class TestDamage:
    """Damaged files, and paths that are not files."""

    def test_a_truncated_file_is_refused(self, tmp_path: Path) -> None:
        whole = write(tmp_path / "step.safetensors").read_bytes()
        for length in (0, 4, 200, len(whole) // 2, len(whole) - 1):
            path = tmp_path / "torn.safetensors"
            path.write_bytes(whole[:length])
            with pytest.raises(ConfigurationError, match="is torn or no safetensors file"):
                open_step(path)

    def test_a_header_larger_than_the_file_is_refused(self, tmp_path: Path) -> None:
        header = {"policy": {"dtype": "F32", "shape": [1 << 40, 1 << 20], "data_offsets": [0, 1 << 62]}}
        text = json.dumps(header).encode()
        path = tmp_path / "huge.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text)
        with pytest.raises(ConfigurationError, match="is torn or no safetensors file"):
            open_step(path)

    def test_too_wide_rows_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "wide.safetensors"
        save_file({"policy": np.zeros((1, WIDEST + 1), np.float32)}, path, {"recorded_step": "1"})
        with pytest.raises(ConfigurationError, match=r"must have at most \d+ of 262144: record a part"):
            open_step(path)

    def test_a_pickle_is_not_loaded(self, tmp_path: Path) -> None:
        path = tmp_path / "step.pt"
        path.write_bytes(b"\x80\x04cos\nsystem\n(S'touch owned'\ntR.")
        with pytest.raises(ConfigurationError, match="no safetensors file"):
            open_step(path)
        assert not Path("owned").exists()

    def test_only_regular_files_are_read(self, tmp_path: Path) -> None:
        """Folders, pipes and missing files are refused; a link is followed."""
        os.mkfifo(tmp_path / "pipe")
        for name, message in ((".", "is no regular file"), ("pipe", "is no regular file"), ("none", "No such file")):
            with pytest.raises(ConfigurationError, match=message):
                open_step(tmp_path / name)
        write(tmp_path / "step.safetensors")
        (tmp_path / "link").symlink_to("step.safetensors")
        assert open_step(tmp_path / "link").rows == 16


class TestGroups:
    """Groups of rows with one prompt."""

    def test_rows_of_a_prompt_may_be_scattered(self, tmp_path: Path) -> None:
        ids = np.arange(16) % 4
        step = Step(open_step(write(tmp_path / "step.safetensors", {"groups": ids}, without=("group_size",))))
        assert step.group_size is None
        assert step.groups is not None
        assert [ids[row].tolist() for row in step.groups] == [[k] * 4 for k in range(4)]

    def test_prompts_may_have_different_sizes(self, tmp_path: Path) -> None:
        ids = np.array([7] * 3 + [9] * 13)
        step = Step(open_step(write(tmp_path / "step.safetensors", {"groups": ids}, without=("group_size",))))
        assert step.groups is not None
        assert step.groups[0].tolist() == [0, 1, 2, *[-1] * 10]


def test_the_settings_of_the_example_are_parsed() -> None:
    assert set(SETTINGS) - {"recorded_step"} <= set(fields.SETTINGS)

"""Files of counterexamples: round trips, and refusal of hostile files."""

import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from counterexample_doubles import SOME, changed

from gates.model import ConfigurationError, Recipe
from gates.shrink.file import read, write


class TestFile:
    """Round trips, and refusal of hostile files."""

    def test_arrays_round_trip_bit_for_bit(self, tmp_path: Path) -> None:
        """Nested arrays, NaN and infinities included."""
        write(tmp_path / "c.safetensors", SOME)
        restored = read(tmp_path / "c.safetensors")
        assert restored.inputs["policy"].tobytes() == SOME.inputs["policy"].tobytes()
        assert restored.inputs["rows"][0].tolist() == [0, 1]
        assert restored.inputs["rows"][1] is None
        assert (restored.inputs["beta"], restored.inputs["on"]) == (float("inf"), True)
        assert (restored.gate, restored.seed, restored.finished, restored.judged_beside) == (SOME.gate, 3, True, None)
        assert [path.name for path in tmp_path.iterdir()] == ["c.safetensors"]

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint64", "bool"])
    def test_every_dtype_and_shape_round_trips(self, tmp_path: Path, dtype: str) -> None:
        """Scalars, empty and strided arrays and the other byte order included."""
        plain = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
        inputs = {
            "whole": plain,
            "strided": plain.T,
            "scalar": plain[1, 1],
            "none": plain[:0],
            "zero_d": plain[1, 2:].reshape(()),
        }
        if plain.dtype.isbuiltin == 1:
            inputs["swapped"] = plain.astype(plain.dtype.newbyteorder(">"))
        write(tmp_path / "c.safetensors", changed(inputs=inputs))
        restored = read(tmp_path / "c.safetensors").inputs
        assert restored.keys() == inputs.keys()
        for name, value in inputs.items():
            assert (restored[name].dtype, restored[name].shape) == (plain.dtype, np.shape(value)), name
            assert restored[name].tolist() == value.tolist(), name

    @pytest.mark.parametrize("value", [np.zeros(2, complex), np.array(["text"]), np.zeros(2, np.longdouble), object()])
    def test_an_unsupported_value_is_refused(self, tmp_path: Path, value: object) -> None:
        """The message names the input, and no file is left."""
        with pytest.raises(ValueError, match="`x` "):
            write(tmp_path / "c.safetensors", changed(inputs={"x": value}))
        assert not list(tmp_path.iterdir())

    def test_recipes_round_trip(self, tmp_path: Path) -> None:
        """Recipes of models and prompts, and the cut of rollouts."""
        inputs = {"model": Recipe("model", {"seed": 1}), "prompts": Recipe("data", {"count": 2, "style": "plain"})}
        write(tmp_path / "c.safetensors", changed(inputs=inputs, cut={"samples": 1, "style": "plain"}, unit="tokens"))
        restored = read(tmp_path / "c.safetensors")
        assert restored.inputs == inputs
        assert (restored.cut, restored.unit) == ({"samples": 1, "style": "plain"}, "tokens")

    def test_files_of_the_first_format_are_read(self) -> None:
        """Their only unit was numbers, and they had no cut."""
        restored = read(Path(__file__).with_name("first_format.safetensors"))
        assert (restored.elements_after, restored.unit, restored.cut) == (4, "numbers", {})

    def test_only_regular_files_are_read(self, tmp_path: Path) -> None:
        """A pipe without a writer, an endless device and a folder are refused at once."""
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
            with pytest.raises(ConfigurationError, match="is no regular file"):
                read(path)

    def test_it_is_a_safetensors_file(self, tmp_path: Path) -> None:
        write(tmp_path / "c.safetensors", SOME)
        arrays = safetensors.numpy.load_file(tmp_path / "c.safetensors")
        assert set(arrays) == {"policy", "rows.0"}
        assert arrays["policy"].tobytes() == SOME.inputs["policy"].tobytes()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda data: b"", "header too small"),
            (lambda data: data[:30], "invalid header length"),
            (lambda data: struct.pack("<Q", 1 << 62) + data[8:], "header too large"),
            (lambda data: data[:-1], "not fully covered"),
            (lambda data: data + b"x", "not fully covered"),
            (lambda data: data.replace(b'"shape":[1,2]', b'"shape":[9,2]'), "invalid shape"),
            (lambda data: data.replace(b'"shape":[1,2]', b'"shape":[-1,2]'), "no counterexample"),
            (lambda data: data.replace(b"[0,16]", b"[8,24]"), "invalid offset"),
            (lambda data: data.replace(b'"F64"', b'"X64"'), "no counterexample"),
            (lambda data: data.replace(b'"F64"', b'"F32"'), "invalid shape"),
            (lambda data: data.replace(b'"F64"', b'"C64"'), "booleans and numbers"),
            (lambda data: data.replace(b"__metadata__", b"__metadatb__"), "no counterexample"),
            (lambda data: data.replace(b'\\"format\\": 2', b'\\"format\\": 7'), "another version"),
            (lambda data: data.replace(b'\\"seed\\": 3', b'\\"seed\\": []')[:-1], "no counterexample"),
            (lambda data: data.replace(b'\\"seed\\": 3', b'\\"seed\\":{}'), "`seed` is a dict, must be int"),
            (lambda data: data.replace(b'\\"gate\\"', b'\\"gats\\"'), "`gate` is missing"),
            (lambda data: data.replace(b'\\"cut\\": {}', b'\\"cut\\": []'), "no counterexample"),
            (lambda data: data.replace(b'{\\"$array\\": \\"policy\\"}', b'{\\"$array\\": \\"polica\\"}'), "polica"),
            (lambda data: struct.pack("<Q", 60000) + b"[" * 60000, "no counterexample"),
            (lambda data: struct.pack("<Q", 4) + b"null" + data, "no counterexample"),
            (lambda data: pickle.dumps({"gate": "kl"}), "no counterexample"),
            (lambda data: os.urandom(200), "no counterexample"),
        ],
        ids=[
            "empty", "cut header", "huge header", "cut data", "more data", "larger shape", "negative shape", "offsets",
            "dtype", "other dtype", "complex", "no metadata", "format", "field of another type and cut",
            "field of another type", "no gate", "cut", "no array", "deep", "null", "pickle", "noise",
        ],
    )  # fmt: skip
    def test_another_file_is_refused(self, tmp_path: Path, change: Callable[[bytes], bytes], message: str) -> None:
        """Every defect is one sentence, before a large allocation."""
        path = tmp_path / "c.safetensors"
        write(path, SOME)
        path.write_bytes(change(path.read_bytes()))
        with pytest.raises(ConfigurationError, match=message):
            read(path)

    def test_a_missing_file_or_folder_is_refused(self, tmp_path: Path) -> None:
        for path in (tmp_path / "none", tmp_path):
            with pytest.raises(ConfigurationError, match="cannot read"):
                read(path)

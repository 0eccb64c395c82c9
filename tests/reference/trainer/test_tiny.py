"""Tiny models: deterministic, whole, readable by mlx-lm, quantised on request."""

import json
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from safetensors.numpy import load_file

from gates_reference import tiny

BUILD = "import sys; from gates_reference import tiny; print(tiny.model_hash(tiny.build({'seed': int(sys.argv[1]), 'bits': int(sys.argv[2])})))"


def _start(folder: Path, seed: int, bits: int) -> subprocess.Popen[str]:
    environment = {"GATES_CACHE_DIR": str(folder), "PYTHONPATH": str(Path(tiny.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, str(seed), str(bits)], env=environment, stdout=subprocess.PIPE, text=True
    )


class TestBuild:
    """The folder of a model: the same everywhere, whole or absent."""

    @pytest.mark.parametrize("bits", [32, 4])
    def test_other_processes_build_the_same_bytes(self, tmp_path: Path, bits: int) -> None:
        """Three processes, two of them at once in one cache, build folders of the same hash, and nothing half-built stays."""
        together = [_start(tmp_path / "one", 5, bits) for _ in range(2)]
        hashes = {process.communicate(timeout=100)[0] for process in together}
        hashes.add(_start(tmp_path / "two", 5, bits).communicate(timeout=100)[0])
        assert len(hashes) == 1
        assert all(hash_.strip() for hash_ in hashes)
        assert [path.suffix for path in sorted((tmp_path / "one" / "models").iterdir())] == ["", ".lock"]

    @pytest.mark.parametrize(("dtype", "kept", "least"), [("bfloat16", 8, -125), ("float16", 11, -13)])
    def test_half_weights_are_rounded_ones(self, dtype: str, kept: int, least: int) -> None:
        """Each weight is the float32 one, cut to the dtype's significant bits by ties to even; the configuration says which."""
        whole = load_file(tiny.build({"seed": 3}) / "model.safetensors")
        folder = tiny.build({"seed": 3, "dtype": dtype})
        found = mx.load(str(folder / "model.safetensors"))
        assert isinstance(found, dict)
        assert {str(x.dtype) for x in found.values()} == {f"mlx.core.{dtype}"}
        for name, x in whole.items():
            exponent = np.maximum(np.frexp(x.astype(np.float64))[1], least)  # below it, units no longer shrink
            unit = np.ldexp(1.0, exponent - kept)
            assert np.array_equal(np.array(found[name].astype(mx.float32)), np.rint(x / unit) * unit), name
        assert json.loads((folder / "config.json").read_text())["torch_dtype"] == dtype
        assert mlx_lm.load(str(folder))[0].parameters()["lm_head"]["weight"].dtype == getattr(mx, dtype)

    def test_a_float32_folder_keeps_its_name(self) -> None:
        """The dtype that was the only one is no part of the key: a cache from before is not built again."""
        assert tiny.build({"dtype": "float32"}) == tiny.build({})

    def test_a_failed_build_leaves_no_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An exception in the middle of a build leaves neither the model nor the half of it."""
        monkeypatch.setenv("GATES_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr("gates_reference.tiny_tokenizer.write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tiny.build({"seed": 77})
        assert [path.suffix for path in (tmp_path / "models").iterdir()] == [".lock"]

    def test_a_folder_that_is_there_is_not_built_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The second call returns the first one's folder without writing."""
        first = tiny.build({})
        monkeypatch.setattr("gates_reference.tiny._write", lambda *_: 1 / 0)
        assert tiny.build({"seed": 0}) == first

    def test_specs_give_different_models(self) -> None:
        """Another seed is another folder with other weights."""
        one, two = (load_file(tiny.build({"seed": seed}) / "model.safetensors") for seed in (0, 1))
        assert not np.array_equal(one["lm_head.weight"], two["lm_head.weight"])

    def test_weights_are_pinned(self) -> None:
        """The first weights of seed 0 are the first words of Philox with key 0, shifted to 24 bits and into [-1, 1)."""
        words = np.random.Philox(key=0).random_raw(4)
        expected = [(int(word) >> 40) / 2**23 - 1 for word in words]
        found = load_file(tiny.build({}) / "model.safetensors")["model.embed_tokens.weight"][0, :4]
        assert found.tolist() == expected

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ({"depth": 3}, "depth"),
            ({"bits": 8}, "bits is 8"),
            ({"vocab": 100}, "vocab is 100"),
            ({"kv_heads": 3}, "kv_heads"),
            ({"dtype": "float64"}, "dtype is 'float64'"),
            ({"dtype": "bfloat16", "bits": 4}, "with 4 bits"),
        ],
        ids=["unknown-key", "bits", "vocab", "heads", "dtype", "dtype-of-4-bits"],
    )
    def test_an_impossible_spec_is_an_error(self, spec: dict[str, int | str], message: str) -> None:
        """The message names the key and the value."""
        with pytest.raises(ValueError, match=message):
            tiny.build(spec)

    def test_hash_sees_one_byte(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"12")
        before = tiny.model_hash(tmp_path)
        (tmp_path / "a").write_bytes(b"13")
        assert tiny.model_hash(tmp_path) != before


class TestMlxLm:
    """The folder as mlx-lm reads it."""

    def test_tokenizer_gives_texts_back(self) -> None:
        """Decoding an encoded text is the text, bytes outside the corpus included."""
        _, tokenizer = mlx_lm.load(str(tiny.build({})))[:2]
        for text in ("12+7=", "Ada has 3 apples. How many?", "żółć € \n\t 🤖"):
            assert tokenizer.decode(tokenizer.encode(text)) == text

    def test_tokenizer_merges(self) -> None:
        """A sentence of the corpus has clearly fewer tokens than bytes."""
        _, tokenizer = mlx_lm.load(str(tiny.build({})))[:2]
        text = "Ada has 30 apples. How many apples does Ada have now?"
        assert len(tokenizer.encode(text)) < 0.7 * len(text)

    def test_chat_template_and_special_tokens(self) -> None:
        """A chat is ChatML, it ends with the assistant's turn, and its end token is the model's."""
        _, tokenizer = mlx_lm.load(str(tiny.build({})))[:2]
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": "1+1="}], add_generation_prompt=True, return_dict=False
        )
        assert tokenizer.decode(ids) == "<|im_start|>user\n1+1=<|im_end|>\n<|im_start|>assistant\n"
        assert tokenizer.eos_token_ids == {2}
        assert ids.count(2) == 1
        assert tokenizer.pad_token_id == 0

    def test_four_bit_model_is_mlx_lms_own(self) -> None:
        """The quantised model loads with packed weights that are the float model's to half a step of the group's range."""
        folder = tiny.build({"bits": 4})
        assert json.loads((folder / "config.json").read_text())["quantization"]["bits"] == 4
        model, _ = mlx_lm.load(str(folder))[:2]
        layer = model.layers[0].self_attn.q_proj
        dense = load_file(tiny.build({}) / "model.safetensors")["model.layers.0.self_attn.q_proj.weight"]
        back = np.array(mx.dequantize(layer.weight, layer.scales, layer.biases, layer.group_size, layer.bits))
        step = (dense.max(axis=1) - dense.min(axis=1)) / 15  # 16 codes span the group, here a whole row of 32
        assert (np.abs(back - dense) <= 1.01 * step[:, None]).all()
        assert np.abs(back - dense).max() > 0

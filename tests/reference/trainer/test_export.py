"""What others load: adapters as mlx_lm reads them, and the model with them merged."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
import runs

from gates_reference.trainer import export, lora
from gates_reference.trainer import model as models
from gates_reference.trainer.checkpoint import layout


def _logits(model: object) -> np.ndarray:
    return np.array(model(mx.array([[5, 9, 33, 120]])))  # type: ignore[operator]  # mlx models are callable


@pytest.mark.parametrize(
    ("bits", "dequantize"), [(32, False), (4, False), (4, True)], ids=["float32", "4-bit", "dequantised"]
)
def test_mlx_lm_reads_adapters_and_fused_model(tmp_path: Path, bits: int, *, dequantize: bool) -> None:
    """mlx_lm.load gives the run's logits with the checkpoint's adapters, and with the fused folder alone.

    Float weights merge with a rounding; 4-bit ones are quantised again, which moves the logits by less than the adapters do
    here only in the mean, so that case is judged by being closer to the trained model than to the base.
    """
    config = runs.config(
        tmp_path / "run",
        model={"tiny": {"hidden": 32, "bits": bits}},
        adapter={"b_std": 0.3},
        loop={"steps": 2, "evaluate_every_steps": 0},
        output={"fused": True, "dequantize": dequantize},
    )
    runs.train(config)
    base = models.load({"hidden": 32, "bits": bits})
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    trained = _logits(mlx_lm.load(base.path, adapter_path=str(newest))[0])
    with lora.attached(base.model, config.adapter.spec()):
        lora.freeze(base.model)
        layout.load(newest, base.model)
        assert np.array_equal(trained, _logits(base.model))
    merged = _logits(mlx_lm.load(str(tmp_path / "run" / "fused"))[0])
    plain = _logits(base.model)
    if bits == 32 or dequantize:
        assert np.abs(merged - trained).max() < 1e-4 < np.abs(plain - trained).max()
    else:
        assert np.abs(merged - trained).mean() < np.abs(plain - trained).mean()
    (tmp_path / "another").mkdir()
    with pytest.raises(FileExistsError, match="exists already"):
        export.fused(base.model, base.tokenizer, base.path, tmp_path / "another")


@pytest.mark.parametrize(
    ("family", "spec"),
    [
        ("qwen3_moe", {}),
        ("gemma3_text", {"embeddings": True}),
        ("qwen3_next", {}),
        ("qwen3_5", {"kind": "dora", "targets": ["q_proj"]}),
    ],
    ids=["experts", "embeddings", "hybrid-experts", "dora"],
)
def test_every_kind_of_adapter_is_merged(tmp_path: Path, family: str, spec: dict[str, Any]) -> None:
    """The fused folder gives the logits of base and adapters, which are far from the base's, to a rounding."""
    loaded = models.load({"family": family})
    plain = _logits(loaded.model)
    with lora.attached(loaded.model, {"b_std": 0.3, **spec}):
        lora.freeze(loaded.model)
        trained = _logits(loaded.model)
        folder = export.fused(loaded.model, loaded.tokenizer, loaded.path, tmp_path / "fused")
        assert np.array_equal(trained, _logits(loaded.model))
    assert np.abs(_logits(mlx_lm.load(str(folder))[0]) - trained).max() < 1e-3
    assert np.abs(plain - trained).max() > 0.1


def _greedy(model: Any, steps: int = 12) -> list[list[int]]:
    """The likeliest tokens after four prompts, each by a full forward pass."""
    rows = [[5, 9, 33], [40, 41], [7], [120, 64, 12, 9]]
    for row in rows:
        for _ in range(steps):
            row.append(int(mx.argmax(model(mx.array([row]))[0, -1])))
    return rows


@pytest.mark.parametrize(
    ("family", "spec"),
    [
        ("qwen3", {"targets": ["q_proj", "down_proj"]}),
        ("llama", {}),
        ("gemma3_text", {"embeddings": True}),
        ("qwen3_moe", {}),
        ("qwen3_5", {"kind": "dora", "targets": ["out_proj", "q_proj"]}),
    ],
)
def test_dequantised_model_gives_the_tokens_of_base_and_adapters(
    tmp_path: Path, family: str, spec: dict[str, Any]
) -> None:
    """4-bit layers without an adapter are expanded too; the folder says that it is not quantised; the model keeps its layers."""
    loaded = models.load({"family": family, "bits": 4})
    plain, base = _greedy(loaded.model), _logits(loaded.model)
    with lora.attached(loaded.model, {"b_std": 0.3, **spec}):
        lora.freeze(loaded.model)
        trained, tokens = _logits(loaded.model), _greedy(loaded.model)
        folders = [
            export.fused(loaded.model, loaded.tokenizer, loaded.path, tmp_path / "fused", dequantize=dequantize)
            for dequantize in (False, True)  # the second replaces the first
        ]
        assert np.array_equal(trained, _logits(loaded.model))
    assert np.array_equal(base, _logits(loaded.model))
    assert folders == [tmp_path / "fused"] * 2
    assert "quantization" not in json.loads((tmp_path / "fused" / "config.json").read_text())
    merged = mlx_lm.load(str(tmp_path / "fused"))[0]
    assert not any(models.quantised(module) for module in merged.modules())
    assert np.abs(_logits(merged) - trained).max() < 1e-3
    assert _greedy(merged) == tokens != plain


def test_a_lengthened_run_is_merged_again(tmp_path: Path) -> None:
    """The fused folder of an earlier end is replaced by that of the later one, and is left alone where nothing was trained."""
    output = {"fused": True}
    runs.train(runs.config(tmp_path / "run", loop={"steps": 2, "evaluate_every_steps": 0}, output=output))
    fused = tmp_path / "run" / "fused"
    first = fused.stat().st_ino, _logits(mlx_lm.load(str(fused))[0])
    longer = runs.config(tmp_path / "run", loop={"steps": 4, "evaluate_every_steps": 0}, output=output)
    summary = runs.train(longer, resume=True)
    assert export.merged_adapters(fused) == summary.adapter_digest
    second = fused.stat().st_ino, _logits(mlx_lm.load(str(fused))[0])
    assert np.abs(second[1] - first[1]).max() > 1e-4
    runs.train(longer, resume=True)
    assert fused.stat().st_ino == second[0]
    assert not list((tmp_path / "run").glob("*.part"))

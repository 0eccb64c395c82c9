"""Adapters in files: mlx-lm reads ours, we read its, and a folder is whole at every moment."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from safetensors.numpy import load_file

from gates_reference import tiny_families
from gates_reference.trainer import lora
from gates_reference.trainer import model as models
from gates_reference.trainer.adapters import files, layers, settings

pytestmark = pytest.mark.usefixtures("untouched")

IDS = mx.array(np.random.default_rng(0).integers(3, 320, (2, 16)).astype(np.int32))
START = {"seed": 3, "b_std": 0.1}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "embeddings": {"embeddings": True},
    "last-layer": {"layers": 1, "rank": 2, "scale": 5.0},
    "dora": {"kind": "dora", "targets": ["o_proj"]},
}


@pytest.mark.parametrize(
    ("spec", "bits"),
    [  # other kinds of adapter have their own layers on a quantised base, which test_adapters.py tries
        pytest.param(spec, bits, id=f"{kind}-{bits}", marks=() if bits == 32 or kind == "plain" else pytest.mark.long)
        for kind, spec in KINDS.items()
        for bits in (32, 4)
    ],
)
@pytest.mark.parametrize("family", sorted(tiny_families.FAMILIES))
def test_mlx_lm_loads_them(family: str, spec: dict[str, Any], bits: int, tmp_path: Path) -> None:
    """`mlx_lm.load` with the folder as its adapter gives the same logits, and so do our own adapters put back."""
    loaded = models.load({"family": family, "bits": bits})
    base = np.array(loaded.model(IDS))
    lora.attach(loaded.model, START | spec)
    files.save(loaded.model, tmp_path / "adapter", loaded.path)
    on = np.array(loaded.model(IDS))
    assert np.abs(on - base).max() > 0.1
    other = mlx_lm.load(loaded.path, adapter_path=str(tmp_path / "adapter"))[0]
    assert np.array_equal(np.array(other(IDS)), on)
    lora.detach(loaded.model)
    files.load(loaded.model, tmp_path / "adapter")
    assert np.array_equal(np.array(loaded.model(IDS)), on)
    assert sorted(path.name for path in (tmp_path / "adapter").iterdir()) == [files.CONFIG, files.WEIGHTS]


def test_the_files_say_what_they_hold(tmp_path: Path) -> None:
    """Names are paths from the model, the configuration has mlx-lm's keys."""
    model = models.load({}).model
    lora.attach(
        model, {"targets": ["q_proj"], "layers": 1, "rank": 3, "scale": 7.0, "embeddings": True, "dropout": 0.25}
    )
    files.save(model, tmp_path, "some/base")
    places = ("model.embed_tokens", "model.layers.1.self_attn.q_proj")
    assert set(load_file(tmp_path / files.WEIGHTS)) == {f"{p}.{x}" for p in places for x in ("lora_a", "lora_b")}
    assert json.loads((tmp_path / files.CONFIG).read_text()) == {
        "fine_tune_type": "lora",
        "model": "some/base",
        "num_layers": 1,
        "lora_parameters": {
            "rank": 3,
            "scale": 7.0,
            "dropout": 0.25,
            "keys": ["model.embed_tokens", "self_attn.q_proj"],
        },
    }


def test_a_save_that_fails_keeps_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception while the new weights are flushed leaves the folder's two files as they were."""
    model = models.load({}).model
    lora.attach(model, START)
    files.save(model, tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in (files.CONFIG, files.WEIGHTS)}
    lora.detach(model)
    lora.attach(model, {"rank": 1})
    monkeypatch.setattr("gates_reference.trainer.storage.sync", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        files.save(model, tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def _without_one_leaf(folder: Path) -> None:
    weights = dict(mx.load(str(folder / files.WEIGHTS)))
    del weights["model.layers.0.mlp.up_proj.lora_b"]
    mx.save_safetensors(str(folder / files.WEIGHTS), weights)


def _other_rank(folder: Path) -> None:
    config = json.loads((folder / files.CONFIG).read_text())
    config["lora_parameters"]["rank"] = 2
    (folder / files.CONFIG).write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (_without_one_leaf, ValueError, r"has no model.layers.0.mlp.up_proj.lora_b"),
        (_other_rank, ValueError, "does not match"),
        (lambda folder: (folder / files.WEIGHTS).unlink(), FileNotFoundError, r"has no adapters.safetensors"),
    ],
    ids=["leaf-missing", "rank", "file-missing"],
)
def test_files_that_do_not_fit_are_errors(spoil: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    """The message names the file or the leaf, and the model is left without adapters."""
    model = models.load({}).model
    lora.attach(model, START)
    files.save(model, tmp_path)
    lora.detach(model)
    spoil(tmp_path)
    with pytest.raises(error, match=message):
        files.load(model, tmp_path)
    assert lora.adapters(model) == {}


def test_no_adapters_is_an_error(tmp_path: Path) -> None:
    """Saving a bare model says so."""
    with pytest.raises(ValueError, match="no adapters to save"):
        files.save(models.load({}).model, tmp_path)


def test_mixed_kinds_do_not_fit_the_layout(tmp_path: Path) -> None:
    """Mlx-lm's configuration has one kind and one rank for all; the message has what was found."""
    model = models.load({}).model
    words, modules = np.random.Philox(key=1).random_raw, lora.walk(model)
    kinds = {"0.mlp.up_proj": settings.Settings(rank=2), "1.mlp.up_proj": settings.Settings(kind="dora")}
    lora.replace(model, {name: layers.wrap(name, modules[name], kind, words) for name, kind in kinds.items()})
    with pytest.raises(ValueError, match=r"found \['dora', 'lora'\], \[2, 4\]"):
        files.save(model, tmp_path)

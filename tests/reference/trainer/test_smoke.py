"""`gates trainer smoke`: right counts, one sentence for every mistake, and a failure that names what else would train."""

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from gates.cli.verbs import app
from gates.model import ConfigurationError
from gates_reference import tiny, tiny_families
from gates_reference.trainer import lora, smoke
from gates_reference.trainer import model as models

pytestmark = pytest.mark.usefixtures("untouched")


def _gates(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["trainer", "smoke", *arguments])


@pytest.mark.parametrize("bits", [32, 4])
@pytest.mark.parametrize("family", sorted(tiny_families.FAMILIES))
def test_counts(family: str, bits: int) -> None:
    """The total is the sum of the family's shapes, also when they are packed; a rank of 2 trains 2 (inputs + outputs) each."""
    report = smoke.run({"family": family, "bits": bits}, {"rank": 2, "targets": ["o_proj", "down_proj"]})
    leaves = tiny_families.FAMILIES[family].leaves(tiny.complete({"family": family}))
    sizes = {name: leaf.shape for name, leaf in leaves.items()}
    expected = sum(_product(shape) for shape in sizes.values())
    assert report.total == expected
    adapted = [shape for name, shape in sizes.items() if name.endswith(("o_proj", "down_proj"))]
    assert report.trainable == sum(2 * _product(shape[:-2]) * (shape[-1] + shape[-2]) for shape in adapted)
    assert sum(report.modules_per_layer) == len(adapted)
    assert (report.layers, report.family, report.logits_shape[-1]) == (2, family, 320)
    assert report.sound
    assert report.head_difference < 1e-4
    assert lora.adapters(models.load({"family": family, "bits": bits}).model) == {}


def _product(shape: tuple[int, ...]) -> int:
    result = 1
    for size in shape:
        result *= size
    return result


def test_text() -> None:
    """The report names what was asked for, in one screen."""
    done = _gates("--tiny", "family=qwen3_5", "--adapter", "embeddings=true")
    assert done.exit_code == 0
    assert "language_model.model.embed_tokens" in done.stdout
    assert "modules     8, 7, 1 outside" in done.stdout  # gated delta net 5, attention 4, MLP 3 each
    assert re.search(r"^rollout     path 'batched': fixed buffers know KVCache", done.stdout, re.MULTILINE)
    assert done.stdout.rstrip().endswith("Only adapters would train.")


def test_linear_layers_without_an_adapter_are_named() -> None:
    """mlx-lm wraps neither the stacked projections of MLA nor this router; a family whose layers are all wrapped has no such line."""
    done = _gates("--tiny", "family=deepseek_v3")
    assert done.exit_code == 0
    assert (
        "no adapter  mlp.gate (MoEGate), self_attn.embed_q (MultiLinear), self_attn.unembed_out (MultiLinear): "
        in done.stdout
    )
    gates = smoke.run({"family": "recurrent_gemma"}, {}).linear_without_adapter
    assert gates == {"temporal_block.rg_lru": "RGLRU"}
    for family in tiny_families.FAMILIES:
        assert smoke.run({"family": family}, {}).linear_without_adapter == {}


def test_json_of_a_folder() -> None:
    """A model's folder serves as well, and the JSON has the fields of the report."""
    folder = str(tiny.build({"family": "llama"}))
    done = _gates(folder, "--adapter", "targets=q_proj,v_proj", "--adapter", "kind=dora", "--json")
    data = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (data["model"], data["targets"]) == (folder, ["self_attn.q_proj", "self_attn.v_proj"])
    assert data["adapter_types"] == {"DoRALinear": 4}
    assert data["sound"]


def test_another_leaf_that_would_train_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1, and the leaf by name."""
    freeze = lora.freeze

    def forgetful(model: Any) -> None:
        freeze(model)
        model.layers[0].input_layernorm.unfreeze()

    monkeypatch.setattr(lora, "freeze", forgetful)
    done = _gates("--tiny", "family=qwen3")
    assert done.exit_code == 1
    assert "FAILED: 1 parameters" in done.stdout
    assert "model.layers.0.input_layernorm.weight" in done.stdout


def test_nothing_that_would_train_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frozen adapters are a failure too."""
    monkeypatch.setattr(lora, "freeze", lambda model: model.freeze())
    done = _gates("--tiny", "family=qwen3")
    assert done.exit_code == 1
    assert "nothing would train" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name one model"),
        (["--tiny", "family=qwen3", "."], "name one model"),
        (["--tiny", "family=gpt5"], "family is 'gpt5'"),
        (["--tiny", "family"], "must be KEY=VALUE"),
        (["--tiny", "family=qwen3", "--adapter", "alpha=2"], "alpha"),
        (["--tiny", "family=qwen3", "--adapter", "targets=nope"], "fit no module"),
        (["--tiny", "family=qwen3_moe", "--adapter", "kind=dora"], "no dora for"),
        (["/nowhere"], "neither a folder nor an id"),
    ],
    ids=["nothing", "both", "family", "pair", "adapter-key", "target", "dora-experts", "path"],
)
def test_a_mistake_is_one_sentence(arguments: list[str], message: str) -> None:
    """The user's mistake is a configuration error, which the command line prints as one sentence with exit code 2."""
    done = _gates(*arguments)
    assert isinstance(done.exception, ConfigurationError)
    assert message in str(done.exception)

"""Ops of whole training steps and runs."""

from __future__ import annotations

from gates.families.rollout.op import BATCH_INPUTS, MODEL_INPUTS
from gates.families.trainer import textbook
from gates.model import Op, Output
from gates_reference.oracle import lora

TRAIN_STEP = Op(
    name="train_step",
    outputs={
        "loss": Output(kind="scalar"),
        "base_before": Output(kind="text"),
        "base_after": Output(kind="text"),
        "adapter_change": Output(kind="scalar"),
    },
    inputs={
        **MODEL_INPUTS,
        **BATCH_INPUTS,
        "temperature": "of the scoring",
        "checkpointing": "whether blocks are computed again in the backward pass; absent: no",
        "rewards": "(R,) float32, prompt-major",
        "group_size": "G",
        "learning_rate": "of Adam",
        "epsilon_low": "as in policy_loss",
        "epsilon_high": "as in policy_loss",
        "beta": "as in policy_loss",
    },
    source="one optimizer step of GRPO on LoRA adapters, arXiv 2106.09685",
)
TABLES = {
    "model": "a recipe, a folder or a Hugging Face id",
    "tables": "the other sections of a configuration, as `gates trainer train` reads them",
}
TRAIN_RUN = Op(
    name="train_run",
    outputs={"digest": Output(kind="text"), "metrics": Output(kind="text"), "steps": Output(kind="scalar")},
    inputs={
        **TABLES,
        "folder": "where the run writes",
        "resume": "go on with the run in the folder",
        "kill_at_step": "SIGKILL to the process itself once the metrics of this step are written; None: never",
    },
    source="the trainer's own run from configuration to adapters: `gates trainer train`",
    formula="`digest`, sha256 of the adapters at the end; `metrics`, the lines of metrics.jsonl; a subject may return `targets` "
    "too, the names of the layers with adapters, which `adapter.targets` accepts",
)
TRACED_RUN = Op(
    name="traced_run",
    outputs={"model": Output(kind="text")},
    inputs={
        **TABLES,
        "folder": TRAIN_RUN.inputs["folder"],
        "stops": "steps after which the run is stopped and resumed, in order",
    },
    source="the trainer's own run: `gates trainer train` with `output.trace`",
    formula="`model`, the folder of the model that trained; a mapping `files` holds the run's files by their path below the folder: "
    "the trace, metrics.jsonl, evaluations.jsonl, completions.jsonl, and console.txt, what it says on stderr",
)
SAMPLED_AND_SCORED = Op(
    name="sampled_and_scored",
    outputs={
        "sampled": Output(kind="i", ndim=1),
        "scored": Output(kind="i", ndim=1),
        "drifted": Output(kind="scalar"),
    },
    inputs=TABLES,
    source="ids trained = ids sampled",
    formula="one step's completion tokens, row after row: as drawn, and as the loss's forward pass reads them; `drifted`, "
    "rows whose text a tokenizer would encode in another way",
)
STEP_LOGPROBS = Op(
    name="step_logprobs",
    outputs={
        "sampler": Output(kind="f", ndim=2),
        "old": Output(kind="f", ndim=2),
        "reference": Output(kind="f", ndim=2),
        "policy": Output(kind="f", ndim=2),
    },
    inputs=TABLES,
    source="PEFT's lora_dropout; verl scores old log-probs in evaluation mode and updates in training mode",
    formula="(R, T) log-probs of a run's first step: as sampled (NaN past the end), of the old and the reference policy, and of the "
    "policy in the update's last pass",
)
SETTINGS_IN_FORCE = (
    "JSON: every setting in force by its word: what `policy_loss` and `group_advantages` are given, and learning_rate, "
    "weight_decay, gradient_clip"
)
TRAINING_STEP = Op(
    name="training_step",
    outputs={"settings": Output(kind="text"), "metrics": Output(kind="text")},
    inputs={
        "model": '{"path": folder} of a tiny model in the Hugging Face layout, in float32',
        "trainer": '"grpo", "rloo", "dpo", "orpo", "cpo", "simpo", "kto", "online_dpo" or "sft": which of the library\'s trainers',
        "settings": "words and values that are asked, {} for the library's defaults",
        "prompts": "for each prompt its list of ids",
        "completions": "for each row its list of ids, the token that ends it included; rows of a prompt stand together",
        "rewards": "(R,) float32; of kto 1 for a desirable row, else 0; of online_dpo the higher is chosen; None for trainers without rewards",
        "group_size": "G, rows of each prompt; of preference pairs the chosen and the rejected, 2",
        "updates": "optimizer steps on these rows, each on all of them",
        "micro_batch_rows": "rows of a forward pass; divides R",
        "folder": "where the library may write; it is removed after the call",
    },
    source="one generation and its updates, as the library's trainer makes them; only sampling is replaced",
    formula=f"`settings`, {SETTINGS_IN_FORCE}; `metrics`, JSON: for each update its loss, gradient_norm, kl, reward, "
    "clip_fraction, length, and KTO's reference_point z0, as far as the library reports them. The gradient itself is recorded where the optimizer receives it",
    key=("trainer",),
)
RESOLVE_CONFIG = Op(
    name="resolve_config",
    outputs={"settings": Output(kind="text")},
    inputs={name: TRAINING_STEP.inputs[name] for name in ("trainer", "settings")},
    source="the library's own configuration, from what was asked and its defaults",
    formula=f"`settings`, {SETTINGS_IN_FORCE}",
    key=("trainer",),
)
LORA_LINEAR = Op(
    name="lora_linear",
    outputs={"y": Output(kind="f", ndim=2), "kept": Output(like="x")},
    inputs={
        "x": "(N, I) float32",
        "weight": "(O, I) float32, the base's",
        "a": "(I, r) float32",
        "b": "(r, O) float32",
        "scale": "the factor of the adapter",
        "p": "the probability of dropping",
        "draw": "whole numbers that name a forward pass of an update; None: a pass that is no update",
    },
    source="LoRA, arXiv 2106.09685, eq. 3; PEFT's lora_dropout",
    formula="y = x·Wᵀ + scale·(x·m/(1 − p))·A·B with the mask m of the draw; outside an update m = 1 and p = 0; "
    "`kept` is m, above 0 where an input is kept",
    oracle=lora.lora_linear,  # under a mask that was drawn: it takes `kept` in place of `draw`
    textbook=textbook.lora_linear,
)

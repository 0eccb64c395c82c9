"""The sections of a configuration and the meaning of each key."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Share = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
Number = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**64)]


class Section(BaseModel):
    """An immutable table with known keys, exact types and finite numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Warmup(Section):
    """Supervised steps on sums that a tiny model starts from (`gates_reference.trainer.warmup`); the model is built once and cached."""

    problems: Number = 64
    """How many different plain sums, from the start of the stream of `data_seed` (for training data: `data.sums_seed`)."""
    steps: Number = 350
    rows: Number = 64
    """Sums per step."""
    learning_rate: Positive = 3e-3
    wrong: BelowOne = 0.55
    """The probability that a sum is read with a wrong answer; it leaves room for reinforcement learning."""
    seed: Seed = 0
    data_seed: Seed = 0


class Model(Section):
    """The model: `path`, a folder or Hugging Face id on this machine, or a recipe `tiny` of `gates_reference.tiny`."""

    path: str | None = None
    tiny: dict[str, int | float | str] = Field(default_factory=dict)
    warmup: Warmup | None = None
    """Supervised steps of the tiny model, `{}` for the default ones; without it the weights are random."""
    adapter_path: str | None = None
    """A folder with adapters to start from, whose kind, rank, scale and blocks must be those of [adapter]. The reference policy of a KL
    or of DPO is the model without them. To use the starting policy as the reference (DPO's pi_SFT), merge the adapters first
    (`output.fused`) and use that folder as `path`."""
    checkpoint_layers: bool = False
    """Gradient checkpointing: activations are computed twice and kept for one layer at a time."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.path is not None and self.tiny:
            raise ValueError("'path' and 'tiny' both name a model; give one of them")
        if self.path is not None and self.warmup is not None:
            raise ValueError("'warmup' makes a tiny model; remove it, or 'path'")
        return self

    def spec(self) -> dict[str, Any]:
        """Return the model as a spec for `gates_reference.trainer.model.load`."""
        if self.path is not None:
            return {"path": self.path}
        return dict(self.tiny) if self.warmup is None else {"warmup": self.warmup.model_dump(), **self.tiny}


class Adapter(Section):
    """The low-rank adapters that train (`gates_reference.trainer.adapters.settings`)."""

    kind: Literal["lora", "dora"] = "lora"
    rank: Number = 8
    scale: Positive = 2.0
    seed: Seed = 0
    b_std: NotNegative = 0.0
    dropout: BelowOne = 0.0
    """The probability with which an update drops an element of an adapter's input (PEFT's `lora_dropout`); never in rollouts, nor in
    old and reference log-probs. Masks are drawn by `seed`, and depend on how a step is split (`loop.micro_batch_rows`).
    Each adapted layer keeps a copy of its input, which the memory estimate leaves out."""
    targets: list[str] = Field(default_factory=list)
    """Names like "q_proj" or "mlp.down_proj"; empty: every projection of every block."""
    embeddings: bool = False
    routers: bool = False
    layers: Count = 0
    """How many blocks get adapters, counted from the last one; 0: all."""

    def spec(self) -> dict[str, Any]:
        """Return the adapter as a spec for `gates_reference.trainer.lora.attach`."""
        return self.model_dump()


class Data(Section):
    """The source of prompts, and how they become tokens."""

    kind: Literal["sums", "json", "jsonl", "parquet", "datasets"] = "sums"
    path: str | None = None
    """A file, or for `datasets` a folder or name on this machine; nothing is downloaded."""
    split: str = "train"
    style: Literal["plain", "worded"] = "plain"
    count: Number | None = None
    """At most this many rows; by default all rows of a file, and 256 built-in sums."""
    sums_seed: Seed = 0
    prompt_column: str = "prompt"
    answer_column: str = "answer"
    chosen_column: str | None = None
    """With `rejected_column`: pairs of completions in the data; nothing is sampled (DPO)."""
    rejected_column: str | None = None
    chat: bool = False
    system_prompt: str = ""
    chat_options: dict[str, str | bool | int | float] = Field(default_factory=dict)
    """Further arguments of the chat template, such as `{ enable_thinking = false }` for Qwen3."""
    max_prompt_tokens: Number = 1024
    too_long: Literal["error", "drop"] = "error"
    """What happens to a row whose prompt has more than `max_prompt_tokens` tokens, or which holds a completion of more than
    `rollout.max_tokens`: stop with an error, or drop the row."""
    shuffle: bool = True
    seed: Seed = 0
    validation_rows: Count = 0
    """How many rows are reserved for evaluation, chosen by `seed`."""

    @model_validator(mode="after")
    def _path_where_needed(self) -> Self:
        if (self.kind == "sums") == (self.path is not None):
            need = "has no path" if self.kind == "sums" else "needs a path"
            raise ValueError(f"data of kind {self.kind!r} {need}")
        if (self.chosen_column is None) != (self.rejected_column is None):
            raise ValueError("chosen_column and rejected_column go together; give both or none")
        if (self.system_prompt or self.chat_options) and not self.chat:
            raise ValueError(f"{'system_prompt' if self.system_prompt else 'chat_options'} needs chat = true")
        return self

    @property
    def offline(self) -> bool:
        """Whether pairs of completions come with the data."""
        return self.chosen_column is not None


class Rollout(Section):
    """How completions are sampled."""

    samples_per_prompt: Number = 4
    max_tokens: Number = 64
    """The most tokens of a completion, including its end token; it limits sampling and the pairs in the data."""
    temperature: NotNegative = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Count = 0
    min_p: Share = 0.0
    xtc_probability: Share = 0.0
    xtc_threshold: Share = 0.1
    repetition_penalty: Positive = 1.0
    order: Literal["hf", "mlx-lm"] = "hf"
    """The order of the filters, named after the library that uses it."""
    seed: Seed = 0
    path: Literal["auto", "naive", "cached", "prefix", "batched", "compiled"] = "auto"
    stop_ids: list[Count] = Field(default_factory=list)
    """Tokens that end a completion in addition to the tokenizer's own."""
    kv_bits: Literal[8, 4] | None = None
    """Bits of keys and values while sampling; old log-probs must then be recomputed."""


class Algorithm(Section):
    """The algorithm by name, its settings, and the log-probs that it uses."""

    name: str = "grpo"
    settings: dict[str, Any] = Field(default_factory=dict)
    old_logprobs: Literal["recompute", "stored"] = "recompute"
    """`recompute`: a full forward pass before the first update; `stored`: the log-probs that the sampler recorded."""
    sampling_logprobs: Literal["tempered", "behaviour"] = "tempered"
    """The sampler's log-probs that an off-policy correction compares with: `tempered`, unfiltered at the scoring temperature, or
    `behaviour`, those of the distribution drawn from, at the rollout's temperature and after every filter."""
    scoring_temperature: Positive | None = None
    """The temperature of the log-probs in the loss; by default the rollout's (1 for greedy rollouts)."""
    max_resamples: Count = 0
    """The most further rollouts of a step if the algorithm drops groups (DAPO's dynamic sampling)."""


class Optimizer(Section):
    """An optimizer of mlx.optimizers, its schedule, and the limit of the gradient's norm."""

    name: Literal["adam", "adamw", "sgd", "muon"] = "adam"
    learning_rate: Positive = 1e-4
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: Count = 0
    final_share: Share = 0.0
    """The learning rate at the end of a linear or cosine schedule, as a share of `learning_rate`."""
    betas: tuple[BelowOne, BelowOne] = (0.9, 0.999)
    epsilon: Positive = 1e-8
    weight_decay: NotNegative = 0.0
    momentum: Share = 0.0
    max_gradient_norm: float | Literal["off"] = 1.0
    """The gradient is scaled down to this global norm; "off" (or None, which TOML has no word for): no limit."""

    @field_validator("max_gradient_norm", mode="before")
    @classmethod
    def _limit(cls, value: Any) -> Any:
        if value is None:
            return "off"
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value != "off" and not (number and 0 < value < math.inf):
            raise ValueError(f"must be a finite number > 0, or 'off' for no limit, found {value!r}")
        return value


class Loop(Section):
    """The length of a run, how a step is split, and what happens if a number is not finite."""

    steps: Number = 20
    prompts_per_step: Number = 4
    iterations: Number = 1
    """Passes over one rollout (the papers' mu)."""
    minibatches: Number = 1
    """Optimizer steps per pass; the prompts are distributed over them in order."""
    micro_batch_rows: Count = 0
    """Rows per forward and backward pass; 0: all rows of an optimizer step. The result does not depend on it, except for rounding and
    for averages by micro-batch (bnpo-trl, or aggregation = "micro-batch")."""
    head_rows: Count = 0
    """Scored tokens per piece of the head; 0: all tokens of a forward pass. Saves memory if the vocabulary is large (MLX holds about
    three pieces at once) and runs the head a second time in the backward pass. The result does not depend on it, except for
    rounding."""
    nonfinite: Literal["stop", "skip"] = "stop"
    evaluate_every_steps: Count = 0


class Output(Section):
    """What a run writes, and where."""

    folder: str = "runs/run"
    checkpoint_every_steps: Count = 10
    keep_checkpoints: Number = 2
    completions_every_steps: Count = 10
    completions_rows: Number = 4
    console: bool = True
    """Progress on stderr, of a warm-up too: a bar on a terminal; elsewhere a plain line at most every ten seconds."""
    trace: bool = False
    """Write what every step used and computed to the folder `trace`, for `gates replay` (docs/training.md): about the size of three
    checkpoints for each optimizer step."""
    tensorboard: bool = False
    wandb: bool = False
    wandb_project: str = "gates"
    fused: bool = False
    """Write the model with its adapters merged at the end, as a folder that mlx_lm.load reads. Merged layers of a quantised model are
    quantised again: the rounding takes away a part of what was learned, and other tokens may be the likeliest (see `dequantize`)."""
    dequantize: bool = False
    """Write the merged model without quantisation, as `mlx_lm.fuse --dequantize` does: it gives the tokens of base and adapters, but for
    roundings to the dtype of its weights. A 4-bit model then takes nearly four times the space."""

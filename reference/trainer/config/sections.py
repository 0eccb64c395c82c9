"""The sections of a configuration and what each key means; every number has its unit in its name or its sentence."""

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
    """A table whose keys are known, whose types are exact, whose numbers are finite and whose values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Warmup(Section):
    """Supervised steps on sums before a tiny model is used, as `reference.trainer.warmup` describes them: made once, then cached."""

    problems: Number = 64
    """The first different plain sums of the stream of `data_seed`, which `data.sums_seed` names too."""
    steps: Number = 350
    rows: Number = 64
    """Sums that one step reads."""
    learning_rate: Positive = 3e-3
    wrong: BelowOne = 0.55
    """The probability of reading a sum with a wrong answer: what is left for reinforcement learning to do."""
    seed: Seed = 0
    data_seed: Seed = 0


class Model(Section):
    """Which model: `path`, a folder or Hugging Face id on this machine, or a recipe `tiny` of `reference.tiny`."""

    path: str | None = None
    tiny: dict[str, int | float | str] = Field(default_factory=dict)
    warmup: Warmup | None = None
    """Supervised steps of the tiny model before anything else, `{}` for the usual ones; none: random weights."""
    adapter_path: str | None = None
    """A folder with adapters to start from. The reference of a KL, or of DPO, is the model without them, not the policy that they
    make of it (DPO's pi_SFT): where that is to be the reference, merge them first (`output.fused`) and start from that folder."""
    checkpoint_layers: bool = False
    """Per-layer gradient checkpointing: activations are computed twice and kept for one layer at a time."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.path is not None and self.tiny:
            raise ValueError("'path' and 'tiny' both name a model; give one of them")
        if self.path is not None and self.warmup is not None:
            raise ValueError("'warmup' makes a tiny model; remove it, or 'path'")
        return self

    def spec(self) -> dict[str, Any]:
        """The model as `reference.trainer.model.load` takes it."""
        if self.path is not None:
            return {"path": self.path}
        return dict(self.tiny) if self.warmup is None else {"warmup": self.warmup.model_dump(), **self.tiny}


class Adapter(Section):
    """The low-rank adapters that train, as `reference.trainer.adapters.settings` describes them."""

    kind: Literal["lora", "dora"] = "lora"
    rank: Number = 8
    scale: Positive = 2.0
    seed: Seed = 0
    b_std: NotNegative = 0.0
    targets: list[str] = Field(default_factory=list)
    """Names like "q_proj" or "mlp.down_proj"; none: every projection of every block."""
    embeddings: bool = False
    routers: bool = False
    layers: Count = 0
    """Blocks from the last one that get adapters; 0: all."""

    def spec(self) -> dict[str, Any]:
        """The adapter as `reference.trainer.lora.attach` takes it."""
        return self.model_dump()


class Data(Section):
    """Where prompts come from and how they become tokens."""

    kind: Literal["sums", "json", "jsonl", "parquet", "datasets"] = "sums"
    path: str | None = None
    """A file, or for `datasets` a folder or name on this machine; nothing is downloaded."""
    split: str = "train"
    style: Literal["plain", "worded"] = "plain"
    count: Number | None = None
    """At most this many rows; 256 of the built-in sums."""
    sums_seed: Seed = 0
    prompt_column: str = "prompt"
    answer_column: str = "answer"
    chosen_column: str | None = None
    """With `rejected_column`: completions that come with the data, so that nothing is sampled (DPO)."""
    rejected_column: str | None = None
    chat: bool = False
    system_prompt: str = ""
    chat_options: dict[str, str | bool | int | float] = Field(default_factory=dict)
    """What the chat template is told besides the messages, such as `{ enable_thinking = false }` for Qwen3."""
    max_prompt_tokens: Number = 1024
    too_long: Literal["error", "drop"] = "error"
    """Whether a run stops at a row, or leaves it out, whose prompt has more than `max_prompt_tokens` tokens, or which comes with
    a completion of more than `rollout.max_tokens`."""
    shuffle: bool = True
    seed: Seed = 0
    validation_rows: Count = 0
    """Rows that are set apart for evaluation, chosen by `seed`."""

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
    """How completions are drawn."""

    samples_per_prompt: Number = 4
    max_tokens: Number = 64
    """Tokens of a completion at most, its end token counted: where sampling stops, and what pairs that come with the data may have."""
    temperature: NotNegative = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Count = 0
    min_p: Share = 0.0
    xtc_probability: Share = 0.0
    xtc_threshold: Share = 0.1
    repetition_penalty: Positive = 1.0
    order: Literal["hf", "mlx-lm"] = "hf"
    """In which order the filters act, by whose library does so."""
    seed: Seed = 0
    path: Literal["auto", "naive", "cached", "prefix", "batched", "compiled"] = "auto"
    stop_ids: list[Count] = Field(default_factory=list)
    """Tokens that end a completion besides the tokenizer's own."""
    kv_bits: Literal[8, 4] | None = None
    """Bits of keys and values while sampling; old log-probs must then be recomputed."""


class Algorithm(Section):
    """The objective by name, its own settings, and which log-probs it sees."""

    name: str = "grpo"
    settings: dict[str, Any] = Field(default_factory=dict)
    old_logprobs: Literal["recompute", "stored"] = "recompute"
    """`recompute`: a full forward before the first update; `stored`: what the sampler recorded of the tempered model."""
    sampling_logprobs: Literal["tempered", "behaviour"] = "tempered"
    """Which of the sampler's log-probs an off-policy correction is against: `tempered`, unfiltered and at the scoring temperature,
    or `behaviour`, those of the distribution that was drawn from, at the rollout's temperature and after every filter."""
    scoring_temperature: Positive | None = None
    """The temperature at which tokens are scored; that of the rollout if absent (1 for greedy rollouts)."""
    max_resamples: Count = 0
    """Further rollouts at most, where the algorithm drops groups (DAPO's dynamic sampling)."""


class Optimizer(Section):
    """An optimizer of mlx.optimizers, its schedule, and the limit of the gradient."""

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
    """The most that the norm of the whole gradient may be before it is scaled down; "off" (or None, which TOML cannot say): any."""

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
    """How long, in what portions, and what happens when a number is not finite."""

    steps: Number = 20
    prompts_per_step: Number = 4
    iterations: Number = 1
    """Passes of updates over one rollout (the papers' mu)."""
    minibatches: Number = 1
    """Optimizer steps of one pass; prompts are dealt to them in order."""
    micro_batch_rows: Count = 0
    """Rows of one forward and backward pass; 0: all of an optimizer step. To rounding the result does not depend on it, but by
    definition where the algorithm averages by micro-batch: bnpo-trl, or aggregation = "micro-batch"."""
    head_rows: Count = 0
    """Scored tokens of one piece of the head, about three of which MLX holds at once; 0: all of a forward pass. Less memory where
    the vocabulary is large, for a second run of the head in the backward pass; to rounding the result does not depend on it."""
    nonfinite: Literal["stop", "skip"] = "stop"
    evaluate_every_steps: Count = 0


class Output(Section):
    """Where a run writes, and what."""

    folder: str = "runs/run"
    checkpoint_every_steps: Count = 10
    keep_checkpoints: Number = 2
    completions_every_steps: Count = 10
    completions_rows: Number = 4
    console: bool = True
    """Progress on stderr: a bar on a terminal; a plain line now and then, and no control character, anywhere else."""
    tensorboard: bool = False
    wandb: bool = False
    wandb_project: str = "gates"
    fused: bool = False
    """Write the model with its adapters merged, a folder that mlx_lm.load reads, at the end."""

# ruff: noqa: SLF001  the processors of generate are private
"""The peer transformers: the filters of `generate`, in its own order, on the logits of a fake model.

`generate` samples one token and returns the scores that it sampled from; `renormalize_logits` makes them log-probs.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
sys.path.append(str(Path(__file__).parent / "shared"))

import numpy as np
import torch
from peer_rows import absent, only
from peer_timed import Timed, only_output
from peer_torch import tensor
from transformers import (
    GenerationConfig,
    GenerationMixin,
    LogitNormalization,
    LogitsProcessorList,
    PreTrainedConfig,
    PreTrainedModel,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.modeling_outputs import CausalLMOutput

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

VERSIONS = {name: version(name) for name in ("transformers", "torch")}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "filtered_logprobs": {"order": ("hf",), "dtype": ("float32",)},  # generate converts logits to float32 first
}
ABSENT = ("xtc_probability", "xtc_special_tokens", "presence_penalty", "frequency_penalty", "generated")
warnings.filterwarnings("ignore")


class _Given(PreTrainedModel, GenerationMixin):
    """A causal language model with given logits of the next token."""

    config_class = PreTrainedConfig

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__(PreTrainedConfig(vocab_size=logits.shape[-1]))
        self.anchor = torch.nn.Parameter(torch.zeros(1))  # defines the model's device
        self.logits = logits

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
        """Return the logits at every position."""
        return CausalLMOutput(logits=self.logits[:, None].expand(-1, input_ids.shape[1], -1))

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any
    ) -> dict[str, Any]:
        """Return what `forward` takes."""
        return {"input_ids": input_ids, "attention_mask": attention_mask}


def filtered_logprobs(
    *, logits: Array, order: str, temperature: float, history: Array | None, **x: Any
) -> dict[str, Any]:
    """Scores of `generate`, row after row where rows have earlier tokens."""
    only("filtered_logprobs", CONVENTIONS["filtered_logprobs"], order=order, dtype=str(logits.dtype))
    absent("filtered_logprobs", ties=x.get("ties"), **{name: x.get(name) for name in ABSENT if name in x})
    if temperature == 0.0:
        raise NotImplementedError("generate samples at no temperature 0; do_sample=False returns raw scores")
    settings: dict[str, Any] = {
        "temperature": float(temperature),
        "top_k": int(x["top_k"]),
        "top_p": float(x["top_p"]),
        "min_p": float(x["min_p"]) or None,
        "repetition_penalty": float(x["repetition_penalty"]),
    }
    if x.get("logit_bias") is not None:
        settings["sequence_bias"] = {(token,): float(bias) for token, bias in enumerate(x["logit_bias"])}
    config = GenerationConfig(
        do_sample=True,
        max_new_tokens=1,
        use_cache=False,
        renormalize_logits=True,
        output_scores=True,
        return_dict_in_generate=True,
        pad_token_id=0,
        **settings,
    )
    scores = tensor(logits)
    if x.get("min_tokens_to_keep", 1) > 1:
        return {"logprobs": _beam_scores(scores, x["min_tokens_to_keep"], config)}
    if history is None:
        return {"logprobs": _scores(scores, torch.zeros((len(scores), 1), dtype=torch.long), config)}
    rows = [_scores(row[None], tensor(ids[ids >= 0])[None], config) for row, ids in zip(scores, history, strict=True)]
    return {"logprobs": np.concatenate(rows)}


def _scores(logits: torch.Tensor, ids: torch.Tensor, config: Any) -> Array:
    answer = _Given(logits).generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    return np.asarray(answer.scores[0].numpy())


def _beam_scores(logits: torch.Tensor, least: int, config: Any) -> Array:
    """Run the processors of a sampling beam search, which keep one token more than there are end tokens."""
    config.num_beams, config._eos_token_tensor = 2, torch.arange(least - 1)  # as generate sets it
    processors = _Given(logits)._get_logits_processor(config, input_ids_seq_length=1)
    return np.asarray(processors(torch.zeros((len(logits), 1), dtype=torch.long), logits).numpy())


OPS: dict[str, Callable[..., dict[str, Any]]] = {"filtered_logprobs": filtered_logprobs}


def _warper(top_k: int, top_p: float) -> Any:
    return TopPLogitsWarper(top_p) if top_p < 1.0 else TopKLogitsWarper(top_k)


def timed_filtered_logprobs(logits: Array, *, top_k: int = 0, top_p: float = 1.0, **_: Any) -> Timed:
    """One warper and the normalisation, as `generate` runs them with `renormalize_logits=True`."""
    names = {
        "processors": LogitsProcessorList([_warper(top_k, top_p), LogitNormalization()]),
        "ids": torch.zeros((len(logits), 1), dtype=torch.long),
        "logits": tensor(logits),
    }
    return Timed(
        "processors(ids, logits)",
        names,
        only_output("logprobs"),
        "LogitsProcessorList of the warper and LogitNormalization",
    )


def timed_sample_tokens(logits: Array, *, top_k: int = 0, top_p: float = 1.0, **_: Any) -> Timed:
    """From logits to tokens, as `generate` draws them: with a generator of its own."""
    names = {
        "processors": LogitsProcessorList([_warper(top_k, top_p)]),
        "torch": torch,
        "ids": torch.zeros((len(logits), 1), dtype=torch.long),
        "logits": tensor(logits),
    }
    return Timed(
        "torch.multinomial(torch.softmax(processors(ids, logits), dim=-1), num_samples=1)",
        names,
        lambda result: {"tokens": result[:, 0].numpy()},
        "the warper, then softmax and multinomial as generate has them; it draws with its own generator, ours takes uniforms",
    )


TIMED: dict[str, Callable[..., Timed]] = {
    "filtered_logprobs": timed_filtered_logprobs,
    "sample_tokens": timed_sample_tokens,  # not in OPS: tokens of another generator cannot be judged one by one
}

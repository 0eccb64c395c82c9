"""Complete given prompts by the same rollout as in training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gates_reference.trainer import rollout as rollouts
from gates_reference.trainer.config import sections
from gates_reference.trainer.config.read import Config
from gates_reference.trainer.data import prompts
from gates_reference.trainer.engine import rollout as requests
from gates_reference.trainer.loop import prepare


def run(config: Config, texts: Sequence[str], adapter: Path | None, *, base: bool) -> list[dict[str, Any]]:
    """Return every completion of every prompt, prompt-major, with its tokens and the sum of its log-probs as drawn."""
    with prepare.trained(config, None if base else prepare.adapter_folder(config, adapter)) as loaded:
        data = sections.Data(
            chat=config.data.chat,
            chat_options=config.data.chat_options,
            system_prompt=config.data.system_prompt,
            max_prompt_tokens=config.data.max_prompt_tokens,
        )
        every = prompts.make([{"prompt": text} for text in texts], loaded.tokenizer, data)
        rows = requests.request(every, range(len(every)), config.rollout, requests.eos_ids(loaded.tokenizer), 0)
        result = rollouts.run(loaded.model, rows, config.rollout.path)
    completions: list[dict[str, Any]] = []
    for row, (prompt, sample) in enumerate(result.rows.tolist()):
        length, ended = int(result.lengths[row]), bool(result.ended[row])
        tokens = result.tokens[row, :length].tolist()
        completions.append(
            {
                "prompt": texts[prompt],
                "sample": sample,
                "completion": prompts.decode(loaded.tokenizer, tokens[: length - ended]),
                "tokens": tokens,
                "ended": ended,
                "logprob": float(result.behaviour[row, :length].sum()),
                "path": result.path,
            }
        )
    return completions

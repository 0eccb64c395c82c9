"""Find keys that are set but unused under the rest of the configuration; they are refused, so that a configuration is honest.

"Set" means set to another value than the default, so that a configuration written out in full is accepted too. Some unused keys are
not refused but only noted (`notes`): `data.seed`, keys that another length would bring into use (a schedule in a run of two steps, a
penalty for lengths that no completion reaches), and the clip's width if each rollout gets one update.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from gates_reference.trainer.config import unused_sections, unused_settings

Verb = Literal["train", "evaluate", "generate"]
READ: Final[Mapping[str, tuple[str, ...]]] = {
    "evaluate": (
        "model",
        "data",
        "rollout",
        "rewards",
        "algorithm.scoring_temperature",
        "loop.prompts_per_step",
        "loop.head_rows",
        "output.folder",
        "output.console",
    ),
    "generate": (
        "model",
        "data.chat",
        "data.chat_options",
        "data.system_prompt",
        "data.max_prompt_tokens",
        "rollout",
        "output.folder",
        "output.console",
    ),
}
"""Sections and keys that the commands other than `train` read."""


@dataclass(frozen=True, slots=True)
class Use:
    """The command that reads a configuration, and the keys that were overridden on its command line.

    Commands that examine a finished run accept keys in [rollout] and [algorithm] that only training uses, unless they were
    overridden.
    """

    verb: Verb = "train"
    overridden: Collection[str] = ()

    def refuses(self, key: str) -> bool:
        """Return whether the key is refused if it is unused."""
        return (
            self.verb == "train"
            or not key.startswith(("rollout.", "algorithm."))
            or any(key == one or key.startswith(f"{one}.") for one in self.overridden)
        )


TRAIN: Final = Use()


def sentences(config: Any, use: Use = TRAIN) -> list[str]:
    """Return one sentence for each unused key that is refused."""
    return [sentence for key, sentence in _unused(config, use) if use.refuses(key)]


def settings(chosen: Any, config: Any) -> list[str]:
    """Return one sentence for each unused setting of the algorithm; `chosen` is a dataclass with defaults."""
    usual = type(chosen)()
    found: dict[str, str] = {}
    for rule in unused_settings.RULES:
        value = getattr(chosen, rule.name, None)
        if value != getattr(usual, rule.name, None) and not rule.used(chosen, config):
            found.setdefault(rule.name, _sentence(f"settings.{rule.name}", value, rule.remedy))
    return list(found.values())


def notes(config: Any, chosen: Any, use: Use = TRAIN) -> list[str]:
    """Return one sentence for each unused key that is not refused; `chosen` are the algorithm's settings."""
    if use.verb != "train":
        return [sentence for key, sentence in _unused(config, use) if not use.refuses(key)] + list(_not_read(use))
    return list(_without_effect(config, chosen))


def _not_read(use: Use) -> Iterator[str]:
    """Yield a sentence for each overridden key that the command does not read; it may describe the run to examine."""
    for key in sorted(use.overridden):
        if not any(key == one or key.startswith(f"{one}.") for one in READ[use.verb]):
            yield f"{key} is set and `gates trainer {use.verb}` does not read it"


def _unused(config: Any, use: Use) -> Iterator[tuple[str, str]]:
    """Yield each unused key once, with its sentence."""
    pairs = () if use.verb == "generate" else unused_sections.PAIRS
    found: set[str] = set()
    for rule in (*unused_sections.RULES, *pairs, *unused_sections.DRAWS):
        section_name, name = rule.key.split(".")
        section = getattr(config, section_name)
        value = getattr(section, name)
        usual = type(section).model_fields[name].get_default(call_default_factory=True)
        if rule.key not in found and value != usual and not rule.used(config):
            found.add(rule.key)
            yield rule.key, _sentence(rule.key, value, rule.remedy)


def _sentence(key: str, value: Any, remedy: str) -> str:
    shown = "set" if isinstance(value, list) else repr(value)  # reward functions are long
    return f"{key} is {shown} and nothing reads it; remove it, or {remedy}"


def _without_effect(config: Any, chosen: Any) -> Iterator[str]:
    """Yield a sentence for each key that only takes effect with other lengths, or with more updates of a rollout."""
    data, optimizer, loop = config.data, config.optimizer, config.loop
    if data.seed and not data.shuffle and not data.validation_rows:
        yield f"data.seed is {data.seed} and nothing is shuffled or set apart by it"
    if optimizer.schedule != "constant" and loop.steps - 1 <= optimizer.warmup_steps:
        yield (
            f"optimizer.schedule is {optimizer.schedule!r} and has no step after optimizer.warmup_steps = "
            f"{optimizer.warmup_steps} of loop.steps = {loop.steps}"
        )
    longest = config.rollout.max_tokens
    for number, function in enumerate(config.rewards.functions):
        if function.name == "length" and longest <= function.max_tokens - function.margin_tokens:
            yield (
                f"rewards.functions.{number} ('length') is 0 up to {function.max_tokens - function.margin_tokens} tokens, and "
                f"rollout.max_tokens is {longest}"
            )
    limit = getattr(chosen, "overlong_limit", None)
    if limit is not None and longest <= limit - chosen.overlong_buffer:
        yield (
            f"settings.overlong_limit is {limit}, its penalty is 0 up to {limit - chosen.overlong_buffer} tokens, and "
            f"rollout.max_tokens is {longest}"
        )
    yield from _clips(config, chosen)


def _clips(config: Any, chosen: Any) -> Iterator[str]:
    """Yield a sentence for each set width of a clip if every ratio is 1: one update of each rollout, on-policy."""
    if config.loop.iterations * config.loop.minibatches > 1 or config.algorithm.old_logprobs == "stored":
        return
    usual = type(chosen)()
    for name in ("epsilon_low", "epsilon_high", "delta"):
        value = getattr(chosen, name, None)
        if value != getattr(usual, name, None) and getattr(chosen, "bound", "relative") == "relative":
            yield (
                f"settings.{name} is {value!r} and each rollout gets one update, so that every ratio is 1 and no clip acts; "
                "it does with loop.iterations or loop.minibatches above 1"
            )

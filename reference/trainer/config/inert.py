"""Keys that are set and could have no effect beside the others: refused, so that no run's configuration says what it did not do.

"Set" means to another value than the default: a configuration that is written out in full says no more than a short one.
`data.seed` is set once and for all and never refused. Nor is anything that another length would bring back (a schedule in a run
of two steps, a penalty of lengths that no completion reaches), or the width of a clip where each rollout gets one update: those
`told` says, and the run goes on.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from reference.trainer.config import inert_rules, inert_settings

Verb = Literal["train", "evaluate", "generate"]
READ: Final[
    Mapping[str, tuple[str, ...]]
] = {  # sections, or keys of them, that a command beside `gates trainer train` reads
    "evaluate": (
        "model",
        "data",
        "rollout",
        "rewards",
        "algorithm.scoring_temperature",
        "loop.prompts_per_step",
        "loop.head_rows",
        "output.folder",
    ),
    "generate": (
        "model",
        "data.chat",
        "data.chat_options",
        "data.system_prompt",
        "data.max_prompt_tokens",
        "rollout",
        "output.folder",
    ),
}


@dataclass(frozen=True, slots=True)
class Use:
    """Who reads a configuration: `train`, or a command that looks at what a run has made.

    For the latter [rollout] and [algorithm] may hold keys that only training reads; refused are those of `asked`, the keys of
    the command line.
    """

    verb: Verb = "train"
    asked: Collection[str] = ()

    def judges(self, key: str) -> bool:
        """Whether the key is refused where nothing reads it."""
        return (
            self.verb == "train"
            or not key.startswith(("rollout.", "algorithm."))
            or any(key == one or key.startswith(f"{one}.") for one in self.asked)
        )


TRAIN: Final = Use()


def sentences(config: Any, use: Use = TRAIN) -> list[str]:
    """One sentence for each key that is not read under the rest of the configuration."""
    return [said for key, said in _unread(config, use) if use.judges(key)]


def settings(chosen: Any, config: Any) -> list[str]:
    """The same of an algorithm's settings, a dataclass with defaults."""
    usual = type(chosen)()
    said: dict[str, str] = {}
    for rule in inert_settings.RULES:
        value = getattr(chosen, rule.name, None)
        if value != getattr(usual, rule.name, None) and not rule.read(chosen, config):
            said.setdefault(rule.name, _sentence(f"settings.{rule.name}", value, rule.remedy))
    return list(said.values())


def told(config: Any, chosen: Any, use: Use = TRAIN) -> list[str]:
    """What is not refused and has no effect either; `chosen` are the algorithm's settings."""
    if use.verb != "train":
        return [said for key, said in _unread(config, use) if not use.judges(key)] + list(_of_training(use))
    return list(_idle(config, chosen))


def _of_training(use: Use) -> Iterator[str]:
    """Keys of the command line that say nothing to this command: told and not refused, for they may name the run it looks at."""
    for key in sorted(use.asked):
        if not any(key == one or key.startswith(f"{one}.") for one in READ[use.verb]):
            yield f"{key} is set and `gates {use.verb}` does not read it"


def _unread(config: Any, use: Use) -> Iterator[tuple[str, str]]:
    """Each key that is not read, once, with its sentence."""
    pairs = () if use.verb == "generate" else inert_rules.PAIRS
    found: set[str] = set()
    for rule in (*inert_rules.RULES, *pairs, *inert_rules.DRAWS):
        section_name, name = rule.key.split(".")
        section = getattr(config, section_name)
        value = getattr(section, name)
        usual = type(section).model_fields[name].get_default(call_default_factory=True)
        if rule.key not in found and value != usual and not rule.read(config):
            found.add(rule.key)
            yield rule.key, _sentence(rule.key, value, rule.remedy)


def _sentence(key: str, value: Any, remedy: str) -> str:
    shown = "set" if isinstance(value, list) else repr(value)  # reward functions are long
    return f"{key} is {shown} and nothing reads it; remove it, or {remedy}"


def _idle(config: Any, chosen: Any) -> Iterator[str]:
    """What other lengths, or more updates of a rollout, would bring back."""
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
    """The widths of a clip where every ratio is 1: one update of each rollout, against the policy that made it."""
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

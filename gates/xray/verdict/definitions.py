"""The definitions that may be what an update minimised: those that the settings ask for, and every other composition."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from gates.families.loss.edits import DENOMINATORS, MEANS
from gates.families.loss.program import row_of
from gates.model import ConfigurationError
from gates.recorded import settings as recorded
from gates.recorded.fields import KEY, VERSION
from gates.recorded.identify import FREE, WIDTHS
from gates.xray.reading import sampling
from gates.xray.reading.context import Context
from gates.xray.reading.words import number
from gates.xray.verdict.inputs import Inputs
from gates.xray.verdict.notes import Note
from gates.xray.verdict.rewards import Advantages
from gates_reference.algorithms import ALGORITHMS, AXES, VARIANTS, Algorithm, composed

AGGREGATIONS = ("row-mean", "token-mean", "constant", "micro-batch", "row-sum", "width")
ESTIMATORS = ("k3", "k2", "k1")
SURE = 1e-4  # relative error of a factor that is looked for among the counts of the update
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Facts:
    """What the recording says that a definition needs.

    Attributes:
        moved: whether the ratio is not 1.
        apart: whether a KL to the reference has a gradient.
        limit: most tokens that the sampler was asked for.
        micro_batches: rows of each forward pass.
        group_size: rows of each prompt, if these are constant and stand together.
        width: slots of the longest row, padding included.
    """

    moved: bool
    apart: bool
    limit: int | None
    micro_batches: tuple[int, ...]
    group_size: int | None
    width: int


@functools.cache  # a search asks for the same few a hundred thousand times
def _composed(algorithm: str, ratio_level: str | None, bound: str | None, aggregation: str | None) -> Algorithm:
    return composed(algorithm, ratio_level=ratio_level, bound=bound, aggregation=aggregation)


@dataclass(frozen=True)
class Definition:
    """A loss with its advantages.

    Attributes:
        settings: in the words of `gates judge`.
        advantages: of the rows.
    """

    settings: Settings
    advantages: Advantages

    @property
    def row(self) -> Algorithm:
        """Its composition."""
        return _composed(*(self.settings.get(name) for name in ("algorithm", "ratio_level", "bound", "aggregation")))


def facts_of(context: Context, note: Note, inputs: Inputs) -> Facts:
    """Return what the recording says beside the log-probs."""
    calls: dict[tuple[int, int], int] = {}
    order = [(context.step.rows[k].row.rank, context.step.rows[k].row.call) for k in note.kept]
    for call in order:
        calls[call] = calls.get(call, 0) + 1
    together = order == [call for call, count in calls.items() for _ in range(count)]
    size = None
    if note.groups is not None:
        labels = [note.groups[row] for row in note.rows]
        sizes = {label: labels.count(label) for label in labels}
        blocks = [label for index, label in enumerate(labels) if index == 0 or labels[index - 1] != label]
        if len(set(sizes.values())) == 1 and len(blocks) == len(sizes):
            size = next(iter(sizes.values()))
    return Facts(
        moved=inputs.moved,
        apart=inputs.apart,
        limit=sampling.limit(sampling.calls(context)),
        micro_batches=tuple(calls.values()) if together else (),
        group_size=size,
        width=inputs.mask.shape[1],
    )


def parsed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a note as `gates judge` reads them.

    Raises:
        ConfigurationError: a setting is unknown, or its value invalid.
    """
    return recorded.parse(
        {KEY: VERSION, **{str(name): _text(value) for name, value in settings.items() if value is not None}}
    )


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def asked(settings: Settings, facts: Facts) -> list[Settings]:
    """Return the losses that settings with an algorithm ask for: one for each value of a constant that they leave out.

    Raises:
        ConfigurationError: the choices do not go together, or a constant is known to nobody.
    """
    try:
        row = row_of(settings)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    return list(_completed(row, {"beta": 0.0, **settings}, facts))


def every(settings: Settings, facts: Facts) -> Iterator[Settings]:
    """Yield every composition, with the constants that are written.

    Where the ratio is 1 its level and bound have no effect, and one of them stands for all.
    """
    axes = ("algorithm", "ratio_level", "bound", "aggregation", "dapo_denominator")
    constants = {name: value for name, value in settings.items() if name not in axes}
    for row in _presets(facts):
        for aggregation in AGGREGATIONS:
            if aggregation == "width" and facts.width == constants.get("max_length", facts.limit):
                continue  # the configured length is as long
            named = next(
                (each for each in ALGORITHMS.values() if _axes(each) == (row.ratio_level, row.bound, aggregation)), row
            )
            choice = {
                "ratio_level": row.ratio_level,
                "bound": row.bound,
                "aggregation": aggregation,
            }
            other = {axis: word for axis, word in choice.items() if getattr(ALGORITHMS[named.name], axis) != word}
            try:
                yield from _completed(
                    row_of({"algorithm": named.name, **other}), {**constants, "algorithm": named.name, **other}, facts
                )
            except (ConfigurationError, ValueError):
                continue


def lacks_length(settings: Settings) -> bool:
    """Return whether a loss is divided by a constant that nobody knows."""
    return settings.get("max_length") is None and row_of(settings).aggregation == "constant"


def _axes(row: Algorithm) -> tuple[str, str, str]:
    return row.ratio_level, row.bound, row.aggregation


def _presets(facts: Facts) -> Sequence[Algorithm]:
    """Return an algorithm for each level and bound."""
    if not facts.moved:
        return [ALGORITHMS["grpo"]]
    distinct: dict[tuple[str, str], Algorithm] = {}
    for row in (*ALGORITHMS.values(), *VARIANTS):
        distinct.setdefault((row.ratio_level, row.bound), row)
    return list(distinct.values())


def _completed(row: Algorithm, settings: Settings, facts: Facts) -> Iterator[Settings]:
    """Yield settings with the constants that a loss needs and the note leaves out.

    Raises:
        ConfigurationError: a constant is known to nobody.
    """
    known: dict[str, Any] = dict(settings)
    if row.aggregation == "constant" and "max_length" not in known and facts.limit is not None:
        known["max_length"] = facts.limit
    if row.aggregation == "micro-batch" and "micro_batches" not in known:
        if len(facts.micro_batches) < 2:
            raise ConfigurationError("the passes of the update are no micro-batches: note the setting `micro_batches`")
        known["micro_batches"] = list(facts.micro_batches)
    for name, value in row.constants.items():
        if name.startswith(("sapo", "vespo")):
            known.setdefault(name, value)
    options: list[list[Settings]] = [_denominators(row, known, facts), _widths(row, known, facts), _penalties(known)]
    options.append(_corrections(known))
    if row.bound == "cap" and "cispo_bound" not in known:
        options.append([{"cispo_bound": "relative"}, {"cispo_bound": "absolute"}])
    for parts in product(*options):
        yield {**known, **{name: value for part in parts for name, value in part.items()}}


def _denominators(row: Algorithm, known: Settings, facts: Facts) -> list[Settings]:
    if row.aggregation != "token-mean" or "dapo_denominator" in known:
        return [{}]
    by_group = facts.group_size is not None and facts.group_size > 1
    step = [{"dapo_denominator": "trl"}] if "tokens_in_step" in known else []
    return [{"dapo_denominator": "global"}, *step, *([{"dapo_denominator": "group"}] if by_group else [])]


def _corrections(known: Settings) -> list[Settings]:
    """Return the level of an off-policy correction, each where the note leaves it out.

    Raises:
        ConfigurationError: its upper bound is left out.
    """
    if not known.get("correction"):
        return [{}]
    if "correction_high" not in known:
        raise ConfigurationError("setting `correction` needs `correction_high`: note it")
    return [{}] if "correction_level" in known else [{"correction_level": "token"}, {"correction_level": "seq_sum"}]


def _widths(row: Algorithm, known: Settings, facts: Facts) -> list[Settings]:
    needed = [name for name in ("epsilon_low", "epsilon_high") if name in row.constants and name not in known]
    if not needed:
        return [{}]
    if not facts.moved:
        return [{name: row.constants[name] for name in needed}]
    widths = [dict(zip(("epsilon_low", "epsilon_high"), pair, strict=True)) for pair in WIDTHS]
    return [{name: pair[name] for name in needed} for pair in widths]


def _penalties(known: Settings) -> list[Settings]:
    if not known.get("beta"):
        return [{}]
    estimators = [{}] if "kl_estimator" in known else [{"kl_estimator": name} for name in ESTIMATORS]
    return [{**one, **({} if "kl_ratio" in known else {"kl_ratio": "none"})} for one in estimators]


def words_of(definition: Definition, facts: Facts, written: Settings, twins: Sequence[Definition] = ()) -> str:
    """Return the composition in words: what shows in this update, and with which constants that nobody has written.

    Twins give the same coefficients: where they differ, the choice does not show.
    """
    settings, row = definition.settings, definition.row
    mean = DENOMINATORS[settings["dapo_denominator"]] if row.aggregation == "token-mean" else row.aggregation
    length = settings.get("max_length") if row.aggregation == "constant" else None
    parts = [MEANS[mean][0] + (f" with L_max {length:g}" if length else "")]
    if facts.moved:
        parts = [_ratio(definition, twins), *parts]
    if settings.get("beta") and not {"beta", "kl_estimator"} <= set(written):
        forms = dict.fromkeys(_form(each) for each in (definition, *twins))
        parts.append(f"KL by {' or '.join(forms)} with β {number(settings['beta'])}")
    return ", ".join(parts)


def _form(definition: Definition) -> str:
    settings = definition.settings
    ratio = settings.get("kl_ratio", "none")
    return f"{settings['kl_estimator']}{'' if ratio == 'none' else f' times the ratio of the {ratio}'}"


def _ratio(definition: Definition, twins: Sequence[Definition]) -> str:
    row = definition.row
    level = AXES["ratio_level"][row.ratio_level].text
    if any(twin.row.bound != row.bound or _sizes(twin) != _sizes(definition) for twin in twins):
        return f"{level}, whose bound does not act" if {twin.row.bound for twin in twins} & {"none"} else level
    return f"{level}, {AXES['bound'][row.bound].text}{_sizes(definition)}"


def _sizes(definition: Definition) -> str:
    settings = definition.settings
    if definition.row.bound not in {"clip", "log-clip", "cap"}:
        return ""
    if settings.get("epsilon_high") == FREE:
        return " that does not act"
    sizes = [f"{settings[name]:g}" for name in ("epsilon_low", "epsilon_high") if settings.get(name) is not None]
    return f" ε {' and '.join(dict.fromkeys(sizes))}" if sizes else ""

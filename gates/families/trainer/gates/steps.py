"""Does one update of a trainer have the gradient of its definition, token by token?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from gates.families.trainer import steps
from gates.families.trainer.op import RESOLVE_CONFIG, TRAINING_STEP
from gates.families.trainer.step_cases import CASES
from gates.families.trainer.step_inputs import REWARDED
from gates.families.trainer.step_losses import REFERENCE_FREE, advantages
from gates.families.trainer.steps import clipped, compared, trained
from gates.model import Bound, Evidence, Trial, UnsupportedError
from gates.registry import gate
from gates.xray.fit import fit
from gates.xray.reading import optimizer, rules

ERROR = (
    "a coefficient is known within the standard error of its fit, once in a million updates beyond (docs/xray.md), which is that "
    f"of one backward pass in the weights' dtype; and log-probs in float32, of which its definition is made, to {steps.NATS:g} nats"
)


@gate(
    "trainer.step.matches-definition",
    level="definition",
    name="training_step",
    question="Do two updates of the library's own trainer have the gradient of the settings that it says are in force?",
    why="Mistakes of training sit between functions that are right by themselves: a mask, a reference, old log-probs, a "
    "divisor of another batch. All of them end in the gradient that the optimizer receives.",
    ops=(TRAINING_STEP,),
    cases=CASES,
    bounds={
        "coefficient error in its precision": Bound("derived", ERROR, 1.0),
        "unexplained share of the gradient": Bound(
            "derived", "float32 rounds a backward pass to 1e-6 of the gradient; what is more has another source", 1e-5
        ),
    },
)
def matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare each token's coefficient with the oracle's, at the log-probs of the recorded weights."""
    made = trained(t)
    for index, update in enumerate(made.updates):
        where = f"update {update.number}"
        step = compared(t, made, index)
        if index == 0:
            yield t.precondition("coefficients that are not 0", int(np.count_nonzero(step.want[0])), ">=", 8)
        worst = int(step.off.argmax())
        at = f"{where}, {_token(t, made, index, int(step.columns[worst]))}: got {step.got[worst]:.6g}, want {step.want[0][worst]:.6g}"
        yield t.number("coefficient error in its precision", float(step.off[worst]), "<=", where=at)
        left = (
            fit(update).unexplained if update.document.shift == 1 else 1.0
        )  # scores of other positions explain nothing
        yield t.number("unexplained share of the gradient", left, "<=", where=where)
    yield from _acting(t, made)


def _acting(t: Trial, made: steps.Trained) -> Iterator[Evidence]:
    """State that what was asked has an effect in the last update, so that agreement with the definition shows it."""
    asked, last = t.inputs["settings"], len(made.updates) - 1
    changes: list[tuple[str, dict[str, Any]]] = []
    if "epsilon_low" in asked and made.settings.get("ratio") != "on-policy":
        changes.append(("clip", {"epsilon_low": 0.9, "epsilon_high": 9.0}))
    if asked.get("beta") and t.inputs["trainer"] in REWARDED:
        changes.append(("KL", {"beta": 0.0}))
    for name, change in changes:
        here, without = compared(t, made, last), compared(t, made, last, **change)
        moved = float((np.abs(here.want[0] - without.want[0]) / here.limits).max())
        because = "the weights moved so far that it acts; else nothing is shown of it"
        yield t.negative_control(f"effect of the {name} in the last update, in limits", moved, ">", 10.0, because)


def _token(t: Trial, made: steps.Trained, index: int, column: int) -> str:
    """Return where a column stands: row and token, counted from 1."""
    for row, columns in enumerate(made.rows[index]):
        if column in columns:
            position = int(np.flatnonzero(columns == column)[0])
            prompt = len(t.inputs["prompts"][row // t.inputs["group_size"]])
            part = f"prompt token {position + 1}" if position < prompt else f"completion token {position - prompt + 1}"
            return f"row {row + 1}, {part}"
    return "a token of no row"


@gate(
    "trainer.step.rows",
    level="law",
    name="training_step",
    question="Do prompts, padding and groups of equal rewards have no coefficient?",
    why="A mask that is shifted or ignored trains on what nobody sampled; rewards of other rows push the wrong completions.",
    ops=(TRAINING_STEP,),
    cases=CASES,
    bounds={
        name: Bound("exact", because, 0)
        for name, because in {
            "prompt tokens that train": "the policy is asked for completions alone",
            "padding tokens that train": "nobody sampled them",
            "tokens that train in a group of equal rewards": "its advantages are 0 in the first update, whatever divides them",
            "completion tokens that do not train": "in the first update every ratio is 1, so no bound acts",
        }.items()
    },
)
def rows(t: Trial) -> Iterator[Evidence]:
    """Count tokens whose coefficient is beyond its error, or within it."""
    made = trained(t)
    update, solved = made.updates[0], fit(made.updates[0])
    beyond = np.zeros(len(update.kinds), dtype=bool)
    columns, limits = steps.known(update, solved)
    beyond[columns] = np.abs(solved.coefficients[columns]) > limits
    size = t.inputs["group_size"]
    begins = [len(prompt) for prompt in t.inputs["prompts"] for _ in range(size)]
    completion = [columns[begin:] for columns, begin in zip(made.rows[0], begins, strict=True)]
    prompt = _columns(columns[:begin] for columns, begin in zip(made.rows[0], begins, strict=True))
    values = advantages(t, made.settings)
    equal = t.inputs["trainer"] in REWARDED and len(t.inputs["prompts"]) > 1  # the last group's rewards
    zero = _columns(row for row, value in zip(completion, values, strict=True) if value == 0.0)
    acting = _columns(row for row, value in zip(completion, values, strict=True) if value != 0.0)
    yield t.precondition("rows with an advantage", int(np.count_nonzero(values)), ">=", min(4, len(values) - 1))
    if equal:
        yield t.precondition("rows without an advantage", int(np.count_nonzero(values == 0.0)), ">=", size)
    if made.settings.get("nll_tokens") != "all":
        yield t.number("prompt tokens that train", beyond[prompt].sum(), "<=", where=f"of {len(prompt)}")
    yield t.number("padding tokens that train", beyond[made.padding[0]].sum(), "<=", where=f"of {len(made.padding[0])}")
    zero = np.setdiff1d(zero, acting)
    if equal:
        yield t.number(
            "tokens that train in a group of equal rewards", beyond[zero].sum(), "<=", where=f"of {len(zero)}"
        )
    alone = np.intersect1d(acting, columns)
    if made.settings.get("loss") in REFERENCE_FREE:  # a pair that is far apart may train by less than its rounding
        step = compared(t, made, 0)
        alone = np.intersect1d(alone, step.columns[np.abs(step.want[0]) > step.limits])
    yield t.number("completion tokens that do not train", (~beyond[alone]).sum(), "<=", where=f"of {len(alone)}")


def _columns(parts: Any) -> Any:
    joined = np.unique(np.concatenate([np.asarray(part, np.int64) for part in parts] or [np.zeros(0, np.int64)]))
    return joined[joined >= 0]


@gate(
    "trainer.step.optimizer",
    level="definition",
    name="training_step",
    question="Does each update follow the optimizer's rule, with the rate, decay and clip of the norm that are in force?",
    why="A rate that is not the one in the configuration, decay nobody asked for, or a clip before the gradient is whole "
    "change every weight and no loss curve.",
    ops=(TRAINING_STEP,),
    cases=CASES,
    bounds={
        "weights that do not follow the rule": Bound(
            "derived", "roundings of the rule's operations in the weights' dtype", 0
        ),
        "learning rate of the first update": Bound("derived", "it is a number of the configuration", 1e-6),
        "norm of the gradient over its limit": Bound(
            "derived", "the norm is summed in float32, and ε is added to it", 1e-4
        ),
        "weight decay": Bound("derived", "it is a number of the configuration", 1e-6),
    },
)
def follows_its_rule(t: Trial) -> Iterator[Evidence]:
    """Recompute sampled weights in float64, and read rate, decay and norm where the optimizer has them."""
    made = trained(t)
    groups = made.updates[0].document.optimizer.groups
    yield t.precondition("groups of the optimizer", len(groups), ">=", 1)
    for name, of in (("learning_rate", rules.rate), ("weight_decay", rules.decay)):
        if name in made.settings:
            wanted, here = float(made.settings[name]), max(map(of, groups))
            quantity = "learning rate of the first update" if name == "learning_rate" else "weight decay"
            off = abs(here - wanted) / (wanted or 1.0)
            yield t.number(quantity, off, "<=", where=f"off by: {here:.6g} in the optimizer, {wanted:.6g} in force")
    for update in made.updates:
        departed = optimizer.departures(update)
        if departed is not None:
            where = f"update {update.number}, of {departed[1]:,}"
            yield t.number("weights that do not follow the rule", departed[0], "<=", where=where)
        limit = made.settings.get("gradient_clip")
        if limit:
            over = max(0.0, update.document.gradient_norm / float(limit) - 1.0)
            yield t.number("norm of the gradient over its limit", over, "<=", where=f"update {update.number}")


@gate(
    "trainer.config.in-force",
    level="definition",
    name="resolve_config",
    question="Is what was asked in force, and does the configuration say what the trainer then says?",
    why="An option that is misspelt, renamed or overridden by a default trains another algorithm than its name.",
    ops=(RESOLVE_CONFIG, TRAINING_STEP),
    cases=CASES,
    bounds={
        "settings that are not in force": Bound("exact", "it was asked", 0),
        "settings that differ in the trainer": Bound("exact", "one configuration", 0),
    },
)
def in_force(t: Trial) -> Iterator[Evidence]:
    """Compare what was asked with what the configuration resolves to, and that with the trainer."""
    asked = t.inputs["settings"]
    resolved = steps.words(t.got(RESOLVE_CONFIG, trainer=t.inputs["trainer"], settings=asked)["settings"])
    made = trained(t)
    lost = [
        f"{name}: {resolved.get(name)}, asked {value}"
        for name, value in asked.items()
        if not _same(resolved.get(name), value)
    ]
    yield t.precondition("settings in force", len(resolved), ">=", 1)
    yield t.number("settings that are not in force", len(lost), "<=", where="; ".join(lost))
    names = sorted(set(resolved) | set(made.settings))
    differ = [name for name in names if not _same(resolved.get(name), made.settings.get(name))]
    yield t.number("settings that differ in the trainer", len(differ), "<=", where=", ".join(differ))


def _same(one: Any, other: Any) -> bool:
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return bool(np.isclose(one, other, rtol=1e-6, atol=0)) if numbers else json.dumps(one) == json.dumps(other)


METRICS = {  # word: what it is of an update
    "loss": "that is minimised",
    "learning_rate": "of the optimizer at the update",
    "gradient_norm": "before the clip",
    "reward": "mean over the rows",
    "length": "mean tokens of a completion",
}


@gate(
    "trainer.step.metrics",
    level="definition",
    name="training_step",
    question="Are the numbers that the library reports those of the update that it made?",
    why="Who reads a curve of the wrong rows, of the step before or of a clipped norm, tunes by it.",
    ops=(TRAINING_STEP,),
    cases=CASES,
    bounds={
        "reported metric, off by": Bound("derived", "float32, or the digits that the library prints", 1.0),
    },
)
def metrics_are_of_the_update(t: Trial) -> Iterator[Evidence]:
    """Recompute what is reported from the case and the recording."""
    made = trained(t)
    absent = set() if t.inputs["trainer"] in REWARDED else {"reward"}
    reported = [name for name in METRICS if made.metrics.get(name) and name not in absent]
    if not reported:
        raise UnsupportedError(f"it reports no metric: {', '.join(METRICS)}")
    for name in reported:
        for index, value in enumerate(made.metrics[name][: len(made.updates)]):
            digits = 0.5 * 10.0 ** -float(made.metrics.get("digits", {}).get(name, 300))
            off, want = min(
                (abs(float(value) - want) / (1e-5 * max(size, 1e-12) + digits), want)
                for want, size in _metric(name, t, made, index)
            )
            where = f"{name} of update {index + 1}: {value:.6g}, is {want:.6g}"
            yield t.number("reported metric, off by", off, "<=", where=where)


def _metric(name: str, t: Trial, made: steps.Trained, index: int) -> list[tuple[float, float]]:
    """Return the values that a metric may have, each with the size that its precision is relative to."""
    document = made.updates[index].document
    if name == "loss":
        return steps.expected_losses(t, made, index)
    if name == "learning_rate":
        value = max(map(rules.rate, document.optimizer.groups))
    elif name == "gradient_norm" and document.clip is not None:
        value = document.clip.norm
    elif name == "gradient_norm":  # a clip that nobody saw: the definition's coefficients over the received ones
        step = compared(t, made, index)
        factor = float(step.got @ step.want[0]) / float(step.want[0] @ step.want[0]) * clipped(made, index)
        value = document.gradient_norm / factor
    elif name == "reward":
        value = float(np.mean(t.inputs["rewards"], dtype=np.float64))
    else:
        value = float(np.mean([len(row) for row in t.inputs["completions"]]))
    return [(value, abs(value))]

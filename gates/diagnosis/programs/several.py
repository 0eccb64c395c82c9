"""The forward definition of advantages from several reward functions, and what people write instead.

Source: docs/definitions.md, "Normalise, then sum".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, absolute, sqrt
from gates.diagnosis.program import Choices, Data, Edit, Inputs, Program
from gates.diagnosis.programs import advantages_inputs
from gates.model import Array

COLUMNS = (1.0, 30.0, 0.02)  # the sizes of the reward functions, in turn
OF_WEIGHTS = (1.0, 1e-3, 1.0, 1e-5, 1e-2, 1.0, 1e-4, 1e-7)  # a factor of all: ε beside the deviation of the sums
SIZES = (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # of ε, as people write it
STAGES = ("group", "batch")


def asked(inputs: Inputs) -> Choices:
    """Return the choices that the keywords of `normalise_then_sum` ask for."""
    names = (f"{stage}_{name}" for stage in STAGES for name in ("ddof", "eps"))
    return {
        **{name: inputs[name] for name in names},
        "layout": "given",
        "first": "group",
        "second": "batch",
        "weights": "given",
        "group_divided": True,
        "batch_divided": True,
        "batch_centred": True,
        "inside": "none",
        "sign": 1.0,
    }


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  no gradient is asked
    """Return the advantages."""
    rewards, size = np.asarray(data["rewards"]), int(data["group_size"])
    rows = np.arange(len(rewards))
    table = rows.reshape(-1, size) if chosen["layout"] == "given" else rows.reshape(size, -1).T
    stages = {"group": table, "batch": rows.reshape(1, -1)}
    values, factors = data.lift(rewards), data.lift(data["weights"])
    if chosen["first"] != "none":
        values = _normalised(data, chosen, values, stages[chosen["first"]], "group")
    if chosen["weights"] == "magnitudes":
        factors = absolute(factors)
    summed = (values * factors if chosen["weights"] != "ones" else values).sum(1, keepdims=True)
    if chosen["second"] != "none":
        summed = _normalised(data, chosen, summed, stages[chosen["second"]], "batch")
    return {"advantages": summed[:, 0] * chosen["sign"]}


def _normalised(data: Data, chosen: Choices, values: Value, table: Array, stage: str) -> Value:
    """Return the z-scores of the columns of (B, F) numbers in each group of rows."""
    groups = values[table]
    off = groups - groups.mean(1, keepdims=True)
    n = max(table.shape[1] - float(chosen[f"{stage}_ddof"]), 1.0)
    eps = data.scalar(chosen[f"{stage}_eps"], np.asarray(data["rewards"]).dtype.name)
    variance = (off * off).sum(1, keepdims=True) / n
    divisor = sqrt(variance + eps) if chosen["inside"] in {stage, "both"} else sqrt(variance) + eps
    found = off if chosen.get(f"{stage}_centred", True) else groups
    found = found / divisor if chosen[f"{stage}_divided"] else found
    return found.reshape(*values.shape)[np.argsort(table.reshape(-1))]


def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a sum of normalised rewards, conventions first."""
    yield from _constants(asked)
    plain = {"first": "none", "second": "group"}
    yield Edit("rewards summed first, then normalised in their group (GRPO)", plain, convention=True)
    both = {f"{stage}_{name}": asked[f"{other}_{name}"] for stage, other in _swapped() for name in ("ddof", "eps")}
    yield Edit("ddof and ε of the groups and of the batch exchanged", both)
    for name, words in (("ddof", "ddof"), ("eps", "ε")):
        change = {f"{stage}_{name}": asked[f"{other}_{name}"] for stage, other in _swapped()}
        yield Edit(f"{words} of the groups and of the batch exchanged", change)
    yield Edit("rewards summed first, then normalised over the batch", {"first": "none"})
    yield Edit("the weighted sum not normalised", {"second": "none"})
    yield Edit("the weighted sum normalised in its group, not over the batch", {"second": "group"})
    yield Edit("each reward normalised over the batch, not in its group", {"first": "batch"})
    yield Edit("weights ignored", {"weights": "ones"})
    yield Edit("the magnitudes of the weights", {"weights": "magnitudes"})
    yield Edit("rewards less their group's mean, not divided by its deviation", {"group_divided": False})
    yield Edit("the weighted sum less its mean, not divided by its deviation", {"batch_divided": False})
    yield Edit("the weighted sum over its deviation, not less its mean", {"batch_centred": False})
    for stage, words in (("group", "of the groups"), ("batch", "of the batch"), ("both", "of both stages")):
        yield Edit(f"ε {words} inside the root", {"inside": stage})
    yield Edit("groups of every P-th row (P prompts), as if rows were member-major", {"layout": "every P-th row"})
    yield Edit("advantages with the wrong sign", {"sign": -1.0})


def _swapped() -> tuple[tuple[str, str], ...]:
    return (("group", "batch"), ("batch", "group"))


def _constants(asked: Choices) -> Iterator[Edit]:
    for stage, words in (("group", "of the groups"), ("batch", "of the batch")):
        ddof, eps = asked[f"{stage}_ddof"], asked[f"{stage}_eps"]
        yield Edit(f"ddof {1 - ddof} {words}", {f"{stage}_ddof": 1 - ddof}, True, str(ddof))
        for size in (0.0, *SIZES):
            if size != eps:
                yield Edit(f"ε {size:g} {words}", {f"{stage}_eps": size}, True, f"{eps:g}")
    for ddof in (0, 1):
        if {asked["group_ddof"], asked["batch_ddof"]} == {1 - ddof}:
            change = {"group_ddof": ddof, "batch_ddof": ddof}
            yield Edit(f"ddof {ddof} of both stages", change, True, str(1 - ddof))
    for size in (0.0, *SIZES):
        if size not in {asked["group_eps"], asked["batch_eps"]}:
            yield Edit(f"ε {size:g} of both stages", {"group_eps": size, "batch_eps": size}, convention=True)


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call: functions of several sizes, weights down to 1e-7."""
    dtype, count = np.asarray(example["rewards"]).dtype, np.shape(example["rewards"])[1]
    weights = np.resize((1.0, 0.5, -2.0), count)
    for (groups, size), factor in zip(advantages_inputs.SHAPES, OF_WEIGHTS, strict=True):
        columns = [
            (advantages_inputs.rewards(rng, groups, size, alike=True) * scale).reshape(-1)
            for scale in np.resize(COLUMNS, count)
        ]
        columns[-1].reshape(groups, size)[0] *= 1e-3  # ε beside a small deviation of a group
        yield {
            **example,
            "rewards": np.stack(columns, axis=1).astype(dtype),
            "weights": (weights * factor).astype(dtype),
            "group_size": size,
        }


def places(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  there is one
    """Yield sets of rows by name."""
    size, rows = int(inputs["group_size"]), np.arange(len(inputs["rewards"]))
    yield "in the first group", rows < size
    yield "after the first group", rows >= size
    yield "at the first row of each group", rows % size == 0
    yield "after the first row of each group", rows % size > 0


def presets(asked: Choices) -> Iterator[Edit]:  # noqa: ARG001  every setting is a choice of ours
    """Yield TRL's two settings (docs/definitions.md, "Presets")."""
    same = {"group_ddof": 1, "group_eps": 1e-4, "batch_ddof": 1, "batch_eps": 1e-4}
    words = "each reward normalised in its group, the weighted sum over the batch, both with ddof 1, std + 0.0001"
    library = 'TRL multi_objective_aggregation="normalize_then_sum"'
    yield Edit(f"{words} ({library})", {**same, "first": "group", "second": "batch"}, convention=True)
    words = "the weighted sum of rewards normalised in its group, with ddof 1, std + 0.0001"
    library = 'TRL multi_objective_aggregation="sum_then_normalize"'
    yield Edit(f"{words} ({library})", {**same, "first": "none", "second": "group"}, convention=True)


PROGRAM = Program(
    op="normalise_then_sum",
    asked=asked,
    compute=compute,
    edits=edits,
    inputs=designed,
    outputs=("advantages",),
    places=places,
    presets=presets,
)
PROGRAMS = (PROGRAM,)

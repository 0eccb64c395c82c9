"""The edits of advantages: conventions of libraries, and mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from gates.families.edits import conventions_first, declarations, mistakes, others
from gates.families.program import Choices, Edit, Sample

SIZES = (1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # usual values of ε
USUAL = frozenset((1e-8, 1e-6, 1e-5, 1e-4))  # sizes of ε that are tried beside another edit
MODES = {
    "add": "std + ε",
    "inside": "√(var + ε)",
    "threshold": "0 where std < ε",
    "floor": "the larger of std and ε",
    "threshold-add": "0 where std < ε, else std + ε",
}
FORMS = ("add", "inside", "threshold")  # that one deviation, of the batch, can tell apart
OTHER_MODES = {
    "one below": "not divided where std < ε",
    "nothing": "no ε beside the deviation",
}
SCALES = {"group": "the deviation of the group", "batch": "the deviation of the whole batch", "none": "no divisor"}
ROUND = 1e-3  # what a solved ε may be off a round number that is meant: 1.19e-7, float32's own ε, is not 1.2e-7
UNSCALED = {"scale": "none", "ddof": None, "eps": None, "eps_mode": None}
PRESETS: Mapping[str, Choices] = {  # docs/definitions.md, "Presets"
    'TRL scale_rewards="group"': {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"},
    'TRL scale_rewards="batch"': {"scale": "batch", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"},
    'Dr. GRPO: TRL scale_rewards="none", verl norm_adv_by_std_in_grpo=False': {**UNSCALED, "baseline": "mean"},
    "verl adv_estimator=grpo": {"scale": "group", "ddof": 1, "eps": 1e-6, "eps_mode": "add", "baseline": "mean"},
    "rlox": {"scale": "group", "ddof": 0, "eps": 1e-8, "eps_mode": "threshold", "baseline": "mean"},
    "mlxrl": {"scale": "group", "ddof": 0, "eps": 1e-8, "eps_mode": "inside", "baseline": "mean"},
    "mlx-lm-lora": {"scale": "group", "ddof": 0, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"},
    "RLOO: TRL RLOOTrainer, verl adv_estimator=rloo, mlxrl": {**UNSCALED, "baseline": "leave-one-out"},
}
BASELINES = {
    "mean": ("the mean of the group", True),
    "leave-one-out": ("the mean of the other members of the group", True),
    "none": ("no baseline: rewards are not centred", True),
    "batch": ("the mean of the whole batch", True),
    "batch leave-one-out": ("the mean of all other rewards of the batch", False),
    "median": ("the median of the group", False),
    "largest": ("the largest reward of the group", False),
    "smallest": ("the smallest reward of the group", False),
    "first": ("the first reward of the group", False),
    "sum": ("the sum of the group, not its mean", False),
    "others over G": (
        "the sum of the other members of the group divided by their number plus one, G, not by G − 1",
        False,
    ),
    "group over G − 1": ("the sum of the whole group, the member itself included, divided by G − 1", False),
    "sum of the others": ("the sum of the other members of the group, not their mean", False),
    "group over P": ("the sum of the group divided by the number of groups, not by G", False),
    "shrunk": ("the mean of the group, the distance times (G − 1)/G", False),
    "added": ("the mean of the group added, not subtracted", False),
    "others added": ("the mean of the other members added, not subtracted", False),
    "next group": ("the mean of the next group", False),
    "other groups": ("the mean of the other groups", False),
    "next member": ("the reward of the next member of the group", False),
    "largest other": ("the largest reward of the other members of the group", False),
    "members before": ("the mean of the members before, from the group's first on", False),
    "last": ("the last reward of the group", False),
    "previous group": ("the mean of the previous group", False),
    "first group": ("the mean of the first group for every group", False),
    "half batch": ("the mean of each half of the batch, as if it were on two ranks", False),
}
DECLARED = {  # as a subject declares what it computes, if it means it
    "ddof": declarations("ddof", (0, 1, None)),
    "eps": declarations("eps", (*SIZES, None)),
    "eps_mode": declarations("eps_mode", (*MODES, None)),
    "scale": declarations("scale", SCALES),
    "baseline": declarations("baseline", ("mean", "leave-one-out", "batch", "none")),
}
SPREADS = {
    "variance": "the variance, not its root",
    "mean absolute deviation": "the mean absolute deviation",
    "range": "the largest reward less the smallest",
    "largest": "the largest distance from the mean",
    "mean": "the magnitude of the mean",
    "about zero": "the root mean square of the rewards, not about their mean",
    "of the centred": "the root mean square of the rewards less their baseline",
    "of the others": "the deviation of the other members of the group",
    "standard error": "the deviation over √n",
    "next group": "the deviation of the next group",
    "group means": "the deviation of the groups' means",
    "√(n + 1)": "the root of the sum of squares over n + 1",
    "sum of squares": "the root of the sum of squares, not of their mean",
    "previous group": "the deviation of the previous group",
    "first group": "the deviation of the first group for every group",
    "half batch": "the deviation of each half of the batch, as if it were on two ranks",
    "median absolute deviation": "the median distance from the median",
    "largest magnitude": "the largest |R|",
    "mean magnitude": "the mean of |R|",
    "quarter root": "the root of the deviation",
}
ELSEWHERE = ("next group", "previous group", "first group", "half batch")  # of baselines and of spreads
LAYOUTS = {
    "every P-th row": "groups of every P-th row (P prompts), as if rows were member-major",
    "every G-th row": "statistics over the prompts, not over the members of a group (the other axis)",
    "P rows": "groups of P consecutive rows: the number of prompts taken for that of members",
    "batch": "the whole batch as one group",
    "pairs": "groups of two rows",
    "halves": "each half of a group as a group of its own, as if a group were on two ranks",
    "two groups": "two groups as one",
    "shifted": "groups that start one row late",
}
TIMES = {
    "−1": "advantages with the wrong sign",
    "√G": "advantages times √G",
    "1/√G": "advantages over √G",
    "1/G": "advantages over G",
    "G": "advantages times G",
    "G/(G − 1)": "advantages times G/(G − 1)",
    "(G − 1)/G": "advantages times (G − 1)/G",
}
AFTER = {
    "whitened": "advantages normalised over the batch once more (ddof 1)",
    "whitened, ddof 0": "advantages normalised over the batch once more (ddof 0)",
    "centred": "advantages less their mean over the batch",
    "divided": "advantages divided by their deviation over the batch once more, not centred",
    "signs": "the sign of each advantage, not its size",
    "positive": "advantages below 0 set to 0",
    "absolute": "the magnitude of the advantages",
}
CLIPS = (1.0, 2.0, 3.0, 5.0, 10.0)
SIZES_OF_STAGES = (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # usual values of ε


@conventions_first
def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of advantages with these choices."""
    yield from _scaled(asked)
    yield from _mistakes(asked)


def _scaled(asked: Choices) -> Iterator[Edit]:
    """Yield other baselines, scales, ddof and ε."""
    yield from others("baseline", BASELINES, asked, "baseline: {}")
    if asked["scale"] == "none":
        for scale, ddof, mode, size in product(("group", "batch"), (0, 1), FORMS, SIZES):
            change = {"scale": scale, "ddof": ddof, "eps": size, "eps_mode": mode}
            usual = any(change.items() <= preset.items() for preset in PRESETS.values())
            yield Edit(named(scale, ddof, size, mode), change, True, SCALES["none"], alone=not usual)
        return
    yield Edit("no division by a deviation", UNSCALED, True, SCALES[asked["scale"]])
    other = "batch" if asked["scale"] == "group" else "group"
    yield Edit(f"divided by {SCALES[other]}", {"scale": other}, True, SCALES[asked["scale"]])
    yield Edit("divided by the mean of the groups' deviations", {"scale": "mean of the groups'"})
    for ddof, mode, size in product((0, 1), tuple(MODES) if asked["scale"] == "group" else FORMS, SIZES):
        if (ddof, mode, size) != (asked["ddof"], asked["eps_mode"], asked["eps"]):
            yield constants(asked, ddof, size, mode)
    for mode, words in OTHER_MODES.items():
        yield Edit(words, {"eps_mode": mode}, asked=MODES[asked["eps_mode"]])


def named(scale: str, ddof: int, size: float, mode: str) -> str:
    """Describe a scale with all of its constants."""
    return f"{scale} z-score with ddof {ddof}, {_mode(mode, size)}"


def _mode(mode: str, size: float) -> str:
    return MODES[mode].replace("ε", f"{size:g}")


def constants(asked: Choices, ddof: int, size: float, mode: str) -> Edit:
    """Return the edit of ddof and ε; its words name only what differs."""
    change = {"ddof": ddof, "eps": size, "eps_mode": mode}
    before = {name: asked[name] for name in change}
    differing = [name for name, value in change.items() if value != before[name]]
    kind = f"{asked['scale']} z-score with "
    if differing == ["ddof"]:
        return Edit(f"{kind}ddof {ddof}", {"ddof": ddof}, True, str(before["ddof"]))
    if "ddof" not in differing:
        changed = {name: change[name] for name in differing}
        return Edit(
            f"{kind}{_mode(mode, size)}",
            changed,
            True,
            _mode(before["eps_mode"], before["eps"]),
            alone=size not in USUAL,
        )
    words = f"ddof {before['ddof']}, {_mode(before['eps_mode'], before['eps'])}"
    library = [name for name, preset in PRESETS.items() if change.items() <= preset.items() and "batch" not in name]
    suffix = f" ({', '.join(library)})" if library and asked["scale"] == "group" else ""
    return Edit(f"{named(asked['scale'], ddof, size, mode)}{suffix}", change, True, words, alone=not library)


def _mistakes(asked: Choices) -> Iterator[Edit]:
    if asked["scale"] != "none":
        yield from mistakes("spread", SPREADS, "divided by {}", without=("of the centred",))
        yield Edit(f"divided by {SPREADS['of the centred']}", {"spread": "of the centred"}, convention=True)
        for name in ELSEWHERE:
            both = {"baseline": name, "spread": name}
            yield Edit(f"both statistics from elsewhere: {BASELINES[name][0]}, {SPREADS[name]}", both)
        yield Edit("R less the smallest, over the range (min–max)", {"baseline": "smallest", "spread": "range"})
        yield Edit(
            "R less the baseline over the deviation: the quotient before the difference", {"divides": "baseline"}
        )
        yield Edit("R over the deviation, less the baseline: not divided itself", {"divides": "reward"})
    yield from mistakes("layout", LAYOUTS)
    yield Edit("advantages returned member-major, not in the order of the rewards", {"output": "member-major"})
    yield from mistakes("times", TIMES)
    yield from mistakes("after", AFTER)
    yield from (Edit(f"advantages clipped to ±{size:g}", {"clip": size}) for size in CLIPS)
    if asked["has_nan"]:
        yield Edit("unscored rewards counted as 0", {"nan": "zero"})
        yield Edit("unscored rewards counted as 0 in the statistics", {"nan": "zero in statistics"})
        yield Edit("one unscored reward makes its whole group NaN", {"nan": "spreads"})


def fitted(asked: Choices, samples: Sequence[Sample]) -> Iterator[Edit]:
    """Yield the edits with ε solved for from the outputs, added or inside the root, for both ddof."""
    if asked["scale"] == "none":
        return
    for ddof, mode in product((0, 1), ("add", "inside")):
        size = _solved(asked, samples, float(ddof), inside=mode == "inside")
        if size > 0.0 and np.isfinite(size):
            near = float(f"{size:.2g}")
            yield constants(asked, ddof, near if abs(near - size) <= ROUND * size else size, mode)


def _solved(asked: Choices, samples: Sequence[Sample], ddof: float, *, inside: bool) -> float:
    """Return ε solved for from the group, or batch, with the least deviation, where ε weighs most."""
    best, eps = np.inf, 0.0
    for sample in samples:
        rewards, got = (np.asarray(x, np.float64) for x in (sample.inputs["rewards"], sample.got["advantages"]))
        if got.shape != rewards.shape or not np.isfinite(rewards).all():
            continue
        groups = rewards.reshape(-1, int(sample.inputs["group_size"]))
        n, centred = groups.shape[1], groups - groups.mean(axis=1, keepdims=True)
        if asked["baseline"] == "leave-one-out":
            centred = centred * n / max(n - 1.0, 1.0)
        elif asked["baseline"] in {"batch", "none"}:
            centred = groups - (rewards.mean() if asked["baseline"] == "batch" else 0.0)
        table = groups if asked["scale"] == "group" else rewards.reshape(1, -1)
        for row, spread in enumerate(_deviations(table, ddof)):
            parts = (
                (centred, got.reshape(groups.shape))
                if asked["scale"] == "batch"
                else (centred[row], got.reshape(groups.shape)[row])
            )
            c, a = (part.reshape(-1)[np.argmax(np.abs(parts[0]))] for part in parts)
            if 0.0 < spread < best and a != 0.0 and c / a > 0.0:
                best, eps = spread, ((c / a) ** 2 - spread**2 if inside else c / a - spread)
    return float(eps)


def _deviations(table: Any, ddof: float) -> list[float]:
    return [
        float(x)
        for x in np.sqrt(
            ((table - table.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) / max(table.shape[1] - ddof, 1.0)
        )
    ]


def presets(asked: Choices) -> Iterator[Edit]:  # noqa: ARG001  the same for all choices
    """Yield the presets of libraries (docs/definitions.md, "Presets")."""
    for library, change in PRESETS.items():
        if change["scale"] == "none":
            words = f"R less {BASELINES[change['baseline']][0]}, {SCALES['none']}"
        else:
            words = named(change["scale"], change["ddof"], change["eps"], change["eps_mode"])
        yield Edit(f"{words} ({library})", change, convention=True)


# --- several reward functions


def edits_of_several(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a sum of normalised rewards, conventions first."""
    yield from _constants_of_stages(asked)
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
    signs = "weights before the normalisation, which leaves their sign alone"
    yield Edit(signs, {"weights": "signs"})
    yield Edit("weights squared", {"weights": "squared"})
    yield Edit("weights in the reverse order of the reward functions", {"weights": "reversed"})
    yield Edit("weights divided by their sum", {"weights": "shares"})
    yield Edit("the first reward function alone", {"weights": "first"})
    yield Edit("the last reward function alone", {"weights": "last"})
    yield Edit("rewards over their group's deviation, not less its mean", {"group_centred": False})
    yield Edit(
        "statistics over the prompts, not over the members of a group (the other axis)", {"layout": "every G-th row"}
    )
    yield Edit("rewards less their group's mean, not divided by its deviation", {"group_divided": False})
    yield Edit("the weighted sum less its mean, not divided by its deviation", {"batch_divided": False})
    yield Edit("the weighted sum over its deviation, not less its mean", {"batch_centred": False})
    for stage, words in (("group", "of the groups"), ("batch", "of the batch"), ("both", "of both stages")):
        yield Edit(f"ε {words} inside the root", {"inside": stage})
    yield Edit("groups of every P-th row (P prompts), as if rows were member-major", {"layout": "every P-th row"})
    yield Edit("advantages with the wrong sign", {"sign": -1.0})


def _swapped() -> tuple[tuple[str, str], ...]:
    return (("group", "batch"), ("batch", "group"))


def _constants_of_stages(asked: Choices) -> Iterator[Edit]:
    for stage, words in (("group", "of the groups"), ("batch", "of the batch")):
        ddof, eps = asked[f"{stage}_ddof"], asked[f"{stage}_eps"]
        yield Edit(f"ddof {1 - ddof} {words}", {f"{stage}_ddof": 1 - ddof}, True, str(ddof))
        for size in (0.0, *SIZES_OF_STAGES):
            if size != eps:
                yield Edit(f"ε {size:g} {words}", {f"{stage}_eps": size}, True, f"{eps:g}")
    for ddof in (0, 1):
        if {asked["group_ddof"], asked["batch_ddof"]} == {1 - ddof}:
            change = {"group_ddof": ddof, "batch_ddof": ddof}
            yield Edit(f"ddof {ddof} of both stages", change, True, str(1 - ddof))
    for size in (0.0, *SIZES_OF_STAGES):
        if size not in {asked["group_eps"], asked["batch_eps"]}:
            yield Edit(f"ε {size:g} of both stages", {"group_eps": size, "batch_eps": size}, convention=True)


def presets_of_several(asked: Choices) -> Iterator[Edit]:  # noqa: ARG001  the same for all choices
    """Yield TRL's two settings (docs/definitions.md, "Presets")."""
    same = {"group_ddof": 1, "group_eps": 1e-4, "batch_ddof": 1, "batch_eps": 1e-4}
    words = "each reward normalised in its group, the weighted sum over the batch, both with ddof 1, std + 0.0001"
    library = 'TRL multi_objective_aggregation="normalize_then_sum"'
    yield Edit(f"{words} ({library})", {**same, "first": "group", "second": "batch"}, convention=True)
    words = "the weighted sum of rewards normalised in its group, with ddof 1, std + 0.0001"
    library = 'TRL multi_objective_aggregation="sum_then_normalize"'
    yield Edit(f"{words} ({library})", {**same, "first": "none", "second": "group"}, convention=True)

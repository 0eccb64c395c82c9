"""The numbers that a run reports, from what its trace holds: metrics.jsonl, evaluations.jsonl and completions.jsonl."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gates.model import Array
from gates.replay.forward.scores import log_probs
from gates.replay.measure import Measures
from gates.replay.run import Run
from gates.replay.trace import Rollout, Step
from gates_reference.oracle.statistics import ratio_statistics

NUMBER = "error of a reported number"
NAMES = "numbers that are reported and have no definition, or the reverse"
LINES = "steps without a line of their own"
SAID = "numbers on the console that are not those of their step"
SHOWN = "completions that are shown with another text or reward"
QUANTITIES = (NUMBER, NAMES, LINES, SAID, SHOWN)
RATIO = ("mean", "max_abs", "p99_abs", "k3", "chi2", "ess_per_n", "mult_err")
SHARES = ("outside_low", "outside_high", "clipped_low", "clipped_high")
LOSSES = {
    "loss": "loss",
    "loss_policy": "loss_policy",
    "loss_kl": "loss_kl",
    "loss_entropy": "loss_entropy",
    "gradient_norm": "gradient_norm",
}
SPOKEN = re.compile(
    r"step (?P<step>\d+) of (?P<steps>\d+): (?P<what>reward|margin) (?P<value>[^,]+)(?:, signal in (?P<signal>\d+)%)?"
)
PAIRS = ("dpo", "online_dpo")
NAN = float("nan")


def replay(run: Run) -> Measures:
    """Recompute every number of every line."""
    found = Measures(dict.fromkeys(QUANTITIES, (0.0, "")))
    trace = run.trace
    for name, numbers in (("metrics", trace.steps), ("evaluations", trace.evaluations)):
        got = [line["step"] for line in trace.lines[name]]
        found.count(LINES, int(got != [each.number for each in numbers]), f"{name}.jsonl has steps {got}")
    for step, line in zip(trace.steps, trace.lines["metrics"], strict=False):
        _compare(line, of_step(run, step), f"metrics.jsonl, step {step.number}", found)
    for evaluation, line in zip(trace.evaluations, trace.lines["evaluations"], strict=False):
        want = (
            of_pairs(run, evaluation.number, evaluation.rollouts)
            if _offline(run)
            else _of_rewards(run, evaluation.rollouts)
        )
        _compare(line, want, f"evaluations.jsonl, step {evaluation.number}", found)
    _shown(run, found)
    _said(run, found)
    return found


def _said(run: Run, found: Measures) -> None:
    """Compare the lines on the console with those of their steps; each run shows its first and its last step."""
    lines = {line["step"]: line for line in run.trace.lines["metrics"]}
    shown = [match for text in run.trace.console if (match := SPOKEN.match(text))]
    if run.trace.console:
        found.count(SAID, int(not shown or int(shown[-1]["step"]) != max(lines)), "the last step has no line")
    for match in shown:
        line, step = lines[int(match["step"])], match["step"]
        name = "margin_mean" if match["what"] == "margin" else "reward_mean"
        wrong = match["value"] != f"{float(line[name]):.4g}" or int(match["steps"]) != run.trace.config["loop"]["steps"]
        if match["signal"] is not None:
            wrong = wrong or f"{match['signal']}%" != f"{float(line['signal_share']):.0%}"
        found.count(SAID, int(wrong), f"step {step}: {match[0]}")


def _compare(line: Mapping[str, Any], want: Mapping[str, float], where: str, found: Measures) -> None:
    got = {name: float(value) for name, value in line.items() if name != "step"}
    apart = sorted(set(got) ^ set(want))
    found.count(NAMES, len(apart), f"{where}: {', '.join(apart)}")
    for name in set(got) & set(want):
        scale = max(1.0, abs(want[name])) if math.isfinite(want[name]) else 1.0
        found.distance(NUMBER, np.array(got[name]), np.array(want[name]), f"{where}, {name}", scale=scale)


def _offline(run: Run) -> bool:
    return run.trace.config["data"]["chosen_column"] is not None


def _names(run: Run) -> list[str]:
    """Return the names of the reward functions; those of one name are numbered."""
    if _offline(run):
        return ["chosen"]
    names: list[str] = []
    for function in run.trace.config["rewards"]["functions"]:
        name = str(function.get("function", "")).rpartition(":")[2] if function["name"] == "user" else function["name"]
        same = sum(other.partition("#")[0] == name for other in names)
        names.append(f"{name}#{same + 1}" if same else name)
    return names


def of_step(run: Run, step: Step) -> dict[str, float]:
    """Return the numbers of a step's line."""
    applied = [update.facts for update in step.updates if not update.facts["skipped"]]
    numbers: dict[str, float] = {"learning_rate": step.learning_rate}
    numbers |= {name: _mean([facts[fact] for facts in applied]) for name, fact in LOSSES.items()}
    numbers |= {"updates": len(applied), "updates_skipped": len(step.updates) - len(applied)}
    rolled = sum(len(rollout.prompts) for rollout in step.rollouts)
    kept = len(step.arrays["prompts"]) if step.arrays else 0
    numbers |= {"rollouts": len(step.rollouts), "groups_kept": kept, "groups_dropped": rolled - kept}
    return numbers | _rewards(run, step, rolled) | _rows(run, step) | _ratios(run, step)


def _mean(values: Sequence[float] | Array) -> float:
    return float(np.mean(np.asarray(values, np.float64))) if len(values) else NAN


def _std(values: Array) -> float:
    return float(np.sqrt(np.mean((values - values.mean()) ** 2))) if len(values) else NAN


def _rewards(run: Run, step: Step, rolled: int) -> dict[str, float]:
    totals = step.arrays["totals"] if step.arrays else np.zeros(0)
    scored = totals[~np.isnan(totals)]
    numbers = {"reward_mean": _mean(scored), "reward_std": _std(scored), "unscored_share": _mean(np.isnan(totals))}
    raw = step.gathered(lambda rollout: rollout.rewards) if step.arrays else np.zeros((0, len(_names(run))))
    for place, name in enumerate(_names(run)):
        values = raw[:, place][~np.isnan(raw[:, place])]
        numbers |= {f"reward_{name}_mean": _mean(values), f"reward_{name}_std": _std(values)}
    groups = totals.reshape(-1, step.group_size) if step.arrays else np.zeros((0, 1))
    flat = sum(len({value for value in group.tolist() if not math.isnan(value)}) <= 1 for group in groups)
    numbers["zero_variance_groups"] = flat
    if step.rollouts[0].group_size > 1:
        numbers["signal_share"] = (len(groups) - flat) / (rolled / len(step.rollouts))
    return numbers


def _rows(run: Run, step: Step) -> dict[str, float]:
    advantages = step.arrays["advantages"].astype(np.float64) if step.arrays else np.zeros(0)
    lengths = step.lengths.astype(np.float64) if step.arrays else np.zeros(0)
    ended = (
        [tokens[n - 1] in run.end_ids for tokens, n in zip(step.arrays["tokens"], step.lengths, strict=True)]
        if step.arrays
        else []
    )
    return {
        "advantage_mean": _mean(advantages),
        "advantage_std": _std(advantages),
        "advantage_max_abs": float(np.abs(advantages).max(initial=0.0)),
        "rows": len(lengths),
        "tokens": int(lengths.sum()),
        "length_mean": _mean(lengths),
        "length_min": float(lengths.min(initial=np.inf)),
        "length_max": float(lengths.max(initial=-np.inf)),
        "truncated_share": 1.0 - _mean(ended) if ended else NAN,
    }


def _ratios(run: Run, step: Step) -> dict[str, float]:
    """Return the distances of the policy of the last pass from the old one and from the sampler, on tokens that train."""
    lengths = run.trained(step) if step.arrays else np.zeros(0)
    if not step.updates or not lengths.sum():
        return {}
    width = step.updates[0].arrays["policy"].shape[1]
    live = np.arange(width) < lengths[:, None]
    arrays = {name: _last(step, name, width) for name in ("policy", "old", "reference", "entropy")}
    policy = arrays["policy"]
    assert policy is not None  # every update has it
    old = policy if arrays["old"] is None else arrays["old"]
    low, high = widths(run.trace.settings)
    gains = step.arrays["advantages"].astype(np.float64)
    bounds: dict[str, Any] = {"epsilon_low": low, "epsilon_high": high, "advantages": gains}
    ratio = ratio_statistics(policy, old, live, **bounds)
    clipped = ratio
    if run.trace.settings["name"] in ("gspo", "gspo-token", "luspo"):
        moved = np.where(live, policy - old, 0.0).sum(1) / np.maximum(live.sum(1), 1)
        clipped = ratio_statistics(old + moved[:, None], old, live, **bounds)
    numbers = {f"ratio_{name}": ratio[name] for name in (*RATIO, "min_sequence_ratio", "max_sequence_ratio")}
    numbers |= {f"ratio_{name}": clipped[name] for name in SHARES}
    if arrays["entropy"] is not None:
        numbers["entropy"] = float(arrays["entropy"][live].mean())
    if arrays["reference"] is not None:
        numbers["kl"] = ratio_statistics(arrays["reference"], policy, live, **{**bounds, "advantages": None})["k3"]
    if all("temperature_scaled" in rollout.arrays for rollout in step.rollouts):
        sampler = step.gathered(lambda rollout: rollout.arrays["temperature_scaled"][:, :width])
        numbers["entropy_sampled"] = -float(sampler[live].mean())
        drift = ratio_statistics(policy, sampler, live, **bounds)
        numbers |= {f"sampler_{name}": drift[name] for name in RATIO}
    return numbers | (_margins(step, policy, arrays["reference"], live) if run.trace.settings["name"] in PAIRS else {})


def _last(step: Step, name: str, width: int) -> Array | None:
    """Return values (R, T) of the last update of each row; None if updates have none."""
    made = np.zeros((len(step.lengths), width))
    for update in step.updates:
        if name not in update.arrays:
            return None
        made[update.rows] = update.arrays[name]
    return made


def widths(settings: Mapping[str, Any]) -> tuple[float, float]:
    """Return how far below and above 1 a ratio counts as clipped: the widths of the clip, else 0.2."""
    low, high = settings.get("epsilon_low"), settings.get("epsilon_high")
    if settings["name"] == "cispo":
        above = float(settings["epsilon_high"])
        return (1.0 if low is None else min(low, 1.0)), above if settings["bound"] == "relative" else max(
            above - 1.0, 0.0
        )
    low, high = 0.2 if low is None else low, 0.2 if high is None else high
    # those of GMPO bound the log-ratio
    return (1.0 - math.exp(-low), math.exp(high) - 1.0) if settings["name"] == "gmpo" else (low, high)


def _margins(step: Step, policy: Array, reference: Array | None, live: Array) -> dict[str, float]:
    moved = policy if reference is None else policy - reference
    sums = np.where(live, moved, 0.0).sum(1)
    signs = step.arrays["advantages"].astype(np.float64)
    margins = (sums * signs).reshape(-1, 2).sum(1)[np.abs(signs).reshape(-1, 2).sum(1) == 2]
    return {"margin_mean": _mean(margins), "margin_positive_share": _mean(margins > 0)} if len(margins) else {}


def _of_rewards(run: Run, rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return the numbers of an evaluation by rewards."""
    totals = np.concatenate([rollout.totals for rollout in rollouts])
    raw = np.concatenate([rollout.rewards for rollout in rollouts])
    lengths = np.concatenate([rollout.lengths for rollout in rollouts])
    ended = [bool(row[row >= 0][-1] in run.end_ids) for rollout in rollouts for row in rollout.tokens]
    groups = totals.reshape(-1, rollouts[0].group_size)
    best = [float(np.nanmax(group)) for group in groups if not np.isnan(group).all()]
    return {
        "prompts": len(groups),
        "completions": len(totals),
        "reward_mean": _mean(totals[~np.isnan(totals)]),
        "best_of_group": _mean(best),
        **{f"reward_{name}_mean": _mean(raw[:, n][~np.isnan(raw[:, n])]) for n, name in enumerate(_names(run))},
        "length_mean": _mean(lengths),
        "truncated_share": 1.0 - _mean(ended),
    }


def of_pairs(run: Run, number: int, rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return the numbers of an evaluation by margins, with the adapters after step `number`."""
    step = next(step for step in run.trace.steps if step.number == number)
    margins: list[float] = []
    for rollout in rollouts:
        ids = [rollout.ids[row // 2] for row in range(len(rollout.lengths))]
        completions = [rollout.completion(row) for row in range(len(rollout.lengths))]
        sums = [
            np.array([row.sum() for row in log_probs(model, ids, completions, run.trace.temperature)[0]])
            for model in (run.model(step.updates[-1].after), run.model({}))
        ]
        moved = sums[0] - sums[1]
        margins += (moved[0::2] - moved[1::2]).tolist()
    return {
        "prompts": len(margins),
        "margin_mean": _mean(margins),
        "margin_positive_share": _mean(np.array(margins) > 0),
    }


def _shown(run: Run, found: Measures) -> None:
    """Compare the completions that are written for people with the step's rows."""
    lines = {line["step"]: line["rows"] for line in run.trace.lines["completions"]}
    output = run.trace.config["output"]
    every = output["completions_every_steps"]
    for step in run.trace.steps:
        due = bool(every) and step.number % every == 0
        where = f"completions.jsonl, step {step.number}"
        found.count(SHOWN, int(due != (step.number in lines)), where)
        if not due or step.number not in lines or not step.arrays:
            continue
        texts = [step.rollouts[number].texts["completions"][row] if number >= 0 else "" for number, row in step.sources]
        rows = zip(texts, step.arrays["totals"].tolist(), strict=True)
        wanted = [(str(text), float(total)) for text, total in rows][: output["completions_rows"]]
        got = [(row["completion"], float(row["reward"])) for row in lines[step.number]]
        found.count(SHOWN, int(got != wanted), where)

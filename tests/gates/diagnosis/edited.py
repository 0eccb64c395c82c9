"""Samples for tests of a diagnosis: what an edited definition, or the oracle, gives for the designed inputs of a case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np

from gates.diagnosis.diagnose import diagnose
from gates.diagnosis.factors import counts
from gates.diagnosis.samples import SEED, example
from gates.diagnosis.search import Candidate, evaluate
from gates.families.loss.gates.kl_in_reward import definition as rewarded
from gates.families.loss.gates.options import expected
from gates.families.program import Edit, Inputs, Program, Sample
from gates.model import Case, Gate
from gates.registry import load
from gates.run.plan import case_seed
from gates_reference.oracle import (
    advantages,
    dynamic_sampling,
    gae,
    kl,
    logprobs,
    losses,
    packing,
    preference,
    preference_choice,
    ratio,
    sampling,
    statistics,
)

UNNAMED = frozenset(("nothing known", "ambiguous", "lower precision"))
HARD = ("151936", "wide", "tied", "temperature-zero")  # cases of the samplers that take long, or that rounding decides


def _with_entropy(*, entropy: bool = False, **given: Any) -> Any:
    found = logprobs.selective_log_softmax(**given)
    return SimpleNamespace(logprobs=found, entropy=logprobs.entropy(**given)) if entropy else found


def _drawn(*, uniforms: Any, **filters: Any) -> Any:
    filtered = sampling.filtered_logprobs(**filters)
    low, high = sampling.token_intervals(filtered)
    u = np.asarray(uniforms)[:, None]
    tokens = np.argmax((filtered > -np.inf) & (u >= low) & (u < high), axis=1)
    return SimpleNamespace(tokens=tokens, logprobs=filtered[np.arange(len(tokens)), tokens])


def _with_options(**given: Any) -> Any:
    want, chosen, loss, _ = expected(given)
    pull = np.where(chosen, -given["entropy_bonus"] / chosen.sum(), 0.0)
    return SimpleNamespace(loss=loss, gradient=want.gradient, entropy_gradient=pull)


def _rewarded(**given: Any) -> Any:
    _, of_lowered, want = rewarded(given)
    return SimpleNamespace(loss=want.loss, gradient=want.gradient, advantages=of_lowered)


def _of_winner(*, policy: Any, mask: Any, scores: Any, group_size: int, parts: Any) -> Any:
    del parts
    winners = preference_choice.best_of_n(scores, group_size)
    weights = np.zeros(mask.shape)
    weights[winners] = mask[winners] / (len(winners) * mask[winners].sum(axis=1, keepdims=True))
    return SimpleNamespace(loss=-np.sum(weights * policy.astype(np.float64)), gradient=-weights)


def _packed(**given: Any) -> Any:
    names = ("indices", "offsets", "efficiency", "starts", "sizes")
    return SimpleNamespace(**dict(zip(names, packing.pack_sequences(**given), strict=False)))


ORACLES: Mapping[str, Callable[..., Any]] = {
    "group_advantages": advantages.group_advantages,
    "normalise_then_sum": advantages.normalise_then_sum,
    "gae": gae.gae,
    "token_kl": kl.token_kl,
    "full_kl": kl.full_kl,
    "selective_log_softmax": _with_entropy,
    "selective_log_softmax_backward": logprobs.selective_log_softmax_backward,
    "policy_loss": losses.policy_loss,
    "preference_loss": preference.preference_loss,
    "kto_loss": preference.kto_loss,
    "prefer": lambda scores: SimpleNamespace(signs=preference_choice.prefer(scores)),
    "best_of_n": lambda scores, group_size: SimpleNamespace(rows=preference_choice.best_of_n(scores, group_size)),
    "winner_loss": _of_winner,
    "importance_ratio": ratio.importance_ratio,
    "importance_weights": ratio.importance_weights,
    "ratio_statistics": lambda **given: SimpleNamespace(**statistics.measured(**given).values),
    "filtered_logprobs": sampling.filtered_logprobs,
    "sample_tokens": _drawn,
    "loss_with_options": _with_options,
    "rewarded_loss": _rewarded,
    "keep_groups": dynamic_sampling.keep_groups,
    "overlong_penalty": dynamic_sampling.overlong_penalty,
    "pack_sequences": _packed,
}


@cache
def cases(program: Program) -> Mapping[str, tuple[Gate, Case]]:
    """Return the cases that ask for the definition on ordinary numbers and call the op first, by gate and name."""
    gates = [gate for gate in load().gates.values() if gate.ops[0].name == program.op and gate.level == "definition"]
    return {
        f"{gate.id}-{case.name}": (gate, case)
        for gate in gates
        for case in gate.cases
        if case.level in {None, "definition"}
        and not (
            program.op in {"filtered_logprobs", "sample_tokens"}
            and any(word in f"{gate.id}-{case.name}" for word in HARD)
        )
        and _has_inputs(program, gate, case)
    }


def _has_inputs(program: Program, gate: Gate, case: Case) -> bool:
    """Whether `example` finds inputs of the op in a case; tests of all cases begin here, so its preconditions are not asked."""
    op = gate.main
    names = {*case.make(np.random.default_rng(0)), *op.fixed}
    return op.name == program.op and set(op.inputs) - set(op.optional) <= names


def _example(program: Program, gate: Gate, case: Case) -> Inputs | None:
    return example(gate, case, case_seed(gate, case, 0), program.op)


def calls(program: Program, end: str) -> list[Inputs]:
    """Return the designed inputs of the case of this name, alone or after its gate's."""
    known = cases(program)
    (name,) = [name for name, (_, case) in known.items() if end in {case.name, name}]
    given = _example(program, *known[name])
    assert given is not None
    return list(program.inputs(given, np.random.default_rng(SEED)))


def of_oracle(
    program: Program, given: Iterable[Inputs], oracle: Callable[..., Any] | None = None, **changes: Any
) -> list[Sample]:
    """Return what the oracle, or another function, gives for these inputs when it is called with changes.

    Its result has the outputs as attributes, or is the only output.
    """
    found = []
    for inputs in given:
        result = (oracle or ORACLES[program.op])(**{**inputs, **changes})
        outputs = program.reads(inputs, vars(result)) if program.op == "pack_sequences" else {}
        names = [name for name in program.outputs if name not in program.optional or hasattr(result, name)]
        got = {name: np.asarray(outputs.get(name, getattr(result, name, result))) for name in names}
        found.append(Sample(inputs, {name: x.astype(np.float64) if x.dtype == bool else x for name, x in got.items()}))
    return found


def of_edits(program: Program, given: list[Inputs], edits: tuple[Edit, ...]) -> list[Sample]:
    """Return what a definition with edits gives, rounded to the dtype of the data."""
    chosen = Candidate(edits).choices(program.asked(given[0]))
    return [Sample(inputs, rounded(inputs, evaluate(program, inputs, chosen))) for inputs in given]


def rounded(inputs: Mapping[str, Any], found: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Return values as the data's dtype holds them, or float32 for half types, in float64."""
    dtypes = [x.dtype for x in inputs.values() if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    dtype = np.float64 if not dtypes or dtypes[0] == np.float64 else np.float32
    return {name: value.astype(dtype).astype(np.float64) for name, (value, _) in found.items()}


def same(
    program: Program, given: list[Inputs], first: tuple[Edit, ...], second: tuple[Edit, ...], factor: str = "1"
) -> bool:
    """Whether an edited definition is another one times a factor, for these inputs and others drawn anew, in float64."""
    asked = program.asked(given[0])
    for call in (*given, *program.inputs(given[0], np.random.default_rng(1))):
        inputs = in_dtype(call, "float64")  # else a constant such as G/(G − 1) is rounded to float32
        a, b = (evaluate(program, inputs, Candidate(edits).choices(asked)) for edits in (first, second))
        for name, (value, limit) in a.items():
            if value.shape != b[name][0].shape:
                return False
            certain = np.isfinite(limit) & np.isfinite(b[name][1])
            with np.errstate(invalid="ignore"):
                apart = np.abs(value - _factor(factor, inputs) * b[name][0])
            if np.any(apart[certain] > 1e-9 * np.maximum(np.abs(value[certain]), 1e-3)):
                return False
    return True


def in_dtype(inputs: Inputs, dtype: str) -> Inputs:
    """Return a call whose numbers have another dtype."""
    return {
        name: x.astype(dtype) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for name, x in inputs.items()
    }


def _factor(words: str, inputs: Inputs) -> float:
    """Return the factor of these words: a constant, a count of the call, or a quotient of two."""
    over, _, under = words.partition(" / ")
    sizes = counts(inputs)
    return float(sizes.get(over) or over) / float(sizes.get(under) or under or 1.0)


def edits_of(program: Program, given: list[Inputs]) -> dict[str, Edit]:
    """Return the edits of a call by the words that name them."""
    return {edit.sentence: edit for edit in program.edits(program.asked(given[0]))}


def other_name(program: Program, given: list[Inputs], edits: tuple[Edit, ...]) -> str:
    """Return the name of edits that are made at once if it means another function; one without a name is "nothing known"."""
    named = diagnose(program, of_edits(program, given, edits))
    if named.words in {" · ".join(edit.sentence for edit in order) for order in permutations(edits)}:
        return ""
    known = edits_of(program, given)
    words, _, size = named.words.rpartition(", times ") if named.kind == "scaled" else (named.words, "", "1")
    alike = next((parts for parts in _combined(known) if " · ".join(edit.sentence for edit in parts) == words), ())
    described = named.kind in {"as asked", "convention", "mistake", "scaled"}
    if described and same(program, given, edits, alike, size):
        return ""
    return named.kind if named.kind in UNNAMED else named.words


def _combined(known: Mapping[str, Edit]) -> Iterator[tuple[Edit, ...]]:
    """Yield each edit, then each ordered pair of edits."""
    yield from ((edit,) for edit in known.values())
    yield from permutations(known.values(), 2)


def misnamed(program: Program, given: list[Inputs], every: int = 1, first: int = 0) -> list[str]:
    """Return a line for each edit, or for every n-th, that is not named by its own words or by those of an equal one."""
    edits = edits_of(program, given)
    assert len(edits) >= 10
    chosen = list(edits.items())[first % every :: every]
    names = {sentence: other_name(program, given, (edit,)) for sentence, edit in chosen}
    return [f"{sentence}: named {name}" for sentence, name in names.items() if name]


def pairs_misnamed(program: Program, given: list[Inputs], seed: int, count: int) -> list[str]:
    """Return a line for each of some pairs of edits that has a name of something else; one without a name is no error."""
    edits, rng = list(edits_of(program, given).values()), np.random.default_rng(seed)
    drawn = [tuple(edits[i] for i in rng.choice(len(edits), 2, replace=False)) for _ in range(count)]
    pairs = [pair for pair in drawn if not pair[0].changes.keys() & pair[1].changes.keys()]
    names = [other_name(program, given, pair) for pair in pairs]
    assert sum(name not in UNNAMED for name in names) >= count // 3, "too few pairs have a name"
    return [
        f"{pair[0].sentence} · {pair[1].sentence}: named {name}"
        for pair, name in zip(pairs, names, strict=True)
        if name and name not in UNNAMED
    ]


def changed(samples: Iterable[Sample], output: str, place: Callable[[Inputs], Any]) -> list[Sample]:
    """Return samples whose output no edit gives in a place; a gradient keeps its zeros."""
    found = []
    for sample in samples:
        value = sample.got[output]
        factor = 1.3 + 0.2 * np.sin(np.arange(value.size)).reshape(value.shape)
        moved = factor * value + (0.0 if output == "gradient" else 0.37)
        found.append(Sample(sample.inputs, {**sample.got, output: np.where(place(sample.inputs), moved, value)}))
    return found

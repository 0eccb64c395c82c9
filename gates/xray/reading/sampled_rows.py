"""Which tokens of a sampled row train: its first ones only, or tokens that the sampler was given and did not draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gates.xray.reading import drawn
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Kind, Reading
from gates.xray.reading.trains import STANDARD, state, weighty
from gates.xray.reading.words import rows, some

MANY = 2  # rows that a stop string may have cut: they have a token in common there
FIND = "let a row without an end token count to its last one: an argmax over no match is 0"
MASK = "mask what no sampler drew, as the answers of tools and the templates around them"


@dataclass(frozen=True, slots=True)
class Part:
    """The tokens of a row that train, and all that were drawn for it."""

    trained: tuple[int, ...]
    sampled: tuple[int, ...]

    @property
    def left(self) -> tuple[int, ...]:
        """The tokens that do not train."""
        return self.sampled[len(self.trained) :]


def readings(context: Context) -> list[Reading]:
    """Return which tokens of sampled rows train."""
    return [reading for reading in (_cut(context), _given(context)) if reading is not None]


def _given(context: Context) -> Reading | None:
    places = drawn.given(context)
    heavy = set(weighty(context))
    trained = sorted(place for place in places if place[0] in heavy and state(context, *place) == "trains")
    if not trained:
        if not places:
            return None
        return Reading(
            "given tokens", "read", "tokens between sampled ones that no sampler drew do not train", STANDARD
        )
    members = sorted({index for index, _ in trained})
    sentence = (
        f"tokens that the sampler did not draw train: {len(trained)} inside of completions, in {rows(members)}; they were in the "
        "prompt of a later call, as the answer of a tool or a template is"
    )
    because = "a call of the sampler was given them behind tokens that it drew before"
    return Reading("given tokens", "attention", sentence, because, MASK, {"at": [list(place) for place in trained]})


def _cut(context: Context) -> Reading | None:
    """Return the rows of which only the first tokens train."""
    sampled = drawn.before(context)
    parts = {index: part for index in weighty(context) if (part := _part(context, index, sampled)) is not None}
    cut = {index: part for index, part in parts.items() if part.left}
    if not cut:
        return None
    whole = [len(part.trained) for index, part in parts.items() if index not in cut]
    known, why = _meant(context, cut, max(whole, default=0))
    sentence = f"{_counted(cut)}: the tokens behind do not train{why}"
    because = "the sampler returned more tokens for their prompts, whose coefficients are 0 or which the mask hides"
    numbers = {"rows": list(cut), "trained": [len(p.trained) for p in cut.values()]}
    numbers["sampled"] = [len(part.sampled) for part in cut.values()]
    return Reading("cut short", known, sentence, because, FIND if known == "attention" else "", numbers)


def _counted(cut: Mapping[int, Part]) -> str:
    counts = {(len(part.trained), len(part.sampled)) for part in cut.values()}
    name = f"{rows(list(cut))} {'trains' if len(cut) == 1 else 'train'}"
    if len(counts) > 1:
        pairs = [f"{first} of {count}" for first, count in sorted(counts)]
        return f"{name} the first tokens alone of those that were sampled, {some(pairs)}"
    first, count = counts.pop()
    return (
        f"{name} {'the first token' if first == 1 else f'the first {first} tokens'} alone of {count} that were sampled"
    )


def _meant(context: Context, cut: Mapping[int, Part], longest: int) -> tuple[Kind, str]:
    """Return whether the cut needs attention, and what it looks like: a limit and stop strings may be meant."""
    lengths = {len(part.trained) for part in cut.values()}
    if len(lengths) == 1 and longest <= min(lengths):
        return "read", ", as where a limit on length cuts"
    if len(cut) >= MANY and 1 in (len({p.trained[-1] for p in cut.values()}), len({p.left[0] for p in cut.values()})):
        return "read", ", as where a stop string cuts"
    if len(cut) < MANY and lengths != {1}:
        return "read", ""
    ends = set(context.step.update.document.special.eos)
    sampled = drawn.before(context)
    endless = {
        index
        for index in weighty(context)
        if (part := _part(context, index, sampled)) is not None and ends and part.sampled[-1] not in ends
    }
    return "attention", ", in all rows that no closing token ends" if endless == set(cut) else ""


def _part(context: Context, index: int, sampled: list[drawn.Drawn]) -> Part | None:
    """Return which first tokens of a row train; None where that does not show, or where no sampled row has them."""
    row = context.step.rows[index]
    if row.begins != "sampler" or row.begin is None:
        return None
    parts = [_compared(context, index, row.begin, completion) for completion in drawn.completions(sampled, row)]
    known = [part for part in parts if part is not None]
    shown = row.row.ids[row.begin :]  # the hidden ones too
    return min(
        known,
        key=lambda part: (bool(part.left), part.sampled != shown[: len(part.sampled)], len(part.left)),
        default=None,
    )


def _compared(context: Context, index: int, begin: int, completion: tuple[int, ...]) -> Part | None:
    """Return which first tokens of a sampled completion a row trains; None where it trains others, or further ones."""
    row = context.step.rows[index]
    ends = {*context.step.update.document.special.eos}
    states = [state(context, index, begin + k) for k in range(len(row.row.ids) - begin)]
    used = [k for k, seen in enumerate(states) if seen in {"trains", "unknown"}]
    count = used[-1] + 1 if used and "trains" in states else 0
    if not count or count > len(completion) or row.row.ids[begin : begin + count] != completion[:count]:
        return None
    missing = [seen for seen in states[:count] if seen not in {"trains", "unknown"}]
    closing = count == len(completion) - 1 and completion[-1] in ends
    return None if missing else Part(completion[:count], completion if not closing else completion[:count])

"""Whether preferences push the token that ends a row one way only: where the rows of one side alone have one."""

from __future__ import annotations

from gates.xray.reading import objective
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.trains import STANDARD, state

LEAST = 2  # rows of each side
DOWN = "so the model unlearns to end"
UP = "so the model learns to end by that alone"
REMEDY = "let all rows end with it, but for those that are cut off"


def readings(context: Context) -> list[Reading]:
    """Return that only the rows of one side have a closing token."""
    kinds = objective.readings(context)
    if not kinds or kinds[0].numbers["kind"] not in {"preference", "unpaired"} or objective.sampled(context):
        return []
    sides = {"down": kinds[0].numbers["down"], "up": kinds[0].numbers["up"]}
    step = context.step
    if not step.update.document.special.eos or kinds[0].numbers["unknown"] or min(map(len, sides.values())) < LEAST:
        return []
    ended = {index for index, row in enumerate(step.rows) if row.closing is not None}
    for side, other, effect in (("down", "up", DOWN), ("up", "down", UP)):
        whole, lacking = sides[side], sides[other]
        if ended != set(whole) or not all(state(context, i, step.rows[i].closing or 0) == "trains" for i in whole):
            continue
        sentence = (
            f"only the rows that are pushed {side} have a closing token ({len(whole)} of {len(whole)}, of those that are pushed "
            f"{other} 0 of {len(lacking)})"
        )
        numbers = {"ended": whole, "without": lacking}
        if _cut_off(context, lacking):
            sentence += ": the others are of one length, the largest, as where a limit cuts them off"
            return [Reading("endings", "read", sentence, STANDARD, numbers=numbers)]
        return [
            Reading(
                "endings", "attention", f"{sentence}: it is only pushed {side}, {effect}", STANDARD, REMEDY, numbers
            )
        ]
    return []


def _cut_off(context: Context, rows: list[int]) -> bool:
    """Return whether rows may be cut off: all are as long as the longest row of the update, the prompts included or not."""
    step = context.step
    whole = [int(row.row.attended.sum()) for row in step.rows]
    completions = [len(row.completion) for row in step.rows]
    return any({lengths[index] for index in rows} == {max(lengths)} for lengths in (whole, completions))

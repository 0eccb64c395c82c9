"""Whether rows hold several texts, each behind the closing token of another, and whether the later ones attend to the first."""

from __future__ import annotations

from gates.xray.documents import Texts
from gates.xray.reading import objective
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import number, rows

SAME = {"float32": 1e-4}  # nats that another text before changes by rounding alone, ten times what two passes differ by
COARSE = 3e-2  # the same in half precision
BECAUSE = "closing tokens stand inside; the pass was repeated with other tokens in the first text"


def readings(context: Context) -> list[Reading]:
    """Return what rows with several texts show; none where a sampler drew them, in several turns."""
    held = {index: row.row.texts for index, row in enumerate(context.step.rows) if row.row.texts is not None}
    known = {index: text for index, text in held.items() if text is not None and text.apart is not None}
    if not known or objective.sampled(context):
        return []
    document = context.step.update.document
    room = COARSE if document.autocast else SAME.get(document.dtype, COARSE)
    apart = max(text.apart or 0.0 for text in known.values())
    head = f"{rows(list(known))} {'holds' if len(known) == 1 else 'hold'} {_counted(list(known.values()))}"
    numbers = {"rows": list(known), "starts": [list(text.starts) for text in known.values()], "apart": apart}
    if apart <= room:
        sentence = f"{head}; the later ones do not attend to the first: attention has a boundary between them"
        return [Reading("several texts", "read", sentence, BECAUSE, numbers=numbers)]
    positions = {text.positions for text in known.values()}
    running = {"run on": ", and positions run on", "begin anew": "; positions begin anew"}
    sentence = (
        f"{head}; the later ones attend to the first (another first one changes their log-probs by up to {number(apart)} nats): "
        f"attention has no boundary between them{running.get(positions.pop() or '', '') if len(positions) == 1 else ''}; "
        "right for the turns of a conversation, while packed texts train as the continuation of those before"
    )
    return [Reading("several texts", "read", sentence, BECAUSE, numbers=numbers)]


def _counted(texts: list[Texts]) -> str:
    counts = sorted({len(text.starts) + 1 for text in texts})
    span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{span} texts, one behind the closing token of the other"

"""Ops of keyed random numbers."""

from __future__ import annotations

from dataclasses import replace

from gates.model import Op, Output
from gates_reference.oracle import sampling

PHILOX = Op(
    name="philox4x32_10",
    outputs={"words": Output(kind="i")},
    inputs={"counter": "(…, 4) uint32", "key": "(…, 2) uint32; leading axes broadcast"},
    source="Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011; vectors of Random123",
    oracle=sampling.philox4x32_10,
)
DRAW_INPUTS = {
    "seed": "in [0, 2⁶⁴): the key, low word first",
    "round_": "integers in [0, 2³²), the counter's last word; these four broadcast",
    "prompt": "the prompt's stable data index",
    "sample": "the completion's index within its prompt",
    "token": "the token's index within its completion, the counter's first word",
}
UNIFORMS = Op(
    name="uniforms",
    outputs={"uniforms": Output(kind="f")},
    inputs=DRAW_INPUTS,
    source='docs/definitions.md, "Draws do not depend on the batch"',
    formula="counter = (t, j, i, round), key = seed: words 0 (high) and 1 give 53 bits in [0, 1)",
    oracle=sampling.uniforms,
)
XTC_COINS = replace(
    UNIFORMS,
    name="xtc_coins",
    formula="counter = (t, j, i, round), key = seed: words 2 (high) and 3 give 53 bits in [0, 1)",
    oracle=sampling.xtc_coins,
)

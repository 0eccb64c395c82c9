"""The gates of packing on subjects that break ties otherwise, and on broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken import broken, verdicts

DECLARED = {"pack_sequences": {"order": ["as-placed"]}}
BINS = "bins = np.split(np.arange(found['indices'].size), found['offsets'][1:-1])"
MOVED = "found.update({k: found[k][moved] for k in ('indices', 'starts', 'sizes') if k in found})"
FREE = {  # what the definition leaves open
    "bins-backwards": f"""{BINS}
    bins = bins[::-1]
    moved = np.concatenate([np.zeros(0, int), *bins])
    {MOVED}
    found["offsets"] = np.cumsum([0, *map(len, bins)]) if moved.size else found["offsets"]""",
    "shortest-first-in-a-bin": f"""{BINS}
    moved = np.concatenate([np.zeros(0, int), *[one[::-1] for one in bins]])
    {MOVED}""",
}
TIES = """size = np.minimum(inputs["lengths"], inputs["max_length"])
    if inputs["over_long"] != "split":
        for length in np.unique(size):
            places = np.flatnonzero(size[found["indices"]] == length)
            found["indices"][places] = found["indices"][places][::-1]"""
GATES = ("packing.bins-hold-every-sequence-once", "packing.matches-definition", "packing.pieces.match-definition")


@pytest.mark.parametrize("change", [*FREE.values(), TIES], ids=[*FREE, "others-of-one-length"])
@pytest.mark.parametrize("gate", GATES)
def test_ties_are_free(tmp_path: Path, gate: str, change: str) -> None:
    """The same bins in another order, and other sequences of one length, are correct."""
    found = verdicts(tmp_path, broken("pack_sequences", change), gate)
    assert {(verdict.status, verdict.reason) for verdict in found} == {("correct", "")}


@pytest.mark.parametrize("change", [*FREE.values(), TIES], ids=[*FREE, "others-of-one-length"])
def test_who_declares_an_order_is_held_to_it(tmp_path: Path, change: str) -> None:
    """Undeclared the rule is not asked; declared, another order is wrong."""
    rule = "packing.order.as-placed"
    assert {v.status for v in verdicts(tmp_path, broken("pack_sequences", change), rule)} == {"unsupported"}
    held = broken("pack_sequences", change, conventions=DECLARED)
    assert "wrong" in {v.status for v in verdicts(tmp_path, held, rule, "error")}


@pytest.mark.parametrize(
    ("gate", "damage", "words"),
    [
        ("matches-definition", 'found["efficiency"] = np.nan', "efficiency"),
        ("matches-definition", 'found["efficiency"] *= 1 + 1e-5', "efficiency"),
        ("matches-definition", 'found["indices"] = found["indices"][::-1]', "other lengths"),
        ("matches-definition", 'found["indices"] = found["indices"] * 0', "lost or repeated"),
        ("matches-definition", 'found["offsets"] = np.arange(found["indices"].size + 1)', "other lengths"),
        ("bins-hold-every-sequence-once", 'found["offsets"] = found["offsets"][:-1]', "lost or repeated"),
        ("pieces.match-definition", 'found["offsets"] = found["offsets"][:-1]', "other pieces"),
        ("pieces.match-definition", 'found["offsets"] = np.append(found["offsets"], 0)', "other pieces"),
        ("pieces.match-definition", 'found["sizes"] = found["sizes"] - 1', "tokens lost"),
        ("pieces.match-definition", 'found["starts"] = found["starts"][:-1]', "tokens lost"),
        ("truncates-only-by-name", 'found["indices"] = found["indices"][:3]', "refusing all"),
    ],
)
def test_other_bins_are_wrong(tmp_path: Path, gate: str, damage: str, words: str) -> None:
    """Other contents, broken offsets and lost tokens are wrong, whatever was declared."""
    found = verdicts(tmp_path, broken("pack_sequences", damage), f"packing.{gate}")
    failed = [verdict for verdict in found if verdict.status == "wrong"]
    assert failed, {(verdict.status, verdict.reason) for verdict in found}
    assert {verdict.status for verdict in found} <= {"wrong", "fragile", "correct"}
    assert any(words in f"{verdict.reason} {verdict.evidence}" for verdict in failed), {v.reason for v in failed}


@pytest.mark.parametrize(
    ("damage", "status"),
    [('found["efficiency"] = float(np.float32(found["efficiency"]))', "imprecise"), ("pass", "correct")],
)
def test_a_float32_quotient_is_imprecise(tmp_path: Path, damage: str, status: str) -> None:
    """As whole tensors of torch divide."""
    found = verdicts(tmp_path, broken("pack_sequences", damage), "packing.matches-definition", "uneven")
    assert {verdict.status for verdict in found} == {status}

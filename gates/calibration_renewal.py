"""Limits made anew from a calibration (the noise) and a proof (the smallest effect of a mutant)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gates.calibration_limits import Entry, Place, limit_of
from gates.model import ConfigurationError, Gate, Recorded
from gates.results.jsonl import Results, read
from gates.results.records import ShareRecord

Claim = tuple[str, str, str]  # gate, quantity, case


def proofs(folder: Path) -> list[Results]:
    """Return the recorded proofs of a folder, the newest first."""
    return [read(path) for path in sorted(folder.glob("prove-*.jsonl"), reverse=True)]


def entries(gates: Iterable[Gate], calibration: Results, proved: Sequence[Results]) -> Iterator[Entry]:
    """Yield an entry for each recorded limit of these gates, in each case and place that was judged.

    A gate that is new has no proof yet, for its truth must be green before: its entries have no effect, which is a defect
    until the limits are written once more after `gates prove`.

    Raises:
        ConfigurationError: a correct subject gave what is no number or not finite: no limit is above that.
    """
    places = {record.subject: Place.of(record.versions) for record in calibration.subjects}
    for gate in gates:
        for quantity, bound in gate.bounds.items():
            if not isinstance(bound.limit, Recorded):
                continue
            proof = _proof_of(gate, quantity, proved)
            for (case, place), worst, seeds in _noise(gate.id, quantity, calibration, places):
                if not math.isfinite(worst.observed):
                    raise ConfigurationError(
                        f"{gate.id}: {quantity} of a correct subject is {worst.observed:g} in {case} on {place} at seed "
                        f"{worst.seed}, and no limit is made of that: mend the subject or the gate, and calibrate it again"
                    )
                effect, mutant = _effect((gate.id, quantity, case), worst.observed, proof)
                yield Entry(
                    gate=gate.id,
                    quantity=quantity,
                    case=case,
                    backend=place.backend,
                    blas=place.blas,
                    limit=limit_of(worst.observed, effect, bound.limit.times),
                    noise_floor=worst.observed,
                    noise_seed=worst.seed,
                    smallest_effect=effect,
                    mutant=mutant,
                    seeds=seeds,
                    commit=calibration.header.commit,
                    date=calibration.header.started[:10],
                    source=", ".join(run.path.name for run in (calibration, proof) if run is not None),
                    history=[],
                )


def _noise(
    gate: str, quantity: str, calibration: Results, places: Mapping[str, Place]
) -> Iterator[tuple[tuple[str, Place], ShareRecord, int]]:
    """Yield, for each case and place, the largest value of a correct subject and the number of seeds behind it."""
    worst: dict[tuple[str, Place], ShareRecord] = {}
    seeds: dict[tuple[str, Place], set[int]] = {}
    for block in calibration.blocks:
        if block.gate != gate:
            continue
        for share in block.shares:
            if share.quantity == quantity:
                cell = (block.case, places[block.subject])
                if cell not in worst or _size(share) > _size(worst[cell]):
                    worst[cell] = share
                seeds.setdefault(cell, set()).update(range(block.first_seed, block.first_seed + block.seeds))
    for cell in sorted(worst, key=str):
        yield cell, worst[cell], len(seeds[cell])


def _size(share: ShareRecord) -> float:
    """Return what is compared: a NaN, which every comparison would pass over, is the largest of all."""
    return math.inf if math.isnan(share.observed) else share.observed


def _effect(claim: Claim, noise: float, proof: Results | None) -> tuple[float | None, str]:
    """Return the least value above the noise that a mutant gave which the gate caught in that case, and its name.

    A mutant that leaves this quantity at the noise is shown by another claim of the gate, and says nothing of this one.
    """
    gate, quantity, case = claim
    if proof is None:
        return None, ""
    found = [
        (item.observed, verdict.mutant)
        for verdict in proof.verdicts
        if verdict.mutant and verdict.gate == gate and verdict.case == case and verdict.status == "fail"
        for item in verdict.evidence
        if item.quantity == quantity and item.observed > noise
    ]
    return min(found, default=(None, ""))


def _proof_of(gate: Gate, quantity: str, proved: Sequence[Results]) -> Results | None:
    for proof in proved:
        for verdict in proof.verdicts:
            if verdict.mutant and verdict.gate == gate.id and any(e.quantity == quantity for e in verdict.evidence):
                return proof
    return None

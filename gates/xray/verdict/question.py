"""An update with its note, ready to be compared with definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gates.xray.verdict.definitions import Definition, Facts, Settings, lacks_length
from gates.xray.verdict.inputs import Parts
from gates.xray.verdict.notes import Note
from gates.xray.verdict.prediction import Predictor
from gates.xray.verdict.rewards import Advantages

LOSS = "policy_loss"
MOST = 8  # conventions of advantages, libraries' first, with which a KL or a mistake is looked for


@dataclass(frozen=True)
class Question:
    """An update with its note.

    Attributes:
        quantity: `policy_loss`, with the algorithm if one is noted.
        settings: as noted.
        note: with the rows.
        parts: the slots of whole rows by what they are.
        whole: compares on the slots of whole rows.
        predictor: compares on the slots of completions.
        rounded: whether the script computes in half precision.
    """

    quantity: str
    settings: Settings
    note: Note
    parts: Parts
    whole: Predictor
    predictor: Predictor
    rounded: bool

    @property
    def facts(self) -> Facts:
        """What else the recording says."""
        return self.predictor.facts

    @property
    def named(self) -> bool:
        """Whether the note names an algorithm."""
        return "algorithm" in self.settings

    def fitting(self, settings: Sequence[Settings], advantages: Sequence[Advantages]) -> list[tuple[Definition, float]]:
        """Return the definitions that give the coefficients, with their errors.

        Those with a constant that is read off the coefficients, a divisor or a KL, are tried where none without fits.
        """
        free = [each for each in settings if lacks_length(each)]
        known = [each for each in settings if not lacks_length(each)]
        for chosen, penalties in ((known, False), (free, False), (settings, True)):
            fits: list[tuple[Definition, float]] = []
            for each in chosen:
                tried = advantages[:MOST] if penalties else advantages
                for values in tried if penalties or lacks_length(each) else self.predictor.near(each, tried):
                    fitted = self.predictor.fitted(Definition(each, values), penalties=penalties)
                    fits += [(one, misfit) for one in fitted if (misfit := self.predictor.misfit(one)) <= 1.0]
            if fits:
                return fits
        return []

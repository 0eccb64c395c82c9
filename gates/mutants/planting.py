"""Short forms for the two hosts whose seams carry most mutants."""

from __future__ import annotations

from gates.model import Mutant
from gates.registry import REGISTRY

PATCHES = "gates.mutants.patches"
PLAIN = "gates.mutants.patches.plain"
TRAINER = "gates.mutants.patches.trainer"


def in_numpy(  # noqa: PLR0913  one keyword for each thing that the catalogue says of a mistake
    name: str,
    seam: str,
    patch: str,
    *,
    mistake: str,
    caught_by: tuple[str, ...],
    source: str = "",
    arises: str = "",
    theme: str = "",
    symptom: str = "",
) -> None:
    """Register a mistake in the NumPy subject; `seam` and `patch` may name one of its modules: "numpy_loss:gate"."""
    target = f"gates.subjects.{seam}" if ":" in seam else f"gates.subjects.numpy:{seam}"
    where = f"{PATCHES}.{patch}" if ":" in patch else f"{PLAIN}:{patch}"
    REGISTRY.add_mutant(Mutant(name, mistake, "numpy", target, where, caught_by, source, arises, theme, symptom))


def in_trainer(  # noqa: PLR0913  one keyword for each thing that the catalogue says of a mistake
    name: str,
    seam: str,
    patch: str,
    *,
    mistake: str,
    caught_by: tuple[str, ...],
    source: str = "",
    arises: str = "",
    theme: str = "",
    symptom: str = "",
) -> None:
    """Register a mistake in the reference trainer; `seam` is relative to `reference.trainer`, `patch` may name a file."""
    target = f"reference.trainer.{seam}"
    where = f"{PATCHES}.{patch}" if ":" in patch else f"{TRAINER}:{patch}"
    REGISTRY.add_mutant(Mutant(name, mistake, "reference", target, where, caught_by, source, arises, theme, symptom))


def in_family(  # noqa: PLR0913  one keyword for each thing that the catalogue says of a mistake
    family: str,
    name: str,
    seam: str,
    patch: str,
    *,
    mistake: str,
    caught_by: tuple[str, ...],
    source: str = "",
    arises: str = "",
    theme: str = "",
    symptom: str = "",
) -> None:
    """Register a mistake in a family's own file of the NumPy subject, with its patch in the file of the same name."""
    target, made = f"gates.subjects.numpy_{family}:{seam}", f"gates.mutants.patches.{family}:{patch}"
    REGISTRY.add_mutant(Mutant(name, mistake, "numpy", target, made, caught_by, source, arises, theme, symptom))

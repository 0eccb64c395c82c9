"""Register mutations of their host subjects: the NumPy baseline, the MLX trainer and rlkernels."""

from __future__ import annotations

from functools import partial

from gates.model import Level, Mutant
from gates.registry import REGISTRY

HOSTS = {
    "numpy": "gates.subjects.numpy_baseline",
    "reference": "gates_reference.trainer",
    "rlkernels": "gates.subjects",
}


def mutant(  # noqa: PLR0913  one keyword for each fact in the catalogue of mutants
    host: str,
    name: str,
    target: str,
    patch: str,
    *,
    mistake: str,
    caught_by: tuple[str, ...],
    source: str = "",
    arises: str = "",
    theme: str = "",
    symptom: str = "",
    at: Level | None = None,
    cases: tuple[str, ...] = (),
) -> None:
    """Register a mutation of a host subject.

    `target` is the replaced function, "module:qualname" below the host's package in HOSTS. `patch` is the function that
    makes its replacement, "module:function" below `gates.families`. See `gates.model.Mutant` for the other fields.
    """
    target, patch = f"{HOSTS[host]}.{target}", f"gates.families.{patch}"
    REGISTRY.add_mutant(
        Mutant(name, mistake, host, target, patch, caught_by, source, arises, theme, symptom, at, cases)
    )


in_numpy = partial(mutant, "numpy")
in_trainer = partial(mutant, "reference")
in_kernels = partial(mutant, "rlkernels")

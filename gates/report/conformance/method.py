"""The screen of the conformance page about method, limits, bias, citing and objecting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gates.report.conformance.words import BIAS, CLAIMED
from gates.results.conformance_records import ConformanceResults


def lines(libraries: Sequence[ConformanceResults]) -> Iterator[str]:
    """Yield the sections."""
    definitions = ", ".join(sorted({library.header.definitions for library in libraries}))
    machines = ", ".join(sorted({library.header.machine.cpu for library in libraries}))
    systems = ", ".join(sorted({library.header.machine.system.partition("-")[0] for library in libraries}))
    days = sorted(library.header.started[:10] for library in libraries)
    yield "## Method"
    yield ""
    yield (
        "- **How a cell comes about.** An adapter calls the library's documented functions, and its trainers with a tiny model, "
        "in the library's own environment, and does nothing that the library does not. Its results are compared with definitions "
        "in float64, written token by token from the papers. Two updates of a trainer are recorded where the optimizer receives "
        "the gradient, and each token's coefficient is compared ([X-ray](../docs/xray.md))."
    )
    yield (
        "- **Limits.** A value is wrong beyond what a careful program in the same dtype can be off by, and then only if it is off "
        "by more than a ten-thousandth of an ordinary value. A choice that a library documents is a composition of its own, and "
        "is judged as that. Models are tiny and random, steps have a dozen rows; no score of a trained model is compared."
    )
    yield (
        f"- **Bias.** {BIAS} We wrote ourselves: the definitions, the cases, the adapters, the programs of findings, and "
        "subjects of our own, which are not on this page. Libraries were chosen for running on a CPU. Some have a trainer judged, some only "
        "functions, and more cases find more: compare cells, not sums."
    )
    yield (
        f"- **What counts for whom.** {CLAIMED} It says in which use it holds: a default run, a documented option, direct calls. Only "
        "default runs make a cell worse; the others stand beside its grade. The same departure has the same class in every library."
    )
    yield (
        "- **Refuted.** Findings are drawn by the hash of a commit, and readers who had not written them try to refute each from the "
        "library's sources, its documentation and the papers. How many of which draw fell is in [draws.toml](conformance/draws.toml)."
    )
    yield (
        f"- **Where.** Definitions {definitions} ([definitions.md](../docs/definitions.md)); {days[0]} to {days[-1]}; "
        f"{machines}, {systems}, two cores, no GPU. MLX ran on Linux on the CPU: on a Mac its kernels are others, so the last "
        "digits may differ, and the formulas do not. Kernels of CUDA are not judged. The page of a library names its versions."
    )
    yield (
        "- **Again.** `gates peers check NAME` judges a library, `gates peers repro ID` runs the program of a finding in the "
        "library's environment, without Gates. Every number is in [conformance/](conformance/)."
    )
    yield ""
    yield "## Citing and objecting"
    yield ""
    yield (
        "Cite a cell by library, version and row, and this page by [CITATION.cff](../CITATION.cff), with the commit. Who finds a "
        "cell unfair opens an [objection](../.github/ISSUE_TEMPLATE/objection.yml) with a counterexample: a call and what it "
        "should return, or the line of a paper or documentation that we misread. A finding that does not stand is removed, and "
        "the changelog says so. Maintainers are told before a finding about their library is announced; the letters are in "
        "[conformance/letters/](conformance/letters/)."
    )
    yield ""

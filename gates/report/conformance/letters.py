"""results/conformance/letters/NAME.md: what a library's maintainers should know, ready to send before it is announced."""

from __future__ import annotations

from collections.abc import Iterator

from gates.report.conformance.library import by_use, prose
from gates.report.conformance.words import USES
from gates.results.conformance_records import ConformanceResults, FindingRecord


def told(library: ConformanceResults) -> list[FindingRecord]:
    """Return the findings that maintainers are told of: bugs, and rare input of ordinary runs that ends in NaN or worse."""
    bugs = [finding for finding in library.findings if finding.kind == "bug"]
    rare = [f for f in library.findings if f.kind == "numeric" and f.grade == "fragile" and f.use != "direct"]
    return [finding for finding in (*by_use(bugs), *by_use(rare)) if finding.reproduced]


def render(library: ConformanceResults) -> str:
    """Return the letter as markdown; it says so where there is nothing to tell."""
    return "\n".join(_lines(library, told(library))) + "\n"


def _lines(library: ConformanceResults, findings: list[FindingRecord]) -> Iterator[str]:
    header = library.header
    yield f"# To the maintainers of {header.peer}"
    yield ""
    if not findings:
        yield f"Nothing to tell: no bug was found in {header.peer} {header.version}, and no ordinary run that ends in NaN."
        return
    one = len(findings) == 1
    yield "Hello,"
    yield ""
    yield (
        f"we compared {header.peer} {header.version} with definitions written from the papers, as we do with other libraries, "
        f"and would like you to see {'one thing' if one else f'{len(findings)} things'} before we announce "
        f"{'it' if one else 'them'}. {'It' if one else 'Each'} comes with a program that needs your package alone and asserts the "
        "difference. If we misread your code, your documentation or a paper, please say so: we then remove the finding. If "
        f"{'it is' if one else 'some are'} meant, a sentence in the documentation is all that we would ask for."
    )
    yield ""
    yield (
        "What your library does well, the rest of what was found, and how we compare stand in our report: "
        f"results/conformance/{header.peer}.md and results/CONFORMANCE.md. Thank you for your work."
    )
    for number, finding in enumerate(findings, 1):
        yield ""
        yield f"## {number}. {finding.id.removeprefix(f'{header.peer}-').replace('-', ' ')}"
        yield ""
        yield prose(finding)
        yield ""
        use = f", {USES[finding.use]}" if finding.use else ""
        yield f"Where: `{finding.where}`{use}. Measured: {finding.number}."
        yield ""
        yield "```python"
        yield finding.repro.strip()
        yield "```"

"""Write every page that is rendered from code or from recorded results, and name those that changed.

.venv/bin/python tools/generate.py    # as `make generate` does
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import model_families  # noqa: E402 - after the path
import xray_proof  # noqa: E402

from gates.config.settings import settings_schema  # noqa: E402
from gates.registry import load  # noqa: E402
from gates.report import conformance  # noqa: E402
from gates.report.catalogue import page  # noqa: E402
from gates.report.files import pictures_beside, render_files  # noqa: E402
from gates.report.grades import Grades  # noqa: E402
from gates.report.markdown import subjects_table  # noqa: E402
from gates.report.scope import render as scope_list  # noqa: E402
from gates.report.speed_summary import speed_summary  # noqa: E402
from gates.results.atomic_write import write_whole  # noqa: E402
from gates.results.conformance_records import ConformanceResults, read_conformance  # noqa: E402
from gates.results.escape import visible  # noqa: E402
from gates.results.jsonl import read  # noqa: E402
from gates.results.records import schema  # noqa: E402
from gates.results.speed_file import read_speed  # noqa: E402
from gates.results.speed_records import speed_schema  # noqa: E402

RESULTS = ROOT / "results"
CONFORMANCE = sorted((RESULTS / "conformance").glob("*.jsonl"))
SPEEDS = sorted((RESULTS / "bench").glob("*.jsonl"))


def _document(pattern: str) -> str:
    """Return the report over the recorded files of one folder."""
    return "".join(render_files(sorted(RESULTS.glob(pattern)), "md", None))


def _libraries() -> list[ConformanceResults]:
    return [read_conformance(file) for file in CONFORMANCE]


def _library(name: str) -> str:
    """Return the page of one library's findings."""
    libraries = _libraries()
    return visible(conformance.render_library(next(one for one in libraries if one.header.peer == name), libraries))


def _picture(name: str) -> str:
    return pictures_beside(SPEEDS, "md", RESULTS / "SPEED.md")[RESULTS / name]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _subjects() -> str:
    """Return how many ops of each subject have each grade, without the variants of a subject."""
    runs = [read(path) for path in sorted((RESULTS / "gates").glob("check-*.jsonl*"))]
    return "\n".join(subjects_table(Grades.of(v for run in runs for v in run.verdicts if "@" not in v.subject)))


PAGES: Mapping[str, Callable[[], str]] = {
    "docs/mutants.md": lambda: page(load().mutants.values()),
    "results/schema.json": lambda: _json(schema()),
    "results/speed-schema.json": lambda: _json(speed_schema()),
    "results/settings-schema.json": lambda: _json(settings_schema()),
    "results/REPORT.md": lambda: _document("gates/*.jsonl*"),
    "results/CONFORMANCE.md": lambda: visible(conformance.render(_libraries(), "conformance")),
    **{f"results/conformance/{file.stem}.md": partial(_library, file.stem) for file in CONFORMANCE},
    "results/conformance/SCOPE.md": lambda: scope_list(_libraries()),
    "results/SPEED.md": lambda: _document("bench/*.jsonl"),
    "results/speed-advantages.svg": lambda: _picture("speed-advantages.svg"),
    "results/speed-kl.svg": lambda: _picture("speed-kl.svg"),
    "results/speed-vocabulary.svg": lambda: _picture("speed-vocabulary.svg"),
}
TABLES: Mapping[str, tuple[str, Callable[[], str]]] = {  # parts of a page, between two comments that name them
    "README.md": ("table", _subjects),
    "docs/benchmarks.md": ("speed", lambda: speed_summary([read_speed(path) for path in SPEEDS])),
    "docs/xray.md": ("trainers", xray_proof.table),
    "docs/training.md": ("families", lambda: model_families.table(model_families.recorded())),
}
FILES = (*PAGES, *TABLES)


def generated(name: str) -> str:
    """Return the text that a file should have."""
    if name in PAGES:
        return PAGES[name]()
    part, table = TABLES[name]
    before, start, end, after = re.split(
        rf"(<!-- {part}:.*-->\n)[\s\S]*?(<!-- end of {part} -->)", (ROOT / name).read_text(encoding="utf-8")
    )
    return f"{before}{start}\n{table().strip()}\n\n{end}{after}"


def main() -> None:
    """Write each file whose text is no longer what it should be."""
    for name in FILES:
        file, text = ROOT / name, generated(name)
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            write_whole(file, text)
            print(f"wrote {name}")


if __name__ == "__main__":
    main()

"""The grades have one order, that of `gates.model.GRADES`; every list of statuses follows it."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from gates import model
from gates.config.format_names import FailOn
from gates.pytest import plugin
from gates.recorded import finding
from gates.report import grades, plain, statuses
from gates.report.page_data import Page

PAGE = Path(plain.__file__).parent / "page"
GRADE = r'"(?:wrong|differs|raises|fragile|imprecise)"'
SHOWN = {*model.STATUSES, "departs"}


def test_types_and_options_name_the_grades() -> None:
    """The words of `--fail-on`, of pytest's option and of recorded steps are those that cost something, worst first."""
    assert get_args(model.Grade) == model.GRADES
    assert get_args(model.Status) == model.STATUSES
    assert get_args(FailOn) == model.COSTLY
    assert f"choices=({', '.join(json.dumps(grade) for grade in model.COSTLY)})" in Path(plugin.__file__).read_text()
    assert {"cannot tell", "finding", *get_args(finding.Status)} <= {"cannot tell", "finding", *model.STATUSES}


@pytest.mark.parametrize("name", ["SHOWN_WORST_FIRST", "COUNTED", "BEST_FIRST", "SYMBOLS"])
def test_each_order_has_every_status_once(name: str) -> None:
    order = list(getattr(statuses, name))
    assert sorted(order) == sorted(SHOWN)


@pytest.mark.parametrize("order", [model.WORST_FIRST, statuses.SHOWN_WORST_FIRST, statuses.BY_GRADE, finding.ORDER])
def test_each_order_is_that_of_the_grades(order: tuple[str, ...]) -> None:
    assert tuple(status for status in order if status in model.COSTLY) == model.COSTLY
    assert tuple(status for status in statuses.BEST_FIRST if status in model.COSTLY) == model.COSTLY[::-1]


def test_the_page_carries_the_order_to_its_script() -> None:
    """The script names no status."""
    data = json.loads(Page().as_json())
    assert data["worst_first"] == list(statuses.SHOWN_WORST_FIRST)
    assert data["broken"] == [*statuses.FAILED, "waived"]
    script = (PAGE / "script.js").read_text(encoding="utf-8")
    names = "|".join(sorted(SHOWN - {"error", "correct"}))
    assert not re.findall(rf"""["'/|( ]({names})["'|]""", script)


def test_no_other_module_lists_the_grades() -> None:
    """A list of statuses in another order is written nowhere else."""
    listed = re.compile(rf"{GRADE},\s*{GRADE},\s*{GRADE}")
    root = Path(grades.__file__).parents[1]
    allowed = {"model.py", "format_names.py", "plugin.py", "declared.py", "finding.py"}
    files = [path for path in root.rglob("*.py") if path.name not in allowed]
    assert [str(path) for path in files if listed.search(path.read_text(encoding="utf-8"))] == []

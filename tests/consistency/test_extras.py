"""The commands that a message gives for a missing library name extras that exist, and a checkout that has them."""

import re
import tomllib

import pytest
from imports import ROOT

pytestmark = pytest.mark.fast

HINTS = {
    f"{path.relative_to(ROOT)}:{number}": line
    for folder in (ROOT / "gates", ROOT / "reference" / "gates_reference")
    for path in sorted(folder.rglob("*.py"))
    for number, line in enumerate(path.read_text().splitlines(), 1)
    if "pip install '" in line
}


def test_there_are_hints() -> None:
    assert len(HINTS) > 5


@pytest.mark.parametrize("where", HINTS)
def test_an_extra_of_this_checkout_is_named(where: str) -> None:
    """No index holds rl-gates, so its name installs nothing."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for target, extra in re.findall(r"pip install '([^'\[]*)\[(\w+)\]'", HINTS[where]):
        assert (target, extra in extras) == (".", True)

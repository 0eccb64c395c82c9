"""The project's licences are at the root, and the crate has copies."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LICENCES = ("LICENSE-MIT", "LICENSE-APACHE")

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("name", LICENCES)
def test_the_crate_has_the_licence_of_the_root(name: str) -> None:
    """`cargo package` and wheels take plain files, so there are two copies; edit both."""
    assert (ROOT / "rust" / "rlkernels" / name).read_bytes() == (ROOT / name).read_bytes()


def test_the_metadata_names_the_licences() -> None:
    """The wheel and the crate say the same SPDX expression, and the wheel includes both files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    crate = tomllib.loads((ROOT / "rust" / "rlkernels" / "Cargo.toml").read_text())["package"]
    assert project["license"] == crate["license"] == "MIT OR Apache-2.0"
    assert project["license-files"] == list(LICENCES)

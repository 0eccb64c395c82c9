"""The manifests of the crates: lints that hold in both, and what a registry shows."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

RUST = Path(__file__).resolve().parents[2] / "rust"
CRATES = ["rlkernels", "rlkernels-python"]

pytestmark = pytest.mark.fast


def manifest(*parts: str) -> dict[str, Any]:
    """Read a Cargo.toml."""
    return tomllib.loads(RUST.joinpath(*parts, "Cargo.toml").read_text(encoding="utf-8"))


def test_unsafe_blocks_without_a_reason_do_not_compile_under_clippy() -> None:
    """`make lint` runs clippy on every target of the workspace."""
    workspace = manifest()["workspace"]
    assert set(workspace["members"]) == set(CRATES)
    assert workspace["lints"]["clippy"]["undocumented_unsafe_blocks"] == "deny"


@pytest.mark.parametrize("crate", CRATES)
def test_the_crate_has_the_lints_of_the_workspace(crate: str) -> None:
    """A crate without this line would have none."""
    assert manifest(crate)["lints"] == {"workspace": True}


def test_the_published_crate_describes_itself() -> None:
    """What `cargo package` takes from the manifest; addresses follow with the first public one."""
    package = manifest("rlkernels")["package"]
    assert {"description", "license", "readme", "keywords", "categories", "include"} <= set(package)

"""Pages and tables that are rendered from code or from recorded results are those that are committed."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import generate  # noqa: E402 - after the path

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("name", generate.FILES)
def test_the_page_is_what_make_generate_writes(name: str) -> None:
    """Each committed file is, byte for byte, what is rendered today."""
    same = (ROOT / name).read_text(encoding="utf-8") == generate.generated(name)
    assert same, f"{name} is stale: run `make generate` and commit what it writes"

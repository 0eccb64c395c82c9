"""Files of the Rust crates import each other one way only."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "rust_imports.py"

pytestmark = pytest.mark.fast


def check(*folders: Path) -> subprocess.CompletedProcess[str]:
    """Run the check on these folders, or on all crates."""
    command = [sys.executable, str(SCRIPT), *map(str, folders)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def crate(folder: Path, **files: str) -> Path:
    """Write a crate; `a__b` is the file `a/b.rs`."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.rs"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_no_file_of_the_crates_is_in_a_circle() -> None:
    result = check()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "files",
    [
        {"lib": "mod a; mod b;", "a": "use crate::b::B;", "b": "fn f() { crate::a::g() }"},
        {"lib": "mod a;", "a__mod": "mod b; pub struct A; fn f() { b::g() }", "a__b": "use super::{A as Other};"},
        {"lib": "mod a; mod b; pub use a::A;", "a": "use crate::{b::{self, C}};", "b": "use crate::A; struct C;"},
        {"lib": "mod a; mod b;", "a": "macro_rules! m { () => { $crate::b::f() } }", "b": "use crate::a::*;"},
    ],
    ids=["use and path", "parent's item", "through a re-export", "macro and glob"],
)
def test_a_circle_is_found(tmp_path: Path, files: dict[str, str]) -> None:
    result = check(crate(tmp_path, **files))
    assert result.returncode == 1
    assert "in a circle" in result.stdout
    assert result.stdout.count("a.rs") + result.stdout.count("a/") >= 1


@pytest.mark.parametrize(
    "files",
    [
        {"lib": "mod a;", "a__mod": "mod b; mod c; pub use b::B;", "a__b": "use super::c::C;", "a__c": "struct C;"},
        {"lib": "mod a; mod b;", "a": "use crate::b::B;", "b": "#[cfg(test)]\nmod tests { use crate::a::A; }"},
        {"lib": "mod a; mod b;", "a": "use crate::b::B;", "b": '// crate::a::A\nconst X: &str = "crate::a::A";'},
        {"lib": "mod a; mod b;", "a": "use std::fmt; use crate::b::B;", "b": "mod x { use super::Y; } struct Y;"},
    ],
    ids=["re-export by a parent", "tests", "comments and strings", "inline module"],
)
def test_other_references_are_not_circles(tmp_path: Path, files: dict[str, str]) -> None:
    """Re-exports, tests, comments and inline modules are not imports of another file."""
    result = check(crate(tmp_path, **files))
    assert (result.returncode, result.stdout) == (0, "")

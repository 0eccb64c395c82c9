"""Files of the Rust crates import each other one way only.

A file is a module. It imports another file if it names an item defined there, in a `use` or in a path such as
`crate::rows::Row`. A re-export is followed to the defining file and is not an import itself, since a parent may declare
and re-export its children. Code under `#[cfg(test)]`, comments and strings do not count.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.fast

Module = tuple[str, ...]  # ("kl", "terms") for `crate::kl::terms`
Names = tuple[str, ...]  # a path as written, without aliases

COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\])\'', re.DOTALL)
TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*mod\s+\w+\s*\{")
INLINE_MODULE = re.compile(r"\bmod\s+\w+\s*\{")
DECLARATION = re.compile(r"\bmod\s+\w+\s*;")
USE = re.compile(r"(?P<public>pub(?:\([^)]*\))?\s+)?\buse\s+(?P<tree>[^;]+);")
PATH = re.compile(r"(?<![\w:.$])\$?[a-z_]\w*(?:\s*::\s*\w+)+")
WORD = re.compile(r"\w+|::|[{},*$]")


@dataclass
class File:
    """One module: the names in its scope, and the paths in its code."""

    path: Path
    imports: dict[str, Names] = field(default_factory=dict)  # name in scope → path
    used: set[Names] = field(default_factory=set)


def without_tests(text: str) -> str:
    """Return the code of a source file without comments, strings and test modules."""
    code = COMMENT_OR_STRING.sub(" ", text)
    while match := TEST_MODULE.search(code):
        code = code[: match.start()] + code[end_of_block(code, match.end()) :]
    return code


def end_of_block(code: str, start: int) -> int:
    """Return the position after the brace that closes the block whose body begins at `start`."""
    depth = 1
    for position in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[position], 0)
        if depth == 0:
            return position + 1
    return len(code)


def leaves(tree: str) -> Iterator[tuple[str, Names]]:
    """Yield each name that a `use` brings into scope with its path."""
    tokens = [word for word in WORD.findall(tree) if word != "$"]
    prefixes: list[Names] = []
    path: list[str] = []
    alias = ""
    for position, word in enumerate([*tokens, ","]):
        if word == "{":
            prefixes.append(tuple(path))
        elif word in {",", "}"}:
            if path and tokens[position - 1] not in {"}", "{", ","}:
                names = tuple(path[:-1] if path[-1] in {"self", "*"} else path)
                yield alias or (names[-1] if path[-1] == "self" else path[-1]), names
            if word == "}":
                prefixes.pop()
            path, alias = list(prefixes[-1]) if prefixes else [], ""
        elif word == "as":
            alias = tokens[position + 1]
        elif word != "::" and not alias:
            path.append(word)


def read(folder: Path) -> dict[Module, File]:
    """Read every source file of a crate."""
    files = {}
    for path in sorted(folder.rglob("*.rs")):
        module = path.relative_to(folder).with_suffix("").parts
        module = module[:-1] if module[-1] in {"mod", "lib", "main"} else module
        file = files[module] = File(path)
        code = as_one_module(without_tests(path.read_text()))
        rest = DECLARATION.sub(" ", USE.sub(" ", code))
        for match in USE.finditer(code):
            for name, names in leaves(match["tree"]):
                file.imports[name] = names
                if not match["public"] or name == "*" or re.search(rf"\b{name}\b", rest):
                    file.used.add(names)
        for match in PATH.finditer(rest):
            file.used.add(tuple(re.findall(r"\w+", match[0])))
    return files


def as_one_module(code: str) -> str:
    """Return the code with `super` of inline modules replaced by `self`, since they belong to their file."""
    for match in reversed(list(INLINE_MODULE.finditer(code))):
        end = end_of_block(code, match.end())
        block = re.sub(r"(?<!super::)\bsuper::", "self::", code[match.end() : end])
        code = code[: match.end()] + block + code[end:]
    return code


def resolve(files: Mapping[Module, File], module: Module, names: Names) -> Module | None:
    """Return the module that defines the item of a path, or None if it is outside of the crate."""
    for _ in range(len(files)):  # at most one re-export per file
        here = module
        if names[0] == "crate":
            here, names = (), names[1:]
        elif names[0] in {"self", "super"}:
            while names and names[0] in {"self", "super"}:
                here, names = (here[:-1] if names[0] == "super" else here), names[1:]
        elif (alias := files[module].imports.get(names[0])) == names[:1]:
            return module  # a macro, which other files import by `use`
        elif alias is not None and alias[0] != names[0]:
            names = alias + names[1:]
            continue
        elif (*here, names[0]) not in files:
            return None
        while names and (*here, names[0]) in files:
            here, names = (*here, names[0]), names[1:]
        reexported = files[here].imports.get(names[0]) if names else None
        if reexported is None or here == module:
            return here
        module, names = here, reexported + names[1:]
    return None


def edges(files: Mapping[Module, File]) -> dict[Module, set[Module]]:
    """Return which modules each module imports."""
    return {
        module: {
            target for names in file.used if (target := resolve(files, module, names)) is not None and target != module
        }
        for module, file in files.items()
    }


def circle(folder: Path) -> list[str]:
    """Return the files of a circle in the crate of a folder, or nothing."""
    files = read(folder)
    try:
        TopologicalSorter(edges(files)).prepare()
    except CycleError as error:
        return [str(files[module].path.relative_to(folder)) for module in error.args[1]]
    return []


def crate(folder: Path, **files: str) -> Path:
    """Write a crate; `a__b` is the file `a/b.rs`."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.rs"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize("folder", sorted(ROOT.glob("rust/*/src")), ids=lambda folder: folder.parent.name)
def test_no_file_of_the_crates_is_in_a_circle(folder: Path) -> None:
    """If it fails: move what the files of the circle share to a file of its own."""
    assert circle(folder) == []


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
    """By its files."""
    assert any(name.startswith("a") for name in circle(crate(tmp_path, **files)))


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
    assert circle(crate(tmp_path, **files)) == []

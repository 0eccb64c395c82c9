"""Say what is wrong with a line of a results file, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gates.errors import ConfigurationError

LONGEST = 200  # characters of a file's own text in a message
NEWER = "which this version does not know"
OBJECT = "it must be an object whose `record` says what it is"
TYPES = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "dict": "an object",
    "list": "a list",
    "model": "an object",
}


def no_record(path: Path, number: int, problem: str) -> ConfigurationError:
    """Return the error for a line that is not a record: where it is, what it is, and how to keep what stands before it."""
    if NEWER in problem:
        remedy = "read it with the version of Gates that wrote it"
    elif number == 1:
        remedy = "name a results file: `gates check` writes them to results/runs"
    elif path.suffix == ".gz":
        remedy = "copy the file again, whole, or judge again"
    else:
        remedy = f"the file is damaged: copy it again, or keep what stands before (head -n {number - 1} {path} > COPY) and go on with --resume COPY"
    return ConfigurationError(f"{path}:{number} is no record of Gates: {problem}; {remedy}")


def problem_of(error: Mapping[str, Any]) -> str:
    """Return the first problem that pydantic found in a line, in words of Gates."""
    kind = str(error["type"])
    name = ".".join(str(part) for part in error["loc"])[:LONGEST]
    value = repr(error.get("input"))[:LONGEST]
    tag = str(error.get("ctx", {}).get("tag"))[:LONGEST]
    known = {
        "json_invalid": "it is not JSON",
        "union_tag_not_found": OBJECT,
        "union_tag_invalid": f"its `record` is {tag!r}, {NEWER}",
        "missing": f"it lacks `{name}`",
        "extra_forbidden": f"it has `{name}`, {NEWER}",
        "unexpected_keyword_argument": f"it has `{name}`, {NEWER}",
    }
    wanted = TYPES.get(kind.removesuffix("_type").removesuffix("_parsing"))
    wrong = f"must be {wanted}" if wanted else f"which it must not be ({error['msg'][:LONGEST]})"
    return known.get(kind, f"`{name}` is {value}, {wrong}" if name else OBJECT)

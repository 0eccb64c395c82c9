"""Mutations from edits of an op's program, so that one object is a mutant of a proof and a candidate of diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gates.diagnosis.search import Candidate, evaluate
from gates.families.patching import Fn, mutation
from gates.families.program import Program


def edited(program: Program, *words: str) -> Callable[[Fn], Fn]:
    """Return the patch that replaces an op by its program with one edit, in the dtype of the data.

    Args:
        program: the forward definition of the op.
        words: `words` or `sentence` of an edit in `program.edits`; with several, for different choices, the first that
            exists for the choices of a call.

    A call for whose choices none of these edits exists goes to the original.
    """

    @mutation
    def mistaken(original: Fn, *arrays: Any, **keywords: Any) -> Any:
        inputs = {**dict(zip(_arrays(original), arrays, strict=False)), **keywords}
        asked = program.asked(inputs)
        edits = {name: edit for edit in program.edits(asked) for name in (edit.words, edit.sentence)}
        chosen = next((edits[name] for name in words if name in edits), None)
        if chosen is None:
            return original(**inputs)
        dtype = next(x.dtype for x in inputs.values() if isinstance(x, np.ndarray) and x.dtype.kind in "fV")
        wide = np.promote_types(dtype, np.float32) if dtype.kind == "f" else np.dtype(np.float32)
        outputs = evaluate(program, inputs, Candidate((chosen,)).choices(asked))
        cast = {name: x.astype(dtype if name == "gradient" else wide)[()] for name, (x, _) in outputs.items()}
        return cast if len(cast) > 1 else next(iter(cast.values()))

    return mistaken


def _arrays(function: Fn) -> tuple[str, ...]:
    return function.__code__.co_varnames[: function.__code__.co_argcount]

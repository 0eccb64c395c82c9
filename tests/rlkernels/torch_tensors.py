"""What rlkernels makes of torch's own tensors, as JSON. Run by `test_torch.py` in an environment that has torch."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

import rlkernels

POLICY, REFERENCE = torch.tensor([-1.0, -2.0, -0.5, -3.0]), torch.tensor([-1.5, -1.0, -0.5, -2.0])


def k1(policy: Any, reference: Any = REFERENCE, **options: Any) -> Any:
    """The result, or the error in words."""
    try:
        got = rlkernels.token_kl(policy, reference, estimator="k1", **options)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return [str(got.dtype), got.tolist()]


MATRIX, OTHER = POLICY.reshape(2, 2), REFERENCE.reshape(2, 2)
FOUND = {
    "float32": k1(POLICY),
    "float64": k1(POLICY.double(), REFERENCE.double()),
    "transposed": k1(MATRIX.T, OTHER.T),
    "expanded": k1(torch.tensor([-1.0]).expand(4)),
    "mask": k1(MATRIX, OTHER, mask=MATRIX < -0.75),
    "lengths": k1(MATRIX, OTHER, lengths=torch.tensor([1, 2], dtype=torch.int32)),
    "empty": k1(POLICY[:0], REFERENCE[:0]),
    "detached parameter": k1(torch.nn.Parameter(POLICY).detach()),
    "parameter": k1(torch.nn.Parameter(POLICY)),
    "bfloat16": k1(POLICY.bfloat16()),
    "boolean rewards": rlkernels.group_advantages(torch.tensor([False, True]), 2, ddof=0, eps=0.0).tolist(),
    "integers": k1(POLICY.long()),
    "meta": k1(POLICY.to("meta")),
    "sparse": k1(POLICY.to_sparse()),
    "negated": k1(torch.complex(POLICY, POLICY).conj().imag),
    "out in the tensor's memory": k1(POLICY, out=POLICY.numpy()),
}

json.dump({"torch": torch.__version__, "found": FOUND}, sys.stdout)

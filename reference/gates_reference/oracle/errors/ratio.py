"""What an error of a ratio is measured in."""

import numpy as np

from gates_reference.oracle.inputs import Floats


def sequence_scale(ratio: Floats, log_ratio: Floats, u: float) -> Floats:
    """The scale S = r (1 + u sum |D|): a compensated sum errs by u times itself and u**2 times its absolute terms.

    Args:
        ratio: (B,), of the sequence.
        log_ratio: (B, T), D = policy - old, 0 where no token stands.
        u: half an ulp of 1 in the dtype of the data.

    Source: docs/definitions.md, "Accuracy".
    """
    return np.asarray(ratio * (1.0 + u * np.sum(np.abs(log_ratio), axis=1)))

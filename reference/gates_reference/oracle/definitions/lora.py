"""The output of a linear layer with a low-rank adapter whose input is partly dropped."""

from gates_reference.oracle.inputs import Bools, Floats


def lora(x: Floats, weight: Floats, a: Floats, b: Floats, *, scale: float, kept: Bools, p: float) -> Floats:
    """The output y = x W^T + scale (x m / (1 - p)) A B with m = 1 where an input is kept. LoRA (arXiv 2106.09685), eq. 3.

    Dropout (Srivastava et al. 2014, JMLR 15) of the adapter's input, divided by 1 - p in training: PEFT's `lora_dropout`.
    """
    dropped = x * kept / (1.0 - p)
    return x @ weight.T + scale * (dropped @ a) @ b

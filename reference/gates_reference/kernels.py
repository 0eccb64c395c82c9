"""The kernels of rlkernels by name: one row each, from which ops, subjects and the tests of completeness are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of `rlkernels` that computes; an op of the same name judges it.

    Attributes:
        name: of the Rust function, of the Python function and of the op.
        family: the folder of gates/families that holds the op.
        module: the module of the crate, the file of the bindings and the fuzz target.
        outputs: the op's outputs in the order in which the Python function returns them; none where it returns a dict.
        lanes: whether it uses vector lanes or threads, so that `isa.bits-identical` compares machines; else one body serves all.
    """

    name: str
    family: str
    module: str
    outputs: tuple[str, ...] = ()
    lanes: bool = True


_ROWS = (
    Kernel("group_advantages", "advantages", "advantages", ("advantages",)),
    Kernel("normalise_then_sum", "advantages", "advantages", ("advantages",)),
    Kernel("gae", "advantages", "advantages", ("advantages",)),
    Kernel("token_kl", "kl", "kl", ("kl",)),
    Kernel("full_kl", "kl", "kl", ("kl",)),
    Kernel("selective_log_softmax", "logprobs", "logsoftmax", ("logprobs", "entropy")),
    Kernel("selective_log_softmax_backward", "logprobs", "logsoftmax", ("gradient",)),
    Kernel("filtered_logprobs", "sampling", "sampling", ("logprobs",)),
    Kernel("sample_tokens", "sampling", "sampling", ("tokens", "logprobs")),
    Kernel("philox4x32_10", "philox", "philox", ("words",)),
    Kernel("uniforms", "philox", "philox", ("uniforms",), lanes=False),
    Kernel("xtc_coins", "philox", "philox", ("uniforms",), lanes=False),
    Kernel(
        "pack_sequences",
        "packing",
        "packing",
        ("indices", "offsets", "efficiency", "starts", "sizes"),
        lanes=False,
    ),
    Kernel("importance_ratio", "ratio", "ratio", ("ratio",)),
    Kernel("importance_weights", "ratio", "ratio", ("weights",)),
    Kernel("ratio_statistics", "ratio", "ratio"),
    Kernel("policy_loss", "loss", "policy_loss", ("loss", "gradient")),
)
KERNELS: Mapping[str, Kernel] = MappingProxyType({row.name: row for row in _ROWS})

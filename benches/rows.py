"""The rows of the kernel benchmarks: op × conventions × shape × peer, with the least bytes and operations.

Shapes are from `workloads`, calls from the TIMED tables (adapters in gates/subjects/peers, and `plain`), and limits from
`limits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from . import workloads

#: Plain formulas: name of the rows → file in `plain`, and the peer whose environment has the framework.
PLAIN = {"NumPy": ("numpy", ""), "torch": ("torch", "trl"), "MLX": ("mlx", "mlx-lm")}
#: SETTINGS of the file of a plain formula, by variant.
PLAIN_VARIANTS = {"compiled": {"compiled": True}}
#: Shapes with torch.compile, whose first call takes half a minute.
COMPILED = {"token_kl": ("32x2048",), "policy_loss": ("32x2048",)}
EXP = 20  # operations of a float32 exponential: reduction by two products, seven steps of Horner, scaling
#: Sizes of `--full` only: rlox takes two minutes to pack a million sequences.
FULL = ("256x4096", "1000000")
SMALLEST = ("16x4", "1x128", "4x4096-peaked", "4x64", "1000")
#: Ops without a grade: draws of a peer's own generator cannot be judged token by token.
DRAWN = ("sample_tokens",)
FILTERS = ("filtered_logprobs", *DRAWN)


@dataclass(frozen=True, slots=True)
class Row:
    """One op at one shape against one peer."""

    op: str
    variant: str
    shape: str
    peer: str
    conventions: Mapping[str, object]
    grade: str = ""
    """The op of results/conformance that says whether the peer is right; empty: none does."""
    dtype: str = "float32"
    reads: int = 0
    writes: int = 0
    flops: float = 0.0

    @property
    def size(self):
        """Return `quick` (smoke tests), `default` or `full`."""
        flat = self.op in FILTERS and self.shape == "16x151936-flat"  # the default is peaked like a language model's
        return "full" if self.shape in FULL or flat else "quick" if self.shape in SMALLEST else "default"

    @property
    def name(self):
        """Return a unique name of the row."""
        return " ".join(part for part in (self.op, self.variant, self.shape, self.peer) if part)


def rows():
    """Return all rows, grouped by peer."""
    all_rows = [*_advantages(), *_kl(), *_log_softmax(), *_filters(), *_losses(), *_packing()]
    compiled = [row for row in all_rows if row.peer == "torch" and row.shape in COMPILED.get(row.op, ())]
    all_rows += [replace(row, peer="torch@compiled") for row in compiled]
    order = {peer: position for position, peer in enumerate(dict.fromkeys(row.peer for row in all_rows))}
    return sorted(all_rows, key=lambda row: order[row.peer])


def selected(targets=(), ops=(), shapes=(), *, quick=False, full=False):
    """Return the rows of these peers, ops and shapes; all by default.

    Args:
        targets: names of peers, ignoring case; a name without @ includes its variants.
        ops: names of ops.
        shapes: names of workloads.
        quick: only the smallest shape of each op.
        full: also sizes that take minutes.
    """
    wanted = {name.lower() for name in targets}
    sizes = ("quick",) if quick else ("quick", "default", "full") if full else ("quick", "default")
    return [
        row
        for row in rows()
        if (row.size in sizes or (shapes and not quick))
        and (not wanted or {row.peer.lower(), row.peer.lower().partition("@")[0]} & wanted)
        and (not ops or row.op in ops)
        and (not shapes or row.shape in shapes)
    ]


def _advantages():
    """Each peer in its convention: (ddof, eps, mode, dtype of the rewards)."""
    has = {
        "NumPy": (1, 1e-4, "add", "float64"),
        "torch": (1, 1e-4, "add", "float32"),
        "MLX": (1, 1e-4, "add", "float32"),
        "rlox": (0, 1e-8, "threshold", "float64"),
        "trl": (1, 1e-4, "add", "float32"),
        "verl": (1, 1e-6, "add", "float32"),
        "verl@vectorized": (1, 1e-6, "add", "float32"),
        "mlxrl": (0, 1e-8, "inside", "float32"),
        "mlx-lm-lora": (0, 1e-4, "add", "float32"),
    }
    for peer, (ddof, eps, mode, dtype) in has.items():
        conventions = {"scale": "group", "ddof": ddof, "eps": eps, "eps_mode": mode, "baseline": "mean"}
        for shape, (prompts, group_size) in workloads.REWARDS.items():
            count = prompts * group_size
            moved = count * (8 if dtype == "float64" else 4)
            yield Row(
                "group_advantages",
                f"{dtype}, ddof {ddof}, eps {eps:g} {mode}",
                shape,
                peer,
                conventions,
                _grade(peer, "group_advantages"),
                dtype,
                moved,
                moved,
                5.0 * count,  # per reward: sum, difference, square and sum, division
            )


def _kl():
    for peer in ("NumPy", "torch", "MLX", "rlox", "verl", "mlxrl"):
        reduction = "sum" if peer == "rlox" else "none"  # rlox only has sums of sequences
        for shape, (batch, tokens) in workloads.LOG_PROBABILITIES.items():
            yield Row(
                "token_kl",
                "k3, per sequence" if reduction == "sum" else "k3, per token",
                shape,
                peer,
                {"estimator": "k3", "reduction": reduction},
                _grade(peer, "token_kl[k3]"),
                reads=8 * batch * tokens,
                writes=4 * batch * (tokens if reduction == "none" else 1),
                flops=float((EXP + 3) * batch * tokens),
            )


def _log_softmax():
    both = ("NumPy", "torch", "MLX", "trl", "verl")
    for entropy, peers in ((False, (*both, "mlxrl", "mlx-lm-lora")), (True, both)):
        for peer in peers:
            for shape in ("4x4096-peaked", "16x151936-flat", "256x151936-flat"):
                rows, vocabulary, _ = workloads.LOGITS[shape]
                yield Row(
                    "selective_log_softmax",
                    "with entropy" if entropy else "",
                    shape,
                    peer,
                    {"temperature": 1.0, "entropy": entropy},
                    _grade(peer, "selective_log_softmax"),
                    reads=4 * rows * vocabulary,
                    writes=4 * rows * (2 if entropy else 1),
                    flops=float((EXP + (5 if entropy else 3)) * rows * vocabulary),
                )


def _filters():
    """Top-p needs every probability; top-k needs one comparison, since removed tokens have no weight."""
    filters = {"top-p 0.95": ({"top_p": 0.95}, EXP + 4), "top-k 50": ({"top_k": 50}, 1)}
    for peer, order in (("mlx-lm", "mlx-lm"), ("transformers", "hf")):
        for variant, (settings, flops) in filters.items():
            for op in FILTERS:
                for shape in ("4x4096-peaked", "16x151936-peaked", "16x151936-flat"):
                    rows, vocabulary, _ = workloads.LOGITS[shape]
                    yield Row(
                        op,
                        variant,
                        shape,
                        peer,
                        {"order": order, "temperature": 1.0, **settings},
                        "" if op in DRAWN else f"filtered_logprobs[{order}]",
                        reads=4 * rows * vocabulary,
                        writes=16 * rows if op in DRAWN else 4 * rows * vocabulary,
                        flops=float(flops * rows * vocabulary),
                    )


def _losses():
    """GRPO's loss and gradient; mlxrl's GRPO is not clipped, so its DAPO too, and mlx-lm-lora's is on-policy."""
    plain = ("NumPy", "torch", "MLX")
    kinds = {
        "grpo": ("grpo", 0.2, (*plain, "trl", "verl", "liger-kernel", "mlxrl")),
        "dapo": ("dapo", 0.28, ("trl", "mlxrl")),
        "grpo, on-policy": ("grpo", 0.2, ("mlx-lm-lora",)),
    }
    for variant, (algorithm, high, peers) in kinds.items():
        for beta in (0.0, 0.04):
            conventions = {
                "algorithm": algorithm,
                "epsilon_low": 0.2,
                "epsilon_high": high,
                "beta": beta,
                "kl_estimator": "k3" if beta else None,
                "kl_ratio": "none" if beta else None,
                "max_length": None,
                "delta": None,
                **({"dapo_denominator": "global"} if algorithm == "dapo" else {}),
                **({"old": None} if "on-policy" in variant else {}),
                **({} if beta else {"reference": None}),
            }
            for peer in peers:
                for shape, (batch, tokens) in workloads.STEPS.items():
                    arrays = 3 - ("old" in conventions) - (not beta)
                    yield Row(
                        "policy_loss",
                        f"{variant}, beta {beta:g}",
                        shape,
                        peer,
                        conventions,
                        _grade(peer, f"policy_loss[{algorithm}]"),
                        reads=(4 * arrays + 1) * batch * tokens,
                        writes=4 * batch * tokens,
                        flops=float(((2 if beta else 1) * EXP + (16 if beta else 8)) * batch * tokens),
                    )


def _packing():
    for peer, strategy in (("trl", "best-fit-decreasing"), ("rlox", "first-fit-decreasing")):
        for shape, count in workloads.LENGTHS.items():
            yield Row(
                "pack_sequences",
                strategy,
                shape,
                peer,
                {"strategy": strategy},
                f"pack_sequences[{strategy}, error]",
                reads=8 * count,
                writes=8 * count,
            )


def _grade(peer, op):
    return "" if peer in PLAIN else op

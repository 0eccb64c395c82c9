"""The shipped subjects; these declarations import none of the libraries that they name."""

from __future__ import annotations

import errno
import os
import platform
import sys
from dataclasses import replace
from pathlib import Path

from gates.config.own_subjects import NUMPY, REFERENCE, RLKERNELS
from gates.model import ConfigurationError, Subject
from gates.nearest import hint, nearest
from gates.registry import Registry
from gates.results import machine
from gates.subjects.peers import environments
from gates_reference import kernels

KERNELS = tuple(kernels.KERNELS)
PREFERENCE = ("preference_loss", "prefer", "best_of_n")
MODEL = (  # ops with matrix products
    "rollout",
    "token_logits",
    "completion_logprobs",
    "completion_entropies",
    "importance_ratios",
    "train_step",
    "train_run",
    "sampled_and_scored",
    "step_logprobs",
    "lora_linear",
)
TRAINER = (
    *PREFERENCE,
    "winner_loss",
    "policy_loss",
    "policy_loss_in_parts",
    "rewarded_loss",
    "loss_with_options",
    "loss_of_completions",
    "loss_constants",
    "keep_groups",
    "overlong_penalty",
    "importance_ratio",
    "importance_weights",
    "token_kl",
    "group_advantages",
    "normalise_then_sum",
    "ratio_statistics",
    "loss_from_logits",
    "encode_prompts",
    "decode_tokens",
    "training_step",
    "resolve_config",
    "traced_run",
    *MODEL,
)
SHIPPED = {
    NUMPY: (*KERNELS, *PREFERENCE, "kto_loss", "loss_of_completions", "lora_linear"),
    RLKERNELS: (*KERNELS, "kernel_bits"),
    REFERENCE: TRAINER,
}
ISAS = {  # values of RLKERNELS_ISA and the processor features that each needs
    "scalar": (),
    "avx2": ("avx2", "fma"),
    "avx512": ("avx512f", "avx512dq", "avx512bw", "avx512vl"),
    "neon": (),
}
ARM = frozenset(("arm64", "aarch64"))
HERE = Path(__file__).resolve().parent
MODULES = {NUMPY: "numpy_baseline.subject", RLKERNELS: "rlkernels", REFERENCE: "mlx_trainer.subject"}
REMEDIES = {
    RLKERNELS: "`pip install ./rust/rlkernels-python` in a checkout of Gates builds it, with Rust",
    REFERENCE: "`pip install '.[trainer]' ./rust/rlkernels-python` in a checkout of Gates brings it",
}
OPENBLAS = "libopenblas.so.0"  # Debian's package libopenblas0, 25 times as fast as the BLAS in MLX's wheel


def register(registry: Registry) -> None:
    """Add the shipped subjects and the peers."""
    for name, ops in SHIPPED.items():
        registry.add_subject(Subject(name, *_entry(MODULES[name]), ops=ops, remedy=REMEDIES.get(name, "")))
    for isa in ISAS:
        offered = _offers(isa)
        registry.add_subject(
            Subject(
                f"{RLKERNELS}@{isa}",
                *_entry(MODULES[RLKERNELS]),
                environment={"RLKERNELS_ISA": isa},
                ops=KERNELS,
                default=offered,
                why_absent="" if offered else f"this processor has no {isa}",
                remedy=REMEDIES[RLKERNELS],
            )
        )
    no_choice = "" if sys.platform == "linux" else "MLX has no choice of BLAS on this system"
    registry.add_subject(
        Subject(
            f"{REFERENCE}@openblas",
            *_entry(MODULES[REFERENCE]),
            preload=(OPENBLAS,),
            why_absent=no_choice,
            remedy=f"it needs Debian's package libopenblas0; {REMEDIES[REFERENCE]}",
            ops=MODEL,  # the other ops do not use the BLAS
        )
    )
    _register_peers(registry)


def _register_peers(registry: Registry) -> None:
    """Add the peers that have an adapter, each with its variants."""
    try:
        peers = environments.peers()
    except environments.PeerError as error:
        raise ConfigurationError(str(error)) from None
    for peer in peers.values():
        if peer.subject is None:
            continue
        environment = environments.environment(peer.name)
        absent = "" if environment.ready else f"no environment yet; `gates peers sync {peer.name}` makes it"
        whole = Subject(
            peer.name,
            peer.subject,
            f"gates.subjects.peers.{peer.subject.stem}",
            python=str(environment.python),
            default=False,
            why_absent=absent,
        )
        registry.add_subject(whole)
        for name, (ops, settings) in peer.variants.items():
            registry.add_subject(replace(whole, name=f"{peer.name}@{name}", ops=ops, settings=settings))


def _entry(module: str) -> tuple[Path, str]:
    """Return the file and the dotted name of a shipped subject's module."""
    return HERE / f"{module.replace('.', '/')}.py", f"gates.subjects.{module}"


def _offers(isa: str) -> bool:
    """Return whether this machine supports an instruction set, without importing `rlkernels`."""
    arm = platform.machine().lower() in ARM
    if isa == "scalar":
        return True
    return arm if isa == "neon" else not arm and set(ISAS[isa]) <= set(machine.cpu()[1])


def from_file(path: str, python: str | None) -> Subject:
    """Return the subject in a user's file, to be loaded in its worker only.

    A `.py` file is loaded by the worker. Any other file must be executable and speak the protocol on its standard
    streams (docs/protocol.md).
    """
    try:
        file = Path(path).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a symlink loop, before Python 3.13
        looped = isinstance(error, RuntimeError) or getattr(error, "errno", None) == errno.ELOOP
        why = "it is a loop of links" if looped else f"there is no such file{_file_near(path)}"
        raise ConfigurationError(f"--subject {path}: {why}") from None
    if file.is_dir():
        raise ConfigurationError(f"--subject {path}: is a folder; name the file in it that defines OPS")
    if not file.is_file():
        raise ConfigurationError(f"--subject {path}: is no regular file")
    if not os.access(file, os.R_OK):
        raise ConfigurationError(f"--subject {path}: cannot be read; allow it (chmod +r)")
    if file.suffix == ".py":
        remedy = (
            f"{python or sys.executable} runs the file: install what it imports there, or name another with --python"
        )
        return Subject(file.stem, file, f"gates_subject_{file.stem}", python=python, remedy=remedy)
    if not os.access(file, os.X_OK):
        raise ConfigurationError(
            f"--subject {path}: must be a Python file (.py) that defines OPS, or an executable (chmod +x) that speaks "
            "the protocol of docs/protocol.md"
        )
    if python is not None:
        raise ConfigurationError(f"--python {python}: is for Python files; {path} is a program by itself")
    return Subject(file.stem, file, "")


def _file_near(path: str) -> str:
    """Return the file with the nearest name in the folder of a missing one."""
    wanted = Path(path)
    try:
        names = [file.name for file in wanted.parent.iterdir() if file.is_file()]
    except (OSError, ValueError):
        return f"; the folder {wanted.parent} is not there"
    near = nearest(wanted.name, names)
    shown = str(wanted.with_name(near[0])) if near else ""
    return f"; did you mean {shown if '/' in shown else f'./{shown}'}?" if near else ""


def choose(registry: Registry, names: tuple[str, ...], python: str | None, *, variants: bool = True) -> list[Subject]:
    """Return the named subjects; a name with a slash or `.py` is a file. Without names: the default ones.

    Default subjects include variants only if `variants` is True; in a short run `isa.bits-identical` covers the kernels'.
    A default subject gets the cases of its own ops. A named subject gets every case, together with its variants (NAME@…),
    and is judged once even if it is named twice.
    """
    if not names:
        return [s for s in registry.subjects.values() if s.default and (variants or not s.is_variant)]
    chosen: dict[str, Subject] = {}
    for name in names:
        if name.endswith(".py") or "/" in name:
            subject = from_file(name, python)
            if subject.name in registry.subjects or chosen.get(subject.name, subject).entry != subject.entry:
                raise ConfigurationError(f"--subject {name}: the name {subject.name!r} is taken; rename the file")
        elif name in registry.subjects:
            subject = replace(registry.subjects[name], ops=None)
        else:
            known = ", ".join(registry.subjects)
            here = [file for file in (f"{name}_gates.py", f"{name}.py") if Path(file).is_file()]
            meant = f"; did you mean ./{here[0]}?" if here else hint(name, registry.subjects)
            raise ConfigurationError(f"--subject {name}: must be one of {known}, or a file (./mine.py){meant}")
        chosen[subject.name] = subject
        for variant in registry.subjects.values():
            if variant.name.startswith(f"{name}@"):
                chosen.setdefault(variant.name, variant)
    return list(chosen.values())

"""Calls of rlkernels as its users write them, in the form of an adapter's TIMED."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "gates" / "subjects" / "peers" / "shared"))
import numpy as np
from peer_timed import Timed, only_output

import rlkernels


def _call(op, positional, keywords, answer, **more):
    """Return the call with arrays by name and other keywords as literals, without those that are None or False."""
    names = {op: getattr(rlkernels, op), **more}
    arguments = []
    for name, value in {**positional, **keywords}.items():
        if value is None or value is False:
            continue
        if isinstance(value, np.ndarray):
            names[name] = value
        shown = name if isinstance(value, np.ndarray) else repr(value)
        arguments.append(shown if name in positional else f"{name}={shown}")
    arguments += [f"{name}={name}" for name in more]
    return Timed(f"{op}({', '.join(arguments)})", names, answer)


def group_advantages(rewards, group_size, **conventions):
    """Advantages of prompt-major rewards."""
    arrays = {"rewards": rewards, "group_size": group_size}
    return _call("group_advantages", arrays, conventions, only_output("advantages"))


def token_kl(policy, reference, **conventions):
    """KL estimates per token or summed."""
    return _call("token_kl", {"policy": policy, "reference": reference}, conventions, only_output("kl"))


def selective_log_softmax(logits, ids, *, temperature, entropy):
    """Log-probs of the ids, and the entropy."""

    def answer(result):
        return dict(zip(("logprobs", "entropy"), result, strict=True)) if entropy else {"logprobs": result}

    options = {"temperature": None if temperature == 1.0 else temperature, "entropy": entropy}
    return _call("selective_log_softmax", {"logits": logits, "ids": ids}, options, answer)


def filtered_logprobs(logits, **conventions):
    """Normalised log-probs after a filter, written into a float32 array."""
    out = np.empty(logits.shape, np.float32)
    return _call("filtered_logprobs", {"logits": logits}, conventions, only_output("logprobs"), out=out)


def sample_tokens(logits, uniforms, **conventions):
    """Tokens drawn by uniforms, and their log-probs."""

    def answer(result):
        return {"tokens": np.asarray(result[0]), "logprobs": np.asarray(result[1])}

    return _call("sample_tokens", {"logits": logits, "uniforms": uniforms}, conventions, answer)


def policy_loss(policy, **inputs):
    """Loss and gradient."""

    def answer(result):
        return {"loss": float(result.loss), "gradient": np.asarray(result.gradient)}

    return _call("policy_loss", {"policy": policy}, inputs, answer)


def pack_sequences(lengths, max_length, **conventions):
    """Bins of sequences."""

    def answer(result):
        return {"indices": np.asarray(result[0]), "offsets": np.asarray(result[1])}

    return _call("pack_sequences", {"lengths": lengths, "max_length": max_length}, conventions, answer)


TIMED = {
    function.__name__: function
    for function in (
        group_advantages,
        token_kl,
        selective_log_softmax,
        filtered_logprobs,
        sample_tokens,
        policy_loss,
        pack_sequences,
    )
}

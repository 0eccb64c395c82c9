"""The edits of a sampler's filters and draws: orders of libraries, and mistakes."""

from __future__ import annotations

from collections.abc import Iterator

from gates.families.edits import conventions_first, mistakes
from gates.families.program import Choices, Edit

Order = tuple[str, ...]
ORDERS: dict[str, Order] = {  # of libraries; some lack stages
    "transformers": ("temperature", "top-k", "top-p", "min-p", "XTC"),
    "mlx-lm": ("top-p", "min-p", "XTC", "top-k", "temperature"),
    "vLLM": ("temperature", "min-p", "top-k", "top-p", "XTC"),
    "llama.cpp": ("top-k", "top-p", "min-p", "XTC", "temperature"),
}
TOP_P = {
    "exclusive": "top-p without the token whose mass reaches p",
    "one more": "top-p with one token more than it takes to reach p",
    "ascending": "top-p of the ascending sums: tokens stay while the mass of the less likely ones exceeds p",
    "least likely": "top-p from the wrong end: the least likely tokens stay",
    "each": "tokens of a probability of 1 − p, in the place of top-p's sums",
    "of the largest": "tokens of at least p times the largest probability, in the place of top-p's sums",
}
TOP_K = {
    "least likely": "top-k keeps the k least likely tokens",
    "first ids": "top-k keeps the first k ids",
    "all but k": "top-k removes the k least likely tokens, not all but the k likeliest",
    "removed": "top-k removes the k likeliest tokens",
}
MIN_P = {
    "absolute": "min-p as an absolute probability, not relative to the largest",
    "of logits": "min-p relative to the largest logit, not to the largest probability",
    "share squared": "min-p's share squared",
    "of log-probs": "min-p times the largest log-prob, not the largest probability",
    "difference": "the largest probability less min-p as the threshold, not times min-p",
    "below": "min-p removes the tokens above its threshold but the likeliest, not those below",
}
XTC = {
    "the least likely too": "XTC removes every token above the threshold, the least likely too",
    "the least likely of several too": "XTC removes every token above the threshold where there are several",
    "all but the likeliest": "XTC keeps the likeliest of the tokens above the threshold, not the least likely",
    "the likeliest": "XTC removes the likeliest token alone",
    "of the batch": "XTC with the least likely token of the whole batch, not of the row",
    "below the threshold": "XTC removes the tokens below the threshold",
}
REPETITION = {
    "divided": "repetition penalty divides negative logits too",
    "multiplied": "repetition penalty multiplies positive logits too",
    "inverted": "repetition penalty multiplies positive logits and divides negative ones",
    "subtracted": "repetition penalty subtracted",
    "twice": "repetition penalty twice",
    "each time": "repetition penalty for each occurrence in the history",
    "others": "repetition penalty of the tokens that are not in the history",
    "logarithm": "the logarithm of the repetition penalty subtracted",
    "every token": "repetition penalty of every token, whatever the history",
}
COUNTS = {
    "presence each time": "presence penalty for each occurrence",
    "frequency once": "frequency penalty once, however often a token occurred",
    "swapped": "presence and frequency penalties swapped",
}
ROWS = {"batch": "the tokens of the whole batch", "next row": "the tokens of the next row"}
RESULTS = {
    "not renormalised": "log-probs not renormalised over the tokens that stay",
    "before the last": "log-probs normalised over what was there before the last filter",
    "unfiltered": "log-probs of the unfiltered distribution",
    "untempered": "log-probs of the tokens that stay without the temperature",
    "of the model": "the model's own log-probs of the tokens that stay, without temperature and renormalisation",
    "logits": "logits of the tokens that stay, not normalised",
    "probabilities": "probabilities, not their logarithms",
}


@conventions_first
def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of filters with these choices."""
    for part in (_orders, _numbers, _rules, _penalties):
        yield from part(asked)
    yield from mistakes("result", RESULTS)


def acting(order: Order, asked: Choices) -> Order:
    """Return the stages of an order that are active."""
    return tuple(stage for stage in order if stage in asked["order"])


def _listed(order: Order) -> str:
    return ", ".join(order)


def _orders(asked: Choices) -> Iterator[Edit]:
    """Yield the orders of libraries, then orders with two neighbours swapped or the temperature moved."""
    own, seen = asked["order"], {asked["order"]}
    for library, order in ORDERS.items():
        if (changed := acting(order, asked)) not in seen:
            seen.add(changed)
            words = f"filters in the order {_listed(changed)} (as in {library})"
            yield Edit(words, {"order": changed}, convention=True, asked=_listed(own))
    swaps = [(*own[:i], own[i + 1], own[i], *own[i + 2 :]) for i in range(len(own) - 1)]
    rest = tuple(stage for stage in own if stage != "temperature")
    moved = [("temperature", *rest), (*rest, "temperature")] if len(rest) < len(own) else []
    for changed in (*swaps, *moved):
        if changed not in seen:
            seen.add(changed)
            yield Edit(f"filters in the order {_listed(changed)}", {"order": changed}, asked=_listed(own))


def _numbers(asked: Choices) -> Iterator[Edit]:
    acts, temperature, k = asked["order"], asked["temperature"], asked["top_k"]
    for stage in acts:
        yield Edit(f"{stage} ignored", {"order": tuple(other for other in acts if other != stage)})
    if "temperature" in acts and temperature > 0.0:
        yield Edit("logits multiplied by the temperature", {"temperature": 1.0 / temperature})
        yield Edit("the temperature twice", {"temperature": temperature * temperature})
        yield Edit("the square root of the temperature", {"temperature": temperature**0.5})
    if "top-k" in acts:
        yield Edit("top-k keeps one token more: k + 1", {"top_k": k + 1})
        if k > 1:
            yield Edit("top-k keeps one token less: k − 1", {"top_k": k - 1})
        yield from mistakes("top-k rule", TOP_K)
    if "top-p" in acts and asked["top_p"] > 0.0:
        yield Edit("1 − p in the place of top-p's p", {"top_p": 1.0 - asked["top_p"]})


def _rules(asked: Choices) -> Iterator[Edit]:
    acts = asked["order"]
    if "top-p" in acts:
        yield from mistakes("top-p rule", TOP_P)
    if "min-p" in acts:
        yield from mistakes("min-p rule", MIN_P)
    if "XTC" in acts:
        yield from mistakes("XTC rule", XTC)
        yield Edit("XTC on every row, whatever its coin", {"coin": "always"})
        yield Edit("XTC where the coin is not below its probability", {"coin": "above"})
        if asked["special"]:
            yield Edit("XTC removes special tokens too", {"special": False})
    if len(acts) > 1 and {"top-p", "min-p", "XTC"}.intersection(acts):
        yield Edit("masses of all tokens, not renormalised over those that are still there", {"masses": "all"})
    if asked["least"] > 1:
        every, alone = frozenset(("top-k", "top-p", "min-p")), frozenset(("min-p",))
        yield Edit("min_tokens_to_keep ignored", {"least": 1})
        if asked["least of"] == alone:
            yield Edit("min_tokens_to_keep of every filter (as in transformers)", {"least of": every}, convention=True)
        elif "min-p" in acts:
            yield Edit("min_tokens_to_keep of min-p alone (as in mlx-lm)", {"least of": alone}, convention=True)


def _penalties(asked: Choices) -> Iterator[Edit]:
    if asked["repetition"] != 1.0:
        yield Edit("repetition penalty ignored", {"repetition": 1.0})
        yield from mistakes("repetition rule", REPETITION)
        yield from mistakes("repetition of", ROWS, "repetition penalty of {}, not of its own")
        if "generated" in asked["given"]:
            words = "repetition penalty of the generated tokens, not of the whole history"
            yield Edit(words, {"repetition of": "generated"})
    presence, frequency = asked["presence"], asked["frequency"]
    if presence or frequency:
        yield from _counts(asked, presence, frequency)
    if presence:
        yield Edit("presence penalty ignored", {"presence": 0.0})
    if frequency:
        yield Edit("frequency penalty ignored", {"frequency": 0.0})
    if asked["repetition"] != 1.0 or presence or frequency:
        yield Edit("the −1 of an empty place taken for the last token", {"padding": "last token"})
    if asked["bias"] != "none":
        yield Edit("logit bias ignored", {"bias": "none"})
        yield Edit("logit bias subtracted", {"bias": "negated"})
        if asked["repetition"] != 1.0:
            yield Edit("logit bias after the penalties", {"bias": "last"})


def _counts(asked: Choices, presence: float, frequency: float) -> Iterator[Edit]:
    for name, words in COUNTS.items():
        if (presence or name == "frequency once") and (frequency or name == "presence each time"):
            yield Edit(words, {"counts": name})
    yield from mistakes("counts of", ROWS, "presence and frequency penalties of {}, not of its own")
    if "history" in asked["given"]:
        words = "presence and frequency penalties of the history, not of the generated tokens"
        yield Edit(words, {"counts of": "history"})
    yield Edit("presence and frequency penalties added", {"presence": -presence, "frequency": -frequency})
    if asked["order"][:1] == ("temperature",) and asked["temperature"] > 0.0:
        tau = asked["temperature"]
        after = {"presence": presence * tau, "frequency": frequency * tau}
        yield Edit("presence and frequency penalties after the temperature, not before", after)


def presets(asked: Choices) -> Iterator[Edit]:
    """Yield the orders with their libraries (docs/definitions.md, "Presets")."""
    names = {"transformers": "hf (transformers generate())", "mlx-lm": "mlx-lm (make_sampler)"}
    seen: dict[Order, str] = {}
    for library, order in ORDERS.items():
        seen.setdefault(acting(order, asked), names.get(library, library))
    for order, name in seen.items():
        yield Edit(f"{name}: {_listed(order) or 'no filter'}", {"order": order}, convention=True)


SUM_ORDERS = {
    "likeliest first": "the running sum from the likeliest token on, not in the order of the ids",
    "least likely first": "the running sum from the least likely token on, not in the order of the ids",
    "last id first": "the running sum from the last id on",
}
UNIFORMS = {
    "complement": "1 − u in the place of u",
    "first": "the uniform of the first row for every row",
    "next": "the uniform of the next row",
}
TOKENS = {
    "greedy": "the likeliest token, whatever the uniform",
    "before": "the token before the drawn one",
    "after": "the token after the drawn one",
}


def of_draws(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a draw with these choices, conventions first."""
    yield from mistakes("sum order", SUM_ORDERS)
    yield from mistakes("uniform", UNIFORMS)
    yield from mistakes("drawn", TOKENS)
    yield Edit("the least token whose sum reaches u, also at u = 0: one that cannot be drawn", {"reached": "at"})
    filters = [stage for stage in asked["order"] if stage != "temperature"]
    alike = [{"result": "not renormalised"}, *([{"result": "before the last"}] if len(filters) < 2 else [])]
    yield from (edit for edit in edits(asked) if edit.changes not in alike)  # equal to "unfiltered" here

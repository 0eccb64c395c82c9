"""Rolls out as `GRPOTrainer._train_native` of mlx-tune does: row by row, each from a copy of one prompt cache.

The rollout is a part of that method (rl_trainers.py 1272 to 1297), so its statements are repeated here, with the length
of a row as its `max_tokens`. The sampler has a temperature and no filter (losses.py 673); the layers are without the
adapters and the checkpointing of a training run.
"""


class Texts:
    """A detokenizer that costs nothing and counts: the loop without a cache, the peer's fallback, adds no token."""

    last_segment = ""

    def __init__(self):
        self.count = 0

    def add_token(self, _):
        """Count it."""
        self.count += 1

    def finalize(self):
        """Do nothing."""


def prepare(model, setup):
    """Return the call; its result is the number of tokens of each row."""
    import mlx.core as mx
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from mlx_tune.losses import build_shared_prompt_cache, fork_prompt_cache, generate_with_log_probs

    class Tokenizer(TokenizerWrapper):
        """Of the type that mlx-lm loads: no end token, for lengths are given, and texts that cost nothing."""

        eos_token_ids = frozenset()
        detokenizer = Texts()

        def __init__(self):
            """Wrap nothing."""

        def decode(self, _):
            """Return no text."""
            return ""

    tokenizer = Tokenizer()
    prompt = mx.array(setup["prompt"])

    def generate(shared, length):
        ids, _ = generate_with_log_probs(
            model,
            tokenizer,
            prompt,
            max_tokens=length,
            temperature=setup["temperature"],
            prompt_cache=fork_prompt_cache(model, shared),
        )
        mx.eval(ids)
        completion = ids[len(prompt) :]
        tokenizer.decode(completion.tolist())
        return completion.size

    def roll():
        tokenizer.detokenizer.count = 0
        shared = build_shared_prompt_cache(model, prompt)
        found = [generate(shared, length) for length in setup["lengths"]]
        if shared is None or tokenizer.detokenizer.count != sum(found):
            raise RuntimeError(
                "mlx-tune made its tokens without a cache, must make them with one: it fell back in silence"
            )
        return found

    return roll

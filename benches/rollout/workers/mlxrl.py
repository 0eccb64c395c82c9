"""Rolls out as mlxrl does, by its prefix-cached group rollout, with rows that end where they are told to.

mlxrl has no limit for a single row, so an end token is forced through the logits: +1e9 where a row is to end, -1e9 where
not. It decodes a group together until the first early end, then starts again row by row; this file follows both.
"""

END = 2
SURE = 1e9


class Ending:
    """The model, with the end token forced. Token 0 of a row comes from the prefill, token t from the t-th step."""

    def __init__(self, model, lengths):
        self.model, self.lengths = model, lengths

    def __getattr__(self, name):
        return getattr(self.model, name)

    def begin(self):
        """Expect a prefill."""
        self.token, self.row = 0, 0

    def __call__(self, ids, cache=None):
        """Return the model's logits with the end token's replaced, in its last column."""
        logits = self.model(ids, cache=cache)
        if ids.shape[1] == 1:
            if ids.shape[0] == 1 and len(self.lengths) > 1:  # row by row, anew from the first
                ends = self._alone()
            else:
                self.token += 1
                ends = [length == self.token + 1 for length in self.lengths]
        else:
            ends = [False] * ids.shape[0]
        import mlx.core as mx

        force = mx.array([SURE if end else -SURE for end in ends], logits.dtype)
        logits[:, -1, END] = force
        return logits

    def _alone(self):
        if self.row == 0 and not getattr(self, "alone", False):
            self.alone, self.token = True, 0
        self.token += 1
        length = self.lengths[self.row]
        end = length == self.token + 1
        if end or self.token + 1 == self.most:
            self.row, self.token = self.row + 1, 0
        return [end]


class Tokenizer:
    """What mlxrl asks of one: texts cost nothing."""

    def decode(self, _):
        """Return no text."""
        return ""


def prepare(model, setup):
    """Return the call; its result is the number of tokens of each row."""
    from mlxrl.rollout import naive, optimized

    ending = Ending(model, setup["lengths"])
    ending.most = setup["tokens"]
    config = naive.SamplingConfig(
        max_tokens=setup["tokens"], temperature=setup["temperature"], top_p=setup["top_p"], min_p=0.0, top_k=0
    )

    def roll():
        ending.begin()
        ending.alone = False
        prefix = optimized.prefill_prompt_once(ending, setup["prompt"])
        rows = optimized.generate_group_from_prefix_cache(
            model=ending,
            tokenizer=Tokenizer(),
            prefix=prefix,
            group_size=len(setup["lengths"]),
            config=config,
            eos_token_ids=frozenset((END,)),
        )
        return [len(tokens) for tokens, _, _ in rows]

    return roll

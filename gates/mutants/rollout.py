"""Mistakes in rollouts."""

from gates.mutants.planting import in_trainer

in_trainer(
    "rollout.prompts-tiled",
    "rollout.rows:prompt_of_row",
    "tiled",
    mistake="prompts are tiled where each is to be repeated, so groups mix prompts",
    arises="numpy.tile for numpy.repeat",
    caught_by=("rollout.batched.equals-naive",),
)
in_trainer(
    "rollout.draws-by-position",
    "rollout.rows:draw_index",
    "position_in_batch",
    mistake="the draws of a row depend on its place in the batch",
    arises="one random state for the whole batch, split by position",
    caught_by=("rollout.row-alone.equals-batch", "rollout.batched.equals-naive"),
)
in_trainer(
    "rollout.finished-rows-go-on",
    "rollout.rows:finished",
    "never_finished",
    mistake="rows go on after their first EOS, and their tokens count",
    arises="a `done` flag that is overwritten each step instead of or-ed",
    caught_by=("rollout.rows.end-at-first-eos", "rollout.batched.equals-naive"),
)
in_trainer(
    "rollout.untempered-draw",
    "sampling:temper",
    "untempered",
    mistake="tokens are drawn at temperature 1 whatever was asked for",
    arises="a temperature that only the recorded log-probs see",
    caught_by=("rollout.batched.equals-naive",),
)

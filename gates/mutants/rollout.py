"""Mistakes in rollouts."""

from gates.model import Mutant
from gates.mutants.planting import PATCHES, in_trainer
from gates.registry import REGISTRY

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


def _in_rollout(name: str, seam: str, patch: str, *, mistake: str, arises: str, caught_by: tuple[str, ...]) -> None:
    where = f"{PATCHES}.rollout:{patch}"
    target = f"reference.trainer.rollout.{seam}"
    REGISTRY.add_mutant(Mutant(f"rollout.{name}", mistake, "reference", target, where, caught_by, "", arises))


_in_rollout(
    "stale-prefix-cache",
    "prefix:_prefill",
    "kept_over_updates",
    mistake="a prompt's cache outlives the weights that made it; no loss curve names it",
    arises="a prefix cache keyed by the prompt alone",
    caught_by=("rollout.update.reaches-every-path",),
)
_in_rollout(
    "compiled-weights-baked-in",
    "fixed:compile_step",
    "weights_baked_in",
    mistake="the compiled step keeps the weights of its first call",
    arises="mx.compile without inputs=[model.state]",
    caught_by=("rollout.update.reaches-every-path",),
)
_in_rollout(
    "compiled-padding-visible",
    "fixed:visible",
    "padding_visible",
    mistake="rows of the compiled step look at the padding before their text",
    arises="a mask made of the position alone",
    caught_by=("rollout.compiled.equals-naive",),
)
_in_rollout(
    "batched-padding-visible",
    "caches:_padded",
    "mask_forgets_padding",
    mistake="rows of a batch look at the padding before their text",
    arises="a left-pad mask for the prefill and none for the decode, or none at all",
    caught_by=("rollout.batched.equals-naive",),
)
_in_rollout(
    "recurrent-state-reads-padding",
    "caches:_padded",
    "state_reads_padding",
    mistake="a hybrid's recurrent state runs over the padding of ragged prompts",
    arises="left padding with a plain make_prompt_cache, as for attention",
    caught_by=("rollout.batched.equals-naive",),
)
_in_rollout(
    "last-token-twice",
    "caches:feed",
    "last_token_twice",
    mistake="the last prompt token is fed twice",
    arises="a whole prompt prefilled, then a decode loop that starts with its last token",
    caught_by=("rollout.cached.equals-naive", "rollout.prefix.equals-naive"),
)
_in_rollout(
    "scores-untempered",
    "sampler:logprobs",
    "untempered_scores",
    mistake="the recorded tempered log-probs are those at temperature 1",
    arises="one log-softmax of the raw logits for everything that is recorded",
    caught_by=("rollout.log-probs.match-definition",),
)
_in_rollout(
    "filters-dropped",
    "sampler:keywords",
    "filters_dropped",
    mistake="the fast sampler ignores top-k, top-p and min-p",
    arises="settings read by one of two samplers",
    caught_by=("rollout.draws.follow-distribution", "rollout.batched.equals-naive"),
)
_in_rollout(
    "penalty-forgets-prompt",
    "sampler:_histories",
    "history_without_prompt",
    mistake="the repetition penalty sees the completion only",
    arises="a history that starts empty",
    caught_by=("rollout.batched.equals-naive",),
)
_in_rollout(
    "kv-in-fewer-bits",
    "quantised:stored",
    "more_noise",
    mistake="keys and values are stored in 2 bits where 8 or 4 were asked for",
    arises="a bits argument that does not reach the cache",
    caught_by=("rollout.quantised.within-ratio",),
)

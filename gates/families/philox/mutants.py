"""Mutations of the random numbers of draws."""

from gates.families.hosts import in_numpy

in_numpy(
    "philox.seven-rounds",
    "sampling:rounds",
    "philox.patches:seven_rounds",
    mistake="seven rounds instead of ten",
    arises="Philox 4x32-7, the fewest rounds that pass BigCrush",
    theme="sampling",
    symptom="No curve shows it: no other implementation reproduces the tokens.",
    caught_by=("philox.known-answers",),
)
in_numpy(
    "philox.words-swapped",
    "sampling:rounds",
    "philox.patches:words_swapped",
    mistake="the output words are in another order",
    arises="lanes of a vectorised state stored in memory order",
    theme="sampling",
    symptom="No curve shows it: no other implementation reproduces the tokens.",
    caught_by=("philox.known-answers", "philox.uniforms.keyed"),
)
in_numpy(
    "philox.key-not-bumped",
    "sampling:rounds",
    "philox.patches:key_not_bumped",
    mistake="the key is not advanced between rounds",
    arises="the Weyl sequence forgotten",
    theme="sampling",
    symptom="No curve shows it: draws are weakly correlated, and no other implementation reproduces the tokens.",
    caught_by=("philox.known-answers",),
)
in_numpy(
    "philox.counter-fields-permuted",
    "sampling:keyed_words",
    "philox.patches:fields_permuted",
    mistake="the counter fields of prompt and sample are exchanged",
    arises="a counter with fields filled by position",
    theme="sampling",
    symptom="Few runs show it: some pairs of prompt and sample share their draws with other pairs.",
    caught_by=("philox.uniforms.keyed",),
)
in_numpy(
    "philox.round-forgotten",
    "sampling:keyed_words",
    "philox.patches:round_forgotten",
    mistake="every rollout uses the same random numbers",
    arises="a counter without the round",
    theme="sampling",
    symptom="A repeated prompt gets nearly the same completions: exploration falls each epoch.",
    caught_by=("philox.uniforms.keyed",),
)
in_numpy(
    "philox.seed-halves-swapped",
    "sampling:keyed_words",
    "philox.patches:seed_halves_swapped",
    mistake="the two words of the seed are exchanged",
    arises="a big-endian view of the seed",
    theme="sampling",
    symptom="No curve shows it: small seeds give draws other than documented.",
    caught_by=("philox.uniforms.keyed",),
)
in_numpy(
    "philox.one-word",
    "sampling:fraction",
    "philox.patches:one_word",
    mistake="uniforms have 32 random bits instead of 53: multiples of 2⁻³²",
    arises="words[0] / 2³²",
    theme="precision",
    symptom="No curve shows it: tokens of probability below 2e-10 are drawn never or too often.",
    caught_by=("philox.uniforms.keyed",),
)
in_numpy(
    "philox.coin-of-the-uniform",
    "sampling:xtc_coins",
    "philox.patches:coin_of_the_uniform",
    mistake="XTC's coin equals the uniform of the draw, so that XTC acts on the smallest draws",
    arises="one random number used twice",
    theme="sampling",
    symptom="Text with XTC is strange: the number that decides whether top tokens are removed also picks the token.",
    caught_by=("philox.uniforms.keyed",),
)

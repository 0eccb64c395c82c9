"""Mutations of the random numbers of draws."""

from gates.families.hosts import in_numpy

in_numpy(
    "philox.seven-rounds",
    "sampling:rounds",
    "philox.patches:seven_rounds",
    mistake="seven rounds instead of ten",
    arises="Philox 4x32-7, the fewest rounds that pass BigCrush",
    theme="sampling",
    symptom="Nothing in any curve: no replay against another implementation gives the same tokens.",
    caught_by=("philox.known-answers",),
)
in_numpy(
    "philox.words-swapped",
    "sampling:rounds",
    "philox.patches:words_swapped",
    mistake="the words come in another order",
    arises="lanes of a vectorised state stored as they lie",
    theme="sampling",
    symptom="Nothing in any curve: no replay against another implementation gives the same tokens.",
    caught_by=("philox.known-answers", "philox.uniforms.keyed"),
)
in_numpy(
    "philox.key-not-bumped",
    "sampling:rounds",
    "philox.patches:key_not_bumped",
    mistake="every round uses the same key",
    arises="the Weyl sequence forgotten",
    theme="sampling",
    symptom="Nothing in any curve: draws are weakly correlated, and no replay elsewhere gives the same tokens.",
    caught_by=("philox.known-answers",),
)
in_numpy(
    "philox.counter-fields-permuted",
    "sampling:keyed_words",
    "philox.patches:fields_permuted",
    mistake="prompt and sample stand in each other's place",
    arises="a counter filled by position",
    theme="sampling",
    symptom="Nothing in most runs: some pairs of prompt and sample share their draws with other pairs.",
    caught_by=("philox.uniforms.keyed",),
)
in_numpy(
    "philox.round-forgotten",
    "sampling:keyed_words",
    "philox.patches:round_forgotten",
    mistake="every rollout draws the same numbers",
    arises="a counter without the round",
    theme="sampling",
    symptom="A prompt that comes again gets nearly the same completions: exploration is lower each epoch.",
    caught_by=("philox.uniforms.keyed",),
)
in_numpy(
    "philox.seed-halves-swapped",
    "sampling:keyed_words",
    "philox.patches:seed_halves_swapped",
    mistake="the high word of the seed comes first",
    arises="a big-endian view of the seed",
    theme="sampling",
    symptom="Nothing in any curve: small seeds give other draws than documented.",
    caught_by=("philox.uniforms.keyed",),
)
in_numpy(
    "philox.one-word",
    "sampling:fraction",
    "philox.patches:one_word",
    mistake="32 bits instead of 53: u is a multiple of 2⁻³²",
    arises="words[0] / 2³²",
    theme="precision",
    symptom="Nothing in any curve: tokens of probability below 2e-10 are never or too often drawn.",
    caught_by=("philox.uniforms.keyed",),
)
in_numpy(
    "philox.coin-of-the-uniform",
    "sampling:xtc_coins",
    "philox.patches:coin_of_the_uniform",
    mistake="the coin is the uniform, so XTC acts on the smallest draws",
    arises="one random number used twice",
    theme="sampling",
    symptom="Text with XTC on is odd: whether top tokens go depends on the very number that then picks the token.",
    caught_by=("philox.uniforms.keyed",),
)

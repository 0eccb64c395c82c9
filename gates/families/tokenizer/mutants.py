"""Mutations between texts and tokens."""

from gates.families.hosts import in_trainer

in_trainer(
    "tokenizer.no-generation-prompt",
    "data.prompts:encode",
    "tokenizer.patches:without_generation_prompt",
    mistake="the chat template ends with the user's message, so the model is asked to go on as the user",
    arises="apply_chat_template's default of add_generation_prompt=False",
    source="stanford-crfm/helm#3698: generation prompt off by default",
    theme="tokenizer",
    symptom="First rewards are near 0 and answers begin with a role's name; later the policy learns the header itself.",
    caught_by=("tokenizer.equals-transformers",),
)
in_trainer(
    "tokenizer.stripped-prompt",
    "data.prompts:encode",
    "tokenizer.patches:stripped",
    mistake="prompts lose the white space at their ends before they are encoded",
    arises="a strip() in the reader of the data",
    theme="tokenizer",
    symptom="Nothing in most curves: prompts that end in a space or a line break are other prompts than in evaluation.",
    caught_by=("tokenizer.equals-transformers", "tokenizer.round-trip"),
)
in_trainer(
    "tokenizer.special-tokens-dropped",
    "data.prompts:decode",
    "tokenizer.patches:without_special_tokens",
    mistake="decoding drops special tokens, so a reward never sees that the model spoke as somebody else",
    arises="skip_special_tokens=True, the default of many decoders",
    source="jingyaogong/minimind#850: special tokens vanish from text",
    theme="tokenizer",
    symptom="Reward rises while the model writes whole turns of the user: the reward function never sees them.",
    caught_by=("tokenizer.round-trip",),
)

"""Mutations between texts and tokens."""

from gates.families.hosts import in_trainer

in_trainer(
    "tokenizer.no-generation-prompt",
    "data.prompts:encode",
    "tokenizer.patches:without_generation_prompt",
    mistake="the chat template ends with the user's message, without the header of the assistant",
    arises="apply_chat_template's default of add_generation_prompt=False",
    source="stanford-crfm/helm#3698: generation prompt off by default",
    theme="tokenizer",
    symptom="Early rewards are near 0 and answers begin with a role's name; later the policy learns the header itself.",
    caught_by=("tokenizer.equals-transformers",),
)
in_trainer(
    "tokenizer.stripped-prompt",
    "data.prompts:encode",
    "tokenizer.patches:stripped",
    mistake="white space at the ends of prompts is stripped before encoding",
    arises="a strip() in the data loader",
    theme="tokenizer",
    symptom="Few curves show it: prompts that end in a space or a line break differ from those in evaluation.",
    caught_by=("tokenizer.equals-transformers", "tokenizer.round-trip"),
)
in_trainer(
    "tokenizer.special-tokens-dropped",
    "data.prompts:decode",
    "tokenizer.patches:without_special_tokens",
    mistake="decoding drops special tokens, so that rewards do not see turns of other roles",
    arises="skip_special_tokens=True, the default of many decoders",
    source="jingyaogong/minimind#850: special tokens vanish from text",
    theme="tokenizer",
    symptom="Reward rises while the model writes whole turns of the user, which the reward function does not see.",
    caught_by=("tokenizer.round-trip",),
)

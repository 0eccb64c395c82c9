"""Mutations of generalised advantage estimation."""

from gates.families.hosts import in_numpy

GATE = ("advantages.gae.matches-definition",)

in_numpy(
    "gae.terminal-keeps-the-trace",
    "advantages:gae",
    "advantages.patches:trace_over_the_end",
    mistake="a terminal token stops the bootstrap value but not the advantage of the next token",
    arises="nextnonterminal applied to the residual only",
    theme="advantages",
    symptom="Tokens before the end of an episode are credited with the next one; longer batches learn worse.",
    caught_by=GATE,
)
in_numpy(
    "gae.bootstrap-forgotten",
    "advantages:gae",
    "advantages.patches:nothing_follows",
    mistake="the value after the last token of a row is 0",
    arises="values padded with a zero at the end",
    theme="advantages",
    symptom="Truncated completions look worse than they are: the policy learns to be short.",
    caught_by=GATE,
)
in_numpy(
    "gae.masked-slots-are-steps",
    "advantages:gae",
    "advantages.patches:every_slot",
    mistake="the recurrence also steps through slots without a token",
    arises="a recurrence over the padded width, masked afterwards",
    theme="masks and shifts",
    symptom="Tokens before tool output or padding are discounted too much.",
    caught_by=GATE,
)

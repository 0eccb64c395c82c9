"""The rows of the conformance matrix: what people choose, then the parts that every choice rests on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gates.results.conformance_records import ConformanceResults, FindingRecord
from gates.subjects.peers import declared, environments

OP = re.compile(r"(?P<family>\w+)(?:\[(?P<choices>.*)\])?")
WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        title: as people search for it.
        presets: what stands in an op's brackets: `dapo` of `policy_loss[dapo, row mean]` and `loss_from_logits[dapo]`.
        trainers: whose updates show it: `grpo` of `training_step[grpo]`.
        families: ops that are about it whatever stands in their brackets.
        words: how code names it, each a sequence of words: ("dr", "grpo") is in `DrGRPOTrainer` and `dr_grpo`.
        algorithm: whether it is a choice, and no part of all choices.
    """

    title: str
    presets: tuple[str, ...] = ()
    trainers: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    words: tuple[tuple[str, ...], ...] = ()
    algorithm: bool = True

    def has(self, op: str) -> bool:
        """Return whether an op is about this row."""
        parts = OP.fullmatch(op)
        if parts is None:
            return False
        family, preset = parts["family"], (parts["choices"] or "").partition(", ")[0]
        if family == "training_step":
            return preset in (*self.trainers, *self.presets)
        return family in self.families or (preset in self.presets and family not in OF_FAMILY)

    def names(self, identifier: str) -> bool:
        """Return whether an identifier has this row's words, side by side."""
        parts = [part.lower() for part in WORDS.findall(identifier)]
        return any(
            tuple(parts[start : start + len(words)]) == words for words in self.words for start in range(len(parts))
        )


def _part(title: str, *families: str, words: tuple[tuple[str, ...], ...], trainers: tuple[str, ...] = ()) -> Row:
    return Row(title, families=families, words=words, trainers=trainers, algorithm=False)


ROWS = (
    Row("GRPO", ("grpo",), ("grpo",), words=(("grpo",),)),
    Row("Dr. GRPO", ("dr_grpo",), words=(("dr", "grpo"),)),
    Row("DAPO", ("dapo",), families=("keep_groups", "overlong_penalty"), words=(("dapo",),)),
    Row("GSPO", ("gspo", "gspo-token"), words=(("gspo",),)),
    Row("RLOO", ("rloo",), ("rloo",), words=(("rloo",),)),
    Row("REINFORCE, REINFORCE++", ("reinforce", "reinforce++"), ("reinforce",), words=(("reinforce",),)),
    Row("CISPO", ("cispo",), words=(("cispo",),)),
    Row("SAPO", ("sapo",), words=(("sapo",),)),
    Row("PPO", ("ppo",), ("ppo",), words=(("ppo",),)),
    Row(
        "other policy losses",
        ("bnpo-trl", "gmpo", "luspo", "vespo"),
        words=(("bnpo",), ("gmpo",), ("luspo",), ("vespo",)),
    ),
    Row("DPO", ("dpo",), ("dpo",), words=(("dpo",),)),
    Row("IPO", ("ipo",), words=(("ipo",),)),
    Row("KTO", ("kto",), ("kto",), families=("kto_loss",), words=(("kto",),)),
    Row("ORPO", ("orpo",), ("orpo",), words=(("orpo",),)),
    Row("SimPO", ("simpo",), ("simpo",), words=(("simpo",), ("sim", "po"))),
    Row("CPO", ("cpo",), ("cpo",), words=(("cpo",),)),
    Row("Online DPO", trainers=("online_dpo",), words=(("online", "dpo"),)),
    Row(
        "other preference losses",
        ("hinge", "dpop"),
        ("xpo", "best_of_n"),
        families=("best_of_n",),
        words=(("hinge",), ("dpop",), ("xpo",)),
    ),
    Row("SFT", trainers=("sft",), words=(("sft",),)),
    _part(
        "advantages",
        *("group_advantages", "normalise_then_sum", "gae"),
        words=(("advantage",), ("advantages",)),
    ),
    _part("KL", "token_kl", "full_kl", "rewarded_loss", words=(("kl",),)),
    _part("sampler", "filtered_logprobs", words=(("sampler",), ("top", "p"))),
    _part(
        "log-probs",
        *("selective_log_softmax", "selective_log_softmax_backward", "importance_ratio", "importance_weights"),
        words=(("logprobs",), ("logps",), ("log", "probs"), ("logprob",)),
    ),
    _part("packing", "pack_sequences", words=(("pack",), ("packing",), ("packed",))),
    _part("reference policy", words=(("ref", "model"), ("reference",), ("ref",)), trainers=("dpo", "kto")),
    _part("resume", words=(("resume",),)),
    _part("configuration", "resolve_config", words=()),
)
BY_TITLE = {row.title: row for row in ROWS}
OF_FAMILY = {family for row in ROWS for family in row.families}  # whose brackets hold no algorithm
TRAINERS = {"online-dpo": "Online DPO", "xpo": "other preference losses"}  # variants that are another trainer


def rows_of(op: str, subject: str) -> list[Row]:
    """Return the rows that an op of a library or of one of its variants is about."""
    if (variant := subject.partition("@")[2]) in TRAINERS:
        return [BY_TITLE[TRAINERS[variant]]]
    return [row for row in ROWS if row.has(op)]


def placed(library: ConformanceResults) -> dict[str, list[Row]]:
    """Return the rows of each finding, by id: those of its ops, of the preset it departs from, and those it names itself."""
    written = _written(library.header.peer)
    return {finding.id: _rows(finding, written.get(finding.id, ())) for finding in library.findings}


def _rows(finding: FindingRecord, written: Iterable[str]) -> list[Row]:
    ops = [op.rpartition(": ")[2] for op in finding.ops]
    presets = {departure.partition(", ")[0] for departure in finding.departures}
    named = {*written, *finding.rows}
    return [
        row for row in ROWS if row.title in named or presets.intersection(row.presets) or any(row.has(op) for op in ops)
    ]


def _written(peer: str) -> dict[str, tuple[str, ...]]:
    """Return the rows in the library's declaration: a record from before findings had rows does not hold them."""
    known = environments.peers().get(peer)
    return {finding.id: finding.rows for finding in declared.conformance(known).finding} if known else {}

"""The catalogue of mutants: every mutant is described in full, its links have one form, and a page shows it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gates.model import THEMES, ConfigurationError, Mutant
from gates.registry import Registry, load
from gates.report.catalogue import as_item, chosen, is_public, page, reports

DESCRIBED = Mutant("a.b", "x", "s", "m:f", "p:f", ("g.one", "g.two"), "", "a test", "KL", "KL rises.")


class TestTheCatalogue:
    """What each mutant declares."""

    def test_at_least_eighty_mutants_were_reported_in_public(self) -> None:
        """At least 80 mutants link a public thread, and only one that shows the same formula or the same bug."""
        assert sum(map(is_public, load().mutants.values())) >= 80

    @pytest.mark.parametrize("mutant", load().mutants.values(), ids=lambda m: m.name)
    def test_a_link_has_one_form(self, mutant: Mutant) -> None:
        """What looks like a thread is `owner/repo#7: a few words`, and addresses stand nowhere else."""
        for seen in reports(mutant.source):
            if seen.thread:
                assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/issues/[1-9]\d*", seen.url)
                assert 2 <= len(seen.words.split()) <= 8, seen.words
            else:
                assert not re.search(r"#\d|github\.com", seen.words), seen.words
        assert "#" not in mutant.arises

    def test_every_theme_has_mutants(self) -> None:
        """No theme is empty, so the page has no gap."""
        assert {mutant.theme for mutant in load().mutants.values()} == set(THEMES)


class TestThePage:
    """How mutants become a page."""

    def test_an_entry_has_every_fact(self) -> None:
        """Mistake, symptom, reports, host, target and gates."""
        mutant = replace(DESCRIBED, source="lib 1.2 f; some-body/a.lib#7: drops the mask")
        for words in (
            "## KL",
            "- **a.b**: x. In training: KL rises. ",
            " Reported in lib 1.2 f; [some-body/a.lib#7](https://github.com/some-body/a.lib/issues/7): drops the mask. ",
            " Arises from: a test. ",
            " Applied to `s`, target `m:f`; caught by `g.one`, `g.two`.",
        ):
            assert words in page([mutant])
        assert as_item(mutant)["seen_in"][1]["thread"] == "some-body/a.lib#7"

    def test_the_order_of_registration_does_not_matter(self) -> None:
        """Mutants are sorted by name within their theme."""
        other = replace(DESCRIBED, name="a.a")
        assert page([DESCRIBED, other]) == page([other, DESCRIBED])

    @pytest.mark.parametrize("pattern", ["a.b", "a", "a.*", "KL", "g.one", "g"])
    def test_what_a_pattern_names(self, pattern: str) -> None:
        """A mutant, a prefix, a glob, a theme, a gate that catches it."""
        registry = Registry(
            mutants={"a.b": DESCRIBED, "c.d": replace(DESCRIBED, name="c.d", theme="packing", caught_by=("h",))}
        )
        assert chosen(registry, [pattern]) == [DESCRIBED]

    def test_a_pattern_that_names_nothing_is_refused(self) -> None:
        """The error says what can be named."""
        with pytest.raises(ConfigurationError, match=r"no mutant matches 'zz'; name .* masks and shifts"):
            chosen(Registry(mutants={"a.b": DESCRIBED}), ["zz"])

    @pytest.mark.parametrize(
        ("changes", "message"),
        [({"theme": "weather"}, "has theme 'weather', must have one of: masks"), ({"symptom": ""}, "has symptom ''")],
        ids=["theme", "symptom"],
    )
    def test_a_mutant_without_a_description_is_refused(self, changes: dict[str, str], message: str) -> None:
        """Without a theme or a symptom a mutant is not registered, and the error says what is missing."""
        with pytest.raises(ConfigurationError, match=message):
            Registry().add_mutant(replace(DESCRIBED, **changes))  # type: ignore[arg-type]  values of two text fields

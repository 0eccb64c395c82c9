"""The catalogue of mutants: complete descriptions, uniform links, and the generated page."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gates.model import THEMES, ConfigurationError, Mutant
from gates.registry import Registry, load
from gates.report.catalogue import as_item, chosen, is_public, page, reports

DESCRIBED = Mutant("a.b", "x", "s", "m:f", "p:f", ("g.one", "g.two"), "", "a test", "KL", "KL rises.")


class TestTheCatalogue:
    """The declarations of mutants."""

    def test_at_least_eighty_mutants_were_reported_in_public(self) -> None:
        """At least 80 mutants link a public thread about the same formula or bug."""
        assert sum(map(is_public, load().mutants.values())) >= 80

    @pytest.mark.parametrize("mutant", load().mutants.values(), ids=lambda m: m.name)
    def test_links_have_one_form(self, mutant: Mutant) -> None:
        """Threads are written `owner/repo#7: a few words`, and URLs stand nowhere else."""
        for seen in reports(mutant.source):
            if seen.thread:
                assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/issues/[1-9]\d*", seen.url)
                assert 2 <= len(seen.words.split()) <= 8, seen.words
            else:
                assert not re.search(r"#\d|github\.com", seen.words), seen.words
        assert "#" not in mutant.arises

    def test_every_theme_has_mutants(self) -> None:
        """No theme of the page is empty."""
        assert {mutant.theme for mutant in load().mutants.values()} == set(THEMES)


class TestThePage:
    """The page of mutants."""

    def test_an_entry_has_every_fact(self) -> None:
        """Mutation, symptom, reports, host, target and gates."""
        mutant = replace(DESCRIBED, source="lib 1.2 f; some-body/a.lib#7: drops the mask")
        for fact in (
            "## KL",
            "- **a.b**: x. In training: KL rises. ",
            " Reported in lib 1.2 f; [some-body/a.lib#7](https://github.com/some-body/a.lib/issues/7): drops the mask. ",
            " Arises from: a test. ",
            " Applied to `s`, target `m:f`; caught by `g.one`, `g.two`.",
        ):
            assert fact in page([mutant])
        assert as_item(mutant)["seen_in"][1]["thread"] == "some-body/a.lib#7"

    def test_the_order_of_registration_does_not_matter(self) -> None:
        """Mutants are sorted by name within their theme."""
        earlier = replace(DESCRIBED, name="a.a")
        assert page([DESCRIBED, earlier]) == page([earlier, DESCRIBED])

    @pytest.mark.parametrize("pattern", ["a.b", "a", "a.*", "KL", "g.one", "g"])
    def test_patterns_select_mutants(self, pattern: str) -> None:
        """By name, prefix, glob, theme or catching gate."""
        registry = Registry(
            mutants={"a.b": DESCRIBED, "c.d": replace(DESCRIBED, name="c.d", theme="packing", caught_by=("h",))}
        )
        assert chosen(registry, [pattern]) == [DESCRIBED]

    def test_a_pattern_without_matches_is_refused(self) -> None:
        """The error lists what patterns can match."""
        with pytest.raises(ConfigurationError, match=r"no mutant matches 'zz'; name .* masks and shifts"):
            chosen(Registry(mutants={"a.b": DESCRIBED}), ["zz"])

    @pytest.mark.parametrize(
        ("changes", "message"),
        [({"theme": "weather"}, "has theme 'weather', must have one of: masks"), ({"symptom": ""}, "has symptom ''")],
        ids=["theme", "symptom"],
    )
    def test_a_mutant_without_a_description_is_refused(self, changes: dict[str, str], message: str) -> None:
        """Without a theme or a symptom a mutant is not registered; the error names the missing field."""
        with pytest.raises(ConfigurationError, match=message):
            Registry().add_mutant(replace(DESCRIBED, **changes))  # type: ignore[arg-type]  values of two text fields

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosilo.data.wording import closest, listing, toml_key


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("UA", "UA"),
        ("9E", "9E"),
        ("a-b_c", "a-b_c"),
        ("?", '"?"'),
        ("", '""'),
        ("St. Mary", '"St. Mary"'),
        ("Zürich", '"Zürich"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
    ],
)
def test_keys_are_quoted_only_where_toml_asks_for_it(name: str, key: str) -> None:
    assert toml_key(name) == key


@given(st.text())  # without surrogates, which no file holds
def test_toml_reads_every_key_back(name: str) -> None:
    assert tomllib.loads(f"[silos.{toml_key(name)}]\ncapacity = 1") == {"silos": {name: {"capacity": 1}}}


def test_the_closest_name_whatever_its_case() -> None:
    assert closest("privat", ["PRIVATE", "State-gov"]) == "PRIVATE"
    assert closest("x", ["PRIVATE"]) is None
    assert closest("x", []) is None


def test_a_listing_names_three() -> None:
    assert listing(["b", "a"]) == "'a', 'b'"
    assert listing("dcba") == "'a', 'b', 'c' and more"

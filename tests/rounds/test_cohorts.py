"""Cohorts: balanced, without repeats, public, different between runs."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cosilo.rounds import Schedule


@given(st.integers(1, 12), st.data())
def test_balance(silos: int, data: st.DataObject):
    size = data.draw(st.integers(1, silos))
    rounds = data.draw(st.integers(1, 40))
    schedule = Schedule(bytes(32), [f"s{i}" for i in range(silos)], size)
    counts: Counter[str] = Counter()
    for number in range(1, rounds + 1):
        cohort = schedule.cohort(number)
        assert len(set(cohort)) == size
        counts.update(cohort)
        assert max(counts.values()) <= math.ceil(size * number / silos)


def test_it_is_a_function_of_run_and_round_only():
    names = list("abcdefg")
    one, other = Schedule(b"r" * 32, names, 3), Schedule(b"r" * 32, names[::-1], 3)
    assert one.cohort(9) == other.cohort(9)
    assert [one.cohort(i) for i in range(1, 9)] == [other.cohort(i) for i in range(1, 9)]
    different = Schedule(b"s" * 32, names, 3)
    assert [one.cohort(i) for i in range(1, 9)] != [different.cohort(i) for i in range(1, 9)]


@pytest.mark.parametrize("round_number", [1, 2, 3])
def test_every_silo_is_equally_likely(round_number: int):
    # 3 of 7: 7 equally likely silos; chi-square at 1e-9 over 4,000 runs.
    counts: Counter[str] = Counter()
    for run in range(4000):
        counts.update(Schedule(run.to_bytes(32, "big"), list("abcdefg"), 3).cohort(round_number))
    assert stats.chisquare([counts[s] for s in "abcdefg"]).pvalue > 1e-9

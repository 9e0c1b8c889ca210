"""Streams: a published AES vector, domain separation, no reuse, coins that round to the private side."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cosilo.entropy import Context, Entropy, Purpose, Stream
from cosilo.errors import ConfigError, EntropyReuseError


def context(
    *, silo: str = "a", round_: int = 1, attempt: int = 1, purpose: Purpose = "noise", run: bytes = bytes(32)
) -> Context:
    return Context(run=run, silo=silo, round=round_, attempt=attempt, purpose=purpose)


def test_keystream_is_aes_256_ctr():
    # AES-256 of the zero block under the zero key: H of test case 13 in McGrew and Viega, "The Galois/Counter Mode
    # of Operation (GCM)", appendix B.
    assert Stream(bytes(32)).words(2).astype("<u8").tobytes().hex() == "dc95c078a2408989ad48a21492842087"


def test_a_stream_read_in_pieces_is_the_stream_read_at_once():
    whole = Stream(bytes(range(32))).words(100_000)
    pieces = Stream(bytes(range(32)))
    assert np.array_equal(whole, np.concatenate([pieces.words(n) for n in (1, 40_000, 59_999)]))


def test_filling_in_place_reads_the_same_stream():
    whole, filled = Stream(bytes(32)).words(100_003), np.empty(100_003, np.uint64)
    stream = Stream(bytes(32))
    for start in (0, 7, 40_000):
        stream.fill(filled[start : {0: 7, 7: 40_000, 40_000: 100_003}[start]])
    stream.fill(filled[:0])
    assert np.array_equal(whole, filled)
    with pytest.raises(ConfigError, match="contiguous uint64"):
        stream.fill(np.empty(4, np.int64))
    with pytest.raises(ConfigError, match="contiguous uint64"):
        stream.fill(np.empty(8, np.uint64)[::2])


def test_every_field_of_the_context_separates_streams():
    contexts = [
        context(),
        context(silo="b"),
        context(round_=2),
        context(attempt=2),
        context(purpose="batch"),
        context(purpose="rounding"),
        context(run=b"\1" * 32),
        Context(run=bytes(32), silo="a", round=1, attempt=1, purpose="noise", step=1),
    ]
    first_words = {int(Entropy.seeded(1, "a").stream(c).words(1)[0]) for c in contexts}
    assert len(first_words) == len(contexts)


def test_owners_and_seeds_separate_streams_and_the_same_seed_repeats():
    def first(seed: int, owner: str) -> int:
        return int(Entropy.seeded(seed, owner).stream(context()).words(1)[0])

    assert first(1, "a") == first(1, "a")
    assert len({first(1, "a"), first(1, "b"), first(2, "a")}) == 3


def test_system_entropy_never_repeats_across_instances():
    words = {int(Entropy.system().stream(context()).words(1)[0]) for _ in range(50)}
    assert len(words) == 50


def test_the_same_stream_is_handed_out_once():
    entropy = Entropy.system()
    entropy.stream(context())
    with pytest.raises(EntropyReuseError, match="round 1, attempt 1 was asked for twice"):
        entropy.stream(context())


def test_the_root_key_is_not_in_the_repr():
    entropy = Entropy.system()
    assert "root" not in repr(entropy)


@given(st.text(max_size=8), st.text(max_size=8))
def test_context_encoding_is_injective_in_texts(one: str, other: str):
    assert (context(silo=one).encoded() == context(silo=other).encoded()) == (one == other)


def test_coins_have_their_probability():
    # Binomial two-sided test at 1e-9; at p = 0.1 a coin of 0.103 or 0.097 is rejected (10 sd away).
    n, p = 1_000_000, 0.1
    heads = int(Entropy.system().stream(context()).coins(n, p).sum())
    assert stats.binomtest(heads, n, p).pvalue > 1e-9
    assert stats.binomtest(int(heads * 1.03), n, p).pvalue < 1e-9
    assert stats.binomtest(int(heads * 0.97), n, p).pvalue < 1e-9


def test_coins_at_the_ends():
    stream = Entropy.system().stream(context())
    assert not stream.coins(1000, 0.0).any()
    assert stream.coins(1000, 1.0).all()
    assert not stream.coins(100_000, 2.0**-70).any()  # rounds down to 0: never more often than asked


def test_rounds_and_attempts_only_go_forward_and_what_is_past_is_forgotten():
    entropy = Entropy.system()
    for number in range(1, 200):
        for attempt in (1, 2):
            for purpose in ("noise", "rounding", "batch"):
                entropy.stream(context(round_=number, attempt=attempt, purpose=purpose))
    assert sum(len(attempt.used) for attempt in entropy._latest.values()) == 3
    for number, attempt in ((7, 1), (199, 1), (199, 2)):
        with pytest.raises(EntropyReuseError, match="was asked for twice, or after a later one"):
            entropy.stream(context(round_=number, attempt=attempt))
    entropy.stream(context(silo="b"))  # another silo, another run: places of their own
    entropy.stream(context(run=b"\1" * 32))

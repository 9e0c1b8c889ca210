"""One round as bytes: what participants refuse, what coordinators refuse, that the noise is the planned one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cosilo.entropy import Entropy
from cosilo.errors import DivergedError, EntropyReuseError, ProtocolError, RefusedError, TooFewSilosError
from cosilo.job import Job
from cosilo.job.schema import Sgd
from cosilo.lattice import decode, unwrap, wrap
from cosilo.local import Release, StepDesk
from cosilo.optimizers import build
from cosilo.planning import Facts, Plan, make_plan
from cosilo.rounds import Coordinator, CoordinatorState, Participant, Schedule, Task, Update
from cosilo.rounds.messages import Vector, model_digest

RUN = bytes(range(32))
SILOS = ("a", "b", "c", "d")


@dataclass
class Constant:
    """A rule that always releases the same vector."""

    vector: Vector

    def release(self, theta: Vector, desk: StepDesk) -> Release:
        del theta
        return Release(desk.noisy(0, self.vector).integers, 0)


def vector_of(plan: Plan, update: Update) -> Vector:
    return decode(unwrap(update.residues, plan.ring_bits), plan.lattice(update.silo))


def make(dim: int = 3, *, cohort: int = 4, rounds: int = 3, survivors: int | None = None) -> tuple[Plan, Schedule]:
    federation = {"rounds": rounds, "cohort": cohort} | ({"min_survivors": survivors} if survivors else {})
    privacy = {"epsilon": 1.0, "delta": 1e-5, "against": "outsider", "colluding_silos": 0}
    job = Job.parse({"model": {}, "federation": federation, "local": {"clipping_norm": 0.5}, "privacy": privacy})
    plan = make_plan(job, Facts(capacities=dict.fromkeys(SILOS, 50), dim=dim))
    return plan, Schedule(RUN, SILOS, cohort)


def participant(plan: Plan, schedule: Schedule, silo: str = "a", value: float = 0.0) -> Participant:
    work = Constant(np.full(plan.dim, value))
    return Participant(silo=silo, run=RUN, plan=plan, schedule=schedule, work=work, entropy=Entropy.system())


def coordinator(plan: Plan, schedule: Schedule, lr: float = 1.0, averaging: float = 0.0) -> Coordinator:
    return Coordinator(RUN, plan, schedule, build(Sgd(lr=lr)), averaging)


def task(number: int = 1, attempt: int = 1, dim: int = 3, run: bytes = RUN) -> bytes:
    return Task(run=run, round=number, attempt=attempt, vector=np.zeros(dim)).encode()


@settings(deadline=None)  # the first call loads the compiled kernels
@given(
    st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1), st.text(max_size=20), st.integers(0, 50), st.integers(8, 64)
)
def test_messages_round_trip(number: int, attempt: int, silo: str, dim: int, bits: int):
    residues = np.random.default_rng(dim).integers(0, 1 << bits, size=dim, dtype=np.uint64, endpoint=False)
    update = Update(
        run=RUN, round=number, attempt=attempt, silo=silo, model=b"m" * 32, ring_bits=bits, residues=residues
    )
    back = Update.decode(update.encode())
    assert (back.run, back.round, back.attempt, back.silo, back.model) == (RUN, number, attempt, silo, b"m" * 32)
    assert back.ring_bits == bits
    assert np.array_equal(back.residues, residues)
    model = Task(run=RUN, round=number, attempt=attempt, vector=residues.astype(np.float64))
    assert np.array_equal(Task.decode(model.encode()).vector, model.vector)


@given(st.data())
def test_a_damaged_task_is_refused(data: st.DataObject):
    whole = bytearray(task())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    plan, schedule = make()
    if 8 + 1 <= place < 8 + 1 + 32 + 8:  # run id, round, attempt: well formed, checked by the participant
        changed = Task.decode(bytes(whole))
        assert (changed.run, changed.round, changed.attempt) != (RUN, 1, 1)
        return
    with pytest.raises(ProtocolError):
        participant(plan, schedule).reply(bytes(whole))


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes):
    with pytest.raises(ProtocolError):
        Update.decode(garbage)


def test_a_length_is_checked_before_it_is_allocated():
    huge = bytearray(task())
    huge[83:91] = (1 << 60).to_bytes(8, "big")
    with pytest.raises(ProtocolError, match="does not have the length it declares"):
        Task.decode(bytes(huge))


def test_a_non_finite_model_or_update_is_refused():
    bad = Task(run=RUN, round=1, attempt=1, vector=np.array([np.nan, 0, 0])).encode()
    with pytest.raises(ProtocolError, match="non-finite"):
        Task.decode(bad)


def test_the_reply_is_the_release_plus_the_planned_noise():
    plan, schedule = make(dim=200_000)
    silo = participant(plan, schedule, value=7.0)
    update = Update.decode(silo.reply(task(dim=200_000)))
    noise = vector_of(plan, update) - 7.0
    sd = plan.sigma * plan.granularity
    assert abs(sd / (plan.share_multiplier * 0.5) - 1) < 1e-3
    # Two-sided chi-square of the sum of squares at 1e-9; 3 % more or less noise is 19 sd away.
    for factor, fits in ((1.0, True), (0.97, False), (1.03, False)):
        p = stats.chi2.cdf(float((noise**2).sum()) * factor**2 / sd**2, noise.size)
        assert bool(min(p, 1 - p) > 5e-10) is fits
    assert abs(noise.mean()) < 6.2 * sd / math.sqrt(noise.size)


def test_rounds_attempts_and_silos_have_fresh_noise():
    plan, schedule = make(rounds=5)
    silo = participant(plan, schedule)
    vectors = [Update.decode(silo.reply(task(n, a))).residues for n, a in ((1, 1), (2, 1), (2, 2), (3, 1))]
    vectors.append(Update.decode(participant(plan, schedule, "b").reply(task())).residues)
    assert len({v.tobytes() for v in vectors}) == 5


def test_participants_refuse_what_is_not_theirs():
    plan, schedule = make(cohort=2, rounds=4)
    outside = next(s for s in SILOS if s not in schedule.cohort(1))
    inside = participant(plan, schedule, schedule.cohort(1)[0])
    with pytest.raises(ProtocolError, match="not in the cohort"):
        participant(plan, schedule, outside).reply(task())
    with pytest.raises(ProtocolError, match="another run"):
        inside.reply(task(run=bytes(32)))
    with pytest.raises(ProtocolError, match="the plan has 4 rounds"):
        inside.reply(task(5))
    with pytest.raises(ProtocolError, match="4 parameters, the plan 3"):
        inside.reply(task(dim=4))
    assert inside.log.replies == 0
    inside.reply(task())
    with pytest.raises(ProtocolError, match="answered before"):
        inside.reply(task())


def test_a_silo_never_sends_more_than_it_planned_to_pay_for():
    plan, schedule = make(rounds=3)
    silo = participant(plan, schedule)
    for number, attempt in ((1, 1), (1, 2), (2, 1)):
        silo.reply(task(number, attempt))
    with pytest.raises(RefusedError, match="all 3 planned replies are used"):
        silo.reply(task(3))


def test_a_failing_rule_is_charged_and_its_noise_never_reused():
    class Fails:
        def release(self, theta: Vector, desk: StepDesk) -> Release:
            desk.batch(0)
            raise MemoryError

    plan, schedule = make()
    silo = participant(plan, schedule)
    silo.work = Fails()
    with pytest.raises(MemoryError):
        silo.reply(task())
    assert silo.log.replies == 1
    silo.log.last = (0, 0)  # even a log that lost its place cannot draw the same stream again
    with pytest.raises(EntropyReuseError):
        silo.reply(task())


def deliver(plan: Plan, schedule: Schedule, state: CoordinatorState, values: dict[str, float]) -> dict[str, Update]:
    digest = model_digest(state.theta)
    number, attempt = state.round + 1, state.attempt + 1
    bits = plan.ring_bits
    residues = {
        silo: wrap(np.full(plan.dim, round(value / plan.granularity), np.int64), bits) for silo, value in values.items()
    }
    return {
        silo: Update(
            run=RUN, round=number, attempt=attempt, silo=silo, model=digest, ring_bits=bits, residues=residues[silo]
        )
        for silo in values
    }


def test_the_coordinator_divides_by_public_capacity():
    plan, schedule = make()
    server = coordinator(plan, schedule, lr=2.0)
    state = server.start(np.ones(3))
    state = server.finish(state, deliver(plan, schedule, state, {"a": 10.0, "b": 20.0, "c": 30.0, "d": 40.0}))
    np.testing.assert_allclose(state.theta, 1 - 2.0 * 100 / (4 * 50), atol=1e-4)
    assert (state.round, state.attempt) == (1, 0)


def test_averaging_delivers_the_average_and_trains_on_the_iterate():
    plan, schedule = make()
    server = coordinator(plan, schedule, averaging=0.5)
    state = server.start(np.zeros(3))
    for _ in range(2):
        state = server.finish(state, deliver(plan, schedule, state, dict.fromkeys(SILOS, -50.0)))
    np.testing.assert_allclose(state.theta, 2.0, atol=1e-4)
    np.testing.assert_allclose(state.model, (0.5 * 1 + 1 * 2) / 1.5, atol=1e-4)


def test_too_few_survivors_release_nothing():
    plan, schedule = make(survivors=3)
    server = coordinator(plan, schedule)
    state = server.start(np.zeros(3))
    enough = server.finish(state, deliver(plan, schedule, state, {"a": 50.0, "b": 50.0, "d": 50.0}))
    np.testing.assert_allclose(enough.theta, -1.0, atol=1e-4)
    with pytest.raises(TooFewSilosError, match="2 of 4 silos delivered, the noise is sized for 3"):
        server.finish(state, deliver(plan, schedule, state, {"a": 1.0, "b": 1.0}))
    assert server.failed(state).attempt == 1


@pytest.mark.parametrize(
    "change",
    [
        {"round": 2},
        {"attempt": 2},
        {"run": bytes(32)},
        {"model": bytes(32)},
        {"silo": "b"},
        {"residues": np.zeros(4, np.uint64)},
        {"ring_bits": 48},
    ],
)
def test_foreign_updates_are_not_accepted(change):
    plan, schedule = make()
    server = coordinator(plan, schedule)
    state = server.start(np.zeros(3))
    good = deliver(plan, schedule, state, {"a": 1.0})["a"]
    assert server.accept(state, "a", good.encode()).silo == "a"
    with pytest.raises(ProtocolError, match="belongs to another silo, round or model"):
        server.accept(state, "a", replace(good, **change).encode())


def test_a_silo_outside_the_cohort_is_not_accepted():
    plan, schedule = make(cohort=2)
    server = coordinator(plan, schedule)
    state = server.start(np.zeros(3))
    outside = next(s for s in SILOS if s not in schedule.cohort(1))
    with pytest.raises(ProtocolError, match="belongs to another"):
        server.accept(state, outside, deliver(plan, schedule, state, {outside: 1.0})[outside].encode())


def test_a_diverging_model_stops_the_run():
    plan, schedule = make()
    server = coordinator(plan, schedule, lr=1e42)
    state = server.start(np.zeros(3))
    with pytest.raises(DivergedError, match="out of the range of float32"):
        server.finish(state, deliver(plan, schedule, state, dict.fromkeys(SILOS, 1.0)))

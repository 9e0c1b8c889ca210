"""Of (epsilon, noise_multiplier, rounds) any two determine the third; three must agree."""

from __future__ import annotations

from collections.abc import Callable

from cosilo import accounting
from cosilo.errors import JobError
from cosilo.job import Job
from cosilo.privacy import Event, up

__all__ = ["most_replies", "settle"]

# Three given numbers agree when the computed epsilon lies at most this far below the promised one.
_AGREEMENT = 0.01


def most_replies(rounds: int, *, silos: int, cohort: int) -> int:
    """Messages a silo sends at most in so many rounds of balanced cohorts: ceil(cohort * rounds / silos)."""
    return -(-cohort * rounds // silos)


def settle(job: Job, event: Callable[[float, int], Event], *, silos: int, cohort: int) -> tuple[int, float]:
    """(rounds, noise_multiplier) of a job.

    Args:
        job: gives two or three of privacy.epsilon, privacy.noise_multiplier, federation.rounds.
        event: (noise_multiplier, replies) -> what the silo that pays most has released after so many replies.
        silos: number of silos; with `cohort` it turns rounds into replies a silo.
        cohort: silos a round.
    """
    rounds, noise = job.federation.rounds, job.privacy.noise_multiplier
    if rounds is not None and noise is not None:
        _check_agreement(job, event, rounds=rounds, replies=most_replies(rounds, silos=silos, cohort=cohort))
        return rounds, noise
    epsilon = job.privacy.epsilon
    if epsilon is None:
        missing = "privacy.noise_multiplier" if rounds is not None else "federation.rounds"
        raise JobError(
            "Two of privacy.epsilon, privacy.noise_multiplier and federation.rounds are needed to determine the third.",
            f"Add privacy.epsilon (and {missing}, unless one is there).",
        )
    if rounds is not None:
        return rounds, _noise(job, event, epsilon, most_replies(rounds, silos=silos, cohort=cohort))
    if noise is None:
        raise JobError(
            f"privacy.epsilon = {epsilon} alone determines neither noise nor rounds.",
            "Add federation.rounds (or privacy.noise_multiplier).",
        )
    return _rounds(job, event, epsilon, noise, silos=silos, cohort=cohort), noise


def _noise(job: Job, event: Callable[[float, int], Event], epsilon: float, replies: int) -> float:
    return accounting.calibrate_noise(
        lambda z: event(z, replies),
        epsilon=epsilon,
        delta=job.privacy.delta,
        accountant=job.privacy.accountant,
    )


def _rounds(
    job: Job, event: Callable[[float, int], Event], epsilon: float, noise: float, *, silos: int, cohort: int
) -> int:
    """The largest T of which `most_replies` is affordable: floor(replies * silos / cohort)."""
    replies = accounting.calibrate_uses(
        lambda uses: event(noise, uses),
        epsilon=epsilon,
        delta=job.privacy.delta,
        accountant=job.privacy.accountant,
    )
    if replies < 1:
        enough = _noise(job, event, epsilon, 1)
        raise JobError(
            f"With noise_multiplier = {noise} not even one round fits into epsilon = {epsilon}.",
            f"Raise privacy.noise_multiplier to at least {up(enough)}, or raise privacy.epsilon.",
        )
    if replies >= accounting.MOST_USES:
        raise JobError(
            f"noise_multiplier = {noise} allows more than {replies:,} rounds under epsilon = {epsilon}.",
            "Set federation.rounds (and leave out noise_multiplier to get less noise).",
        )
    return replies * silos // cohort


def _check_agreement(job: Job, event: Callable[[float, int], Event], *, rounds: int, replies: int) -> None:
    epsilon, noise = job.privacy.epsilon, job.privacy.noise_multiplier
    if epsilon is None or noise is None:
        return
    spent = accounting.epsilon(event(noise, replies), job.privacy.delta, job.privacy.accountant).upper
    if (1 - _AGREEMENT) * epsilon <= spent <= epsilon:
        return
    needed = _noise(job, event, epsilon, replies)
    raise JobError(
        f"rounds = {rounds} with noise_multiplier = {noise} costs epsilon = {up(spent)}, not {epsilon}.",
        f"Remove one of the three, or write noise_multiplier = {up(needed)}.",
    )

"""How private an event is: proved bounds on epsilon and delta, and the noise or the uses that fit a promise.

>>> from cosilo.accounting import calibrate_noise, epsilon
>>> from cosilo.privacy import Gaussian, Repeated
>>> epsilon(Repeated(20, Gaussian(16.7)), delta=1e-5).upper  # doctest: +SKIP
0.998...
"""

from __future__ import annotations

from cosilo.accounting.accountant import Accountant, Method, delta, epsilon, epsilon_and_method
from cosilo.accounting.calibrate import MOST_USES, calibrate_noise, calibrate_uses
from cosilo.accounting.filter import FilterBudget, FilterKind, Remaining, Spent, add, fits, remaining
from cosilo.accounting.flat import Flat, distance_charge, flatten
from cosilo.accounting.gaussian import compose_mu, delta_of_mu, epsilon_of_mu, mu_for
from cosilo.accounting.rdp import Conversion
from cosilo.accounting.selection import (
    PoissonTrials,
    Selection,
    TrialLaw,
    TruncatedNegativeBinomial,
    negative_binomial_of_mean,
    select,
)
from cosilo.accounting.slack import distance_from_gaussian

__all__ = [
    "MOST_USES",
    "Accountant",
    "Conversion",
    "FilterBudget",
    "FilterKind",
    "Flat",
    "Method",
    "PoissonTrials",
    "Remaining",
    "Selection",
    "Spent",
    "TrialLaw",
    "TruncatedNegativeBinomial",
    "add",
    "calibrate_noise",
    "calibrate_uses",
    "compose_mu",
    "delta",
    "delta_of_mu",
    "distance_charge",
    "distance_from_gaussian",
    "epsilon",
    "epsilon_and_method",
    "epsilon_of_mu",
    "fits",
    "flatten",
    "mu_for",
    "negative_binomial_of_mean",
    "remaining",
    "select",
]

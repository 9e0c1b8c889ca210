"""Server optimizers against torch's own, and the average against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cosilo.job.schema import Adam, Sgd
from cosilo.optimizers import average, averaged, build

CASES = [
    (Sgd(lr=0.5), lambda p: torch.optim.SGD(p, lr=0.5)),
    (Sgd(lr=0.1, momentum=0.8), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8)),
    (Sgd(lr=0.1, momentum=0.8, nesterov=True), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, nesterov=True)),
    (Adam(name="adam", lr=0.02), lambda p: torch.optim.Adam(p, lr=0.02)),
    (Adam(name="adam", beta1=0.5, beta2=0.9), lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.5, 0.9))),
]


@pytest.mark.parametrize(("options", "peer"), CASES)
def test_steps_equal_torch(options, peer):
    numbers = np.random.default_rng(0)
    theta = numbers.normal(size=7)
    parameter = torch.nn.Parameter(torch.from_numpy(theta.copy()))
    theirs = peer([parameter])
    ours = build(options)
    state = ours.init(theta)
    for _ in range(10):
        gradient = numbers.normal(size=7)
        parameter.grad = torch.from_numpy(gradient)
        theirs.step()
        theta, state = ours.apply(theta, gradient, state)
        np.testing.assert_allclose(theta, parameter.detach().numpy(), rtol=1e-10)


def test_apply_changes_none_of_its_arguments():
    ours = build(Sgd(momentum=0.9))
    theta, gradient = np.ones(3), np.ones(3)
    state = ours.init(theta)
    ours.apply(theta, gradient, state)
    assert theta.tolist() == gradient.tolist() == [1.0] * 3
    assert state["velocity"].tolist() == [0.0] * 3


def test_average_weights_models_exponentially_without_start_bias():
    state: dict[str, np.ndarray] = {}
    for value in (1.0, 2.0, 4.0):
        state = dict(average(np.array([value]), state, 0.5))
    assert averaged(state)[0] == pytest.approx((0.25 * 1 + 0.5 * 2 + 1 * 4) / 1.75)

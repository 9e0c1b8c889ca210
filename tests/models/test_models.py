"""Models: reproducible starts, refusals that name the layer, vectors that round-trip."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from cosilo.errors import JobError, ModelError
from cosilo.job.schema import Model
from cosilo.models import build, check_module, device, example_loss, from_vector, probabilities, to_vector


def mlp(seed: int) -> nn.Module:
    return build(Model(name="mlp", options={"hidden": [5, 4]}), features=(3,), classes=3, seed=seed)


def test_the_seed_fixes_the_initial_model_and_leaves_torch_alone():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, same, other = mlp(1), mlp(1), mlp(2)
    assert torch.rand(1) == expected
    assert np.array_equal(to_vector(one), to_vector(same))
    assert not np.array_equal(to_vector(one), to_vector(other))


@pytest.mark.parametrize(("name", "classes", "outputs"), [("logistic", 2, 1), ("softmax", 4, 4), ("mlp", 2, 1)])
def test_shipped_models_return_logits(name: str, classes: int, outputs: int):
    module = build(Model.model_validate({"name": name}), features=(2, 3), classes=classes, seed=0)
    assert module(torch.zeros(5, 2, 3)).shape == (5, outputs)
    check_module(module, features=(2, 3), classes=classes)


def test_vector_round_trip_skips_frozen_parameters():
    kept = nn.Linear(2, 2).requires_grad_(requires_grad=False)
    module = nn.Sequential(kept, nn.Linear(2, 2))
    frozen = kept.weight.clone()
    from_vector(module, np.arange(6.0))
    assert to_vector(module).tolist() == list(range(6))
    assert torch.equal(kept.weight, frozen)


@pytest.mark.parametrize(
    ("layer", "replacement"),
    [
        (nn.BatchNorm1d(3), "nn.GroupNorm"),
        (nn.SyncBatchNorm(3), "nn.GroupNorm"),
        (nn.InstanceNorm1d(3, track_running_stats=True), "nn.GroupNorm"),
        (nn.Dropout(0.1), "p=0"),
    ],
)
def test_layers_that_break_per_example_clipping_are_named(layer: nn.Module, replacement: str):
    module = nn.Sequential(nn.Linear(3, 3), layer, nn.Linear(3, 2))
    with pytest.raises(ModelError) as caught:
        check_module(module, features=(3,), classes=2)
    assert f"Layer '1' ({type(layer).__name__})" in caught.value.what
    assert replacement in caught.value.fix


def test_other_refusals():
    with pytest.raises(ModelError, match="no trainable parameters"):
        check_module(nn.Flatten(), features=(3,), classes=2)
    with pytest.raises(ModelError, match=r"fails on rows of shape \(4,\)"):
        check_module(nn.Linear(3, 2), features=(4,), classes=2)
    with pytest.raises(ModelError, match="for 3 classes"):
        check_module(nn.Linear(3, 2), features=(3,), classes=3)
    with pytest.raises(ModelError, match="returns tuple"):
        check_module(nn.LSTM(3, 2), features=(5, 3), classes=2)
    with pytest.raises(JobError, match="neither name nor factory"):
        build(Model(), features=(3,), classes=2, seed=0)
    with pytest.raises(ModelError, match="has no option 'width'"):
        build(Model(name="mlp", options={"width": 3}), features=(3,), classes=2, seed=0)
    with pytest.raises(ModelError, match="needs 2 classes"):
        build(Model(name="logistic"), features=(3,), classes=3, seed=0)
    with pytest.raises(ModelError, match="cannot be imported"):
        build(Model(factory="no_such_module:f"), features=(3,), classes=2, seed=0)
    with pytest.raises(ModelError, match="returned OrderedDict"):
        build(Model(factory="collections:OrderedDict"), features=(3,), classes=2, seed=0)
    with pytest.raises(JobError, match="is not usable here"):
        device("quantum")


def test_one_logit_is_the_two_class_softmax():
    logit = torch.tensor([[0.3], [-2.0]])
    pair = torch.cat([torch.zeros_like(logit), logit], dim=1)
    target = torch.tensor([1, 0])
    torch.testing.assert_close(example_loss(logit, target), example_loss(pair, target))
    torch.testing.assert_close(probabilities(logit), probabilities(pair))

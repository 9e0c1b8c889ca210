"""Models: reproducible starts, refusals that name the layer, vectors that round-trip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cosilo.errors import ConfigError, JobError, ModelError
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
    with pytest.raises(ConfigError, match="cannot import module 'no_such_module'"):
        build(Model(factory="no_such_module:f"), features=(3,), classes=2, seed=0)
    with pytest.raises(ModelError, match="returned OrderedDict"):
        build(Model(factory="collections:OrderedDict"), features=(3,), classes=2, seed=0)
    with pytest.raises(JobError, match="is not usable here"):
        device("quantum")


def test_a_factory_gets_features_and_classes_where_it_takes_them(tmp_path: Path):
    (tmp_path / "own_factories.py").write_text(
        "from torch import nn\n"
        "def sized(features, classes, width):\n"
        "    return nn.Sequential(nn.Linear(*features, width), nn.Linear(width, classes))\n"
        "def fixed(): return nn.Linear(3, 4)\n"
        "def failing(): raise KeyError('no')\n"
    )

    def made(name: str, **options: int) -> nn.Module:
        model = Model(factory=f"own_factories:{name}", options=options)
        return build(model, features=(3,), classes=4, seed=0, folder=str(tmp_path))

    assert made("sized", width=5)(torch.zeros(2, 3)).shape == (2, 4)
    assert made("fixed")(torch.zeros(2, 3)).shape == (2, 4)
    with pytest.raises(ModelError, match=r"failed with KeyError.*features = \(3,\) and classes = 4 if it takes them"):
        made("failing")
    with pytest.raises(ModelError, match="failed with TypeError"):
        made("fixed", width=5)


def test_rows_must_be_answered_alike_alone_and_together():
    class Centred(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x - x.mean(0))

    with pytest.raises(ModelError, match="differently among other rows than alone"):
        check_module(Centred(3, 2), features=(3,), classes=2)
    broken = nn.Linear(3, 2)
    nn.init.constant_(broken.weight, float("nan"))
    with pytest.raises(ModelError, match="initial weights are not finite"):
        check_module(broken, features=(3,), classes=2)


def test_a_network_that_would_not_fit_is_refused():
    with pytest.raises(ModelError, match="more than 1e8 weights"):
        build(Model(name="mlp", options={"hidden": [10**8]}), features=(3,), classes=2, seed=0)


def test_one_logit_is_the_two_class_softmax():
    logit = torch.tensor([[0.3], [-2.0]])
    pair = torch.cat([torch.zeros_like(logit), logit], dim=1)
    target = torch.tensor([1, 0])
    torch.testing.assert_close(example_loss(logit, target), example_loss(pair, target))
    torch.testing.assert_close(probabilities(logit), probabilities(pair))

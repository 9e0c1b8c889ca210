"""The job file's sections as frozen objects: every key, its type, its default, what it contradicts.

A key exists here only when the product does something with it. Numbers that need the accountant (does the
noise fit the budget?) are checked in `planning`, numbers that need rows in `data`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

__all__ = [
    "Adam",
    "Aggregation",
    "Column",
    "Data",
    "Evaluation",
    "Federation",
    "JobInfo",
    "Local",
    "Model",
    "Output",
    "Privacy",
    "Sgd",
    "Silo",
]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Rounds = Annotated[int, Field(ge=1, le=10**7)]  # more than any run ends in a life
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description='letters, digits, ".", "_", "-"')]
Function = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", description='"module:function"')]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Section(BaseModel):
    """Frozen; unknown keys are errors; 1 is not "1" and "1" is not 1."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


class Column(Section):
    """One column of a table, described by public facts only; nothing is estimated from rows.

    Numeric: `low` and `high` (values outside are clamped) and optional `bins` (ascending inner edges, one-hot
    beside the scaled value). Categorical: `levels` (anything else counts as the extra level "other").
    `missing`: what an empty cell means. A number replaces it (numeric), "drop" leaves the row out; without it an
    empty numeric cell is an error and an empty categorical cell is "other".
    """

    low: Finite | None = None
    high: Finite | None = None
    bins: Annotated[tuple[Finite, ...], Field(strict=False)] = ()
    levels: Annotated[tuple[str, ...], Field(strict=False)] = ()
    missing: float | Literal["drop"] | None = None

    @property
    def numeric(self) -> bool:
        """Whether the column holds numbers."""
        return not self.levels

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.levels:
            self._check_levels()
        else:
            self._check_range()
        return self

    def _check_levels(self) -> None:
        if self.low is not None or self.high is not None or self.bins:
            raise ValueError("a column has either levels or low and high; remove one of them")
        if len(set(self.levels)) != len(self.levels):
            raise ValueError("levels must differ from each other; remove the repeated one")
        if isinstance(self.missing, float):
            # TypeError would not be collected by pydantic.
            raise ValueError(  # noqa: TRY004
                "missing cells of a column with levels count as other; remove the number or write 'drop'"
            )

    def _check_range(self) -> None:
        if self.low is None or self.high is None or not self.low < self.high:
            raise ValueError("a column needs levels = [...] or numbers low < high; write one of them")
        edges = (self.low, *self.bins, self.high)
        if any(a >= b for a, b in pairwise(edges)):
            raise ValueError("bins must ascend strictly between low and high; reorder them")
        if isinstance(self.missing, float) and not self.low <= self.missing <= self.high:
            raise ValueError("missing must lie between low and high; choose a value inside")


class JobInfo(Section):
    """`seed` fixes the data split and the initial model; never noise, batches or keys.

    `folder`: where a relative data file and the modules of loader and factory are looked for; the job file's own
    unless it says otherwise.
    """

    name: Name = "run"
    seed: Annotated[int, Field(ge=0)] = 0
    folder: str | None = None


class Data(Section):
    """Where rows come from: a catalogue name or a CSV/Parquet path (`dataset`), or the silos' own `loader`.

    `classes` (2 by default) belongs to ready arrays: it shapes the released model, so it is never read off rows.
    """

    dataset: str | None = None
    loader: Function | None = None
    target: str | None = None
    silo_column: str | None = None
    capacity: Count | None = None
    classes: Annotated[int, Field(ge=2)] | None = None
    columns: dict[str, Column] | None = Field(default=None, alias="schema")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.dataset is not None and self.loader is not None:
            raise ValueError("dataset and loader both name a source; keep one of them")
        if self.loader is not None and (self.target or self.silo_column or self.columns):
            raise ValueError("a loader returns ready arrays; remove target, silo_column and schema")
        if self.dataset is not None and self.classes is not None:
            raise ValueError("classes belongs to ready arrays; remove it, the target's levels are the classes")
        return self


class Silo(Section):
    """Public facts of one silo. `capacity`: rows it may hold at most, fixed without looking at them."""

    capacity: Count | None = None


class Model(Section):
    """A shipped model by `name`, or your own `factory` returning a torch module.

    The factory is called with `options`, and with `features` (shape of one row) and `classes` where it takes them.
    """

    name: Literal["logistic", "softmax", "mlp"] | None = None
    factory: Function | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.name is not None and self.factory is not None:
            raise ValueError("name and factory both choose a model; keep one of them")
        return self


class Sgd(Section):
    """theta <- theta - lr * v with v <- momentum * v + gradient (Nesterov: gradient + momentum * v)."""

    name: Literal["sgd"] = "sgd"
    lr: Positive = 1.0
    momentum: Fraction = 0.0
    nesterov: bool = False

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs momentum > 0; set momentum or remove nesterov")
        return self


class Adam(Section):
    """Adam (Kingma and Ba 2015, algorithm 1) on the released pseudo-gradients."""

    name: Literal["adam"]
    lr: Positive = 0.01
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    eps: Positive = 1e-8


def _optimizer_name(value: object) -> str:
    """Which optimizer a table describes; sgd unless it says otherwise."""
    name = value.get("name", "sgd") if isinstance(value, dict) else getattr(value, "name", "sgd")
    return str(name)


class Federation(Section):
    """Who takes part and how the released sums move the model."""

    rounds: Rounds | None = None
    cohort: Count | None = None
    min_survivors: Count | None = None
    server_optimizer: Annotated[
        Annotated[Sgd, Tag("sgd")] | Annotated[Adam, Tag("adam")], Discriminator(_optimizer_name)
    ] = Sgd()
    averaging: Fraction = 0.0

    @model_validator(mode="after")
    def _survivors_fit(self) -> Self:
        if self.cohort is not None and self.min_survivors is not None and self.min_survivors > self.cohort:
            raise ValueError(f"min_survivors = {self.min_survivors} exceeds cohort = {self.cohort}; lower it")
        return self


class Local(Section):
    """What a silo computes in a round. Without sampling_rate or batch_size: sums over all rows.

    `steps` and `lr` belong to noisy-steps: local steps a round, and how far a step moves the silo's own model along
    its noisy mean gradient.
    """

    rule: Literal["one-step", "noisy-steps"] = "one-step"
    steps: Annotated[int, Field(ge=1, le=10**4)] | None = None
    lr: Positive | None = None
    sampling_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    batch_size: Count | None = None
    clipping_norm: Annotated[float, Field(ge=1e-50, le=1e50)] = 1.0  # squares of it stay in float64
    micro_batch: Count | None = None
    device: str = "cpu"

    @model_validator(mode="after")
    def _one_batch_size(self) -> Self:
        if self.sampling_rate is not None and self.batch_size is not None:
            raise ValueError("sampling_rate and batch_size both set the batch; keep one of them")
        return self

    @model_validator(mode="after")
    def _steps_belong_to_the_rule(self) -> Self:
        if self.rule == "one-step" and (self.steps is not None or self.lr is not None):
            raise ValueError('steps and lr do nothing under one-step; remove them, or write rule = "noisy-steps"')
        if self.rule == "noisy-steps" and (self.steps is None or self.lr is None):
            raise ValueError("noisy-steps needs steps and lr; write both, such as steps = 4 and lr = 0.5")
        return self


class Privacy(Section):
    """The promise. Of (epsilon, noise_multiplier, federation.rounds) any two determine the third.

    `guarantee` = "joint-steps" asks P1's Theorem 4.6 for noisy-steps: it assumes that every gradient is evaluated at a
    function of released sums, which several local steps do not satisfy; "unconditional" assumes nothing.
    """

    unit: Literal["example"] = "example"
    relation: Literal["add-or-remove-one"] = "add-or-remove-one"
    against: Literal["server", "outsider"] = "server"
    epsilon: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1)]
    noise_multiplier: Positive | None = None
    mechanism: Literal["discrete-gaussian", "skellam", "gaussian", "laplace", "discrete-laplace"] = "discrete-gaussian"
    guarantee: Literal["unconditional", "joint-steps"] = "unconditional"
    colluding_silos: Annotated[int, Field(ge=0)] = 1
    accountant: Literal["auto", "pld", "rdp"] = "auto"


class Aggregation(Section):
    """How messages are summed. "plain": the server sees every silo's noisy message.

    Messages are integers modulo 2^ring_bits. `granularity` is the real value of one lattice unit, `clamp` the largest
    coordinate of a silo's sum, both in the units of the clipping norm; left out, they are chosen so that rounding costs
    little, nothing is cut and no sum leaves the ring. `rotation` spreads a vector over all coordinates before it is
    clamped: for small rings with a clamp that cuts.
    """

    protocol: Literal["plain"] = "plain"
    ring_bits: Literal["auto"] | Annotated[int, Field(ge=16, le=64)] = "auto"
    granularity: Positive | None = None
    clamp: Positive | None = None
    rotation: bool = False


class Evaluation(Section):
    """Test metrics on a held-out fraction of rows.

    `source = "public"` declares these rows public: looking at private rows costs privacy that the statement
    would not contain.
    """

    held_out: Fraction | None = None
    every: Count = 1
    source: Literal["public"] | None = None


class Output(Section):
    """Where runs are written: directory/name, directory/name-2, ..."""

    directory: str = "runs"

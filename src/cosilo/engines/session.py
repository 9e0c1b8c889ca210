"""One run in progress: coordinator, participants, checkpoint, metrics. The loop and its order of writes live here.

Order in a round: ask the cohort, add, move the model, then write the checkpoint. The checkpoint is the release:
before it, a round's messages existed only in this process and a crash leaves nothing of them, so the round may be
run again (every process draws from a root of its own, so never with the same noise); with it, the model and what
each silo has spent for it become durable together. Metrics and progress come after. The statement is absent while
the run works and written whenever it stops, from what the last checkpoint says.
"""

from __future__ import annotations

import copy
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

import numpy as np
from torch import nn

from cosilo import models, optimizers
from cosilo.data import FederatedRows
from cosilo.engines.evaluation import evaluate
from cosilo.engines.folder import RunFolder
from cosilo.engines.interrupt import Interrupt
from cosilo.engines.pool import one_silo_a_core
from cosilo.engines.result import OnRound, Round, Run
from cosilo.engines.trained import TrainedModel, model_bytes
from cosilo.entropy import Entropy
from cosilo.errors import CosiloError, InterruptedRunError, ProtocolError, TooFewSilosError
from cosilo.job import Job
from cosilo.local import RULES
from cosilo.local.per_example import check_per_example
from cosilo.planning import Plan, cautions, integers
from cosilo.rounds import (
    Coordinator,
    CoordinatorState,
    Participant,
    Schedule,
    SiloLog,
    Spending,
    SpentCurve,
    Update,
    statement,
)

__all__ = ["Session"]

_LOG = logging.getLogger("cosilo")
_MIB = 1 << 20


@dataclass(slots=True)
class _Tally:
    """What the run has used so far; part of the checkpoint."""

    seconds: float = 0.0
    survivors: int = 0
    fewest_survivors: int | None = None
    bytes_by_silo: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Session:
    """Everything a run needs, from its first round or from a checkpoint."""

    job: Job
    plan: Plan
    rows: FederatedRows
    module: nn.Module
    run_id: bytes
    seed: int | None
    coordinator: Coordinator
    participants: dict[str, Participant]
    spent: SpentCurve
    tally: _Tally = field(default_factory=_Tally)
    saved: Spending = field(init=False)  # of the last checkpoint
    released: np.ndarray = field(init=False)  # the model of the last checkpoint
    evaluated: tuple[np.ndarray, dict[str, float | None]] | None = None  # the latest model tested, and its metrics

    @classmethod
    def build(
        cls, job: Job, plan: Plan, rows: FederatedRows, module: nn.Module, *, run_id: bytes, seed: int | None
    ) -> Self:
        """Coordinator and participants of a run; nothing has been computed yet.

        Raises:
            ModelError: the module's gradients are not of one row each, in the shape and on the thread of this run.
        """
        with one_silo_a_core() as pool:
            probe = pool.submit(
                check_per_example, module, rows.feature_shape, classes=rows.classes, micro_batch=plan.micro_batch
            )
            probe.result()
        rule = RULES[plan.rule]
        working = copy.deepcopy(module)  # the module itself delivers and is evaluated; its mode and weights change
        schedule = Schedule(run_id, tuple(plan.silos), plan.cohort)
        participants = {
            silo: Participant(
                silo=silo,
                run=run_id,
                plan=plan,
                schedule=schedule,
                work=rule.prepare(working, part.x, part.y, plan.terms(silo)),
                entropy=Entropy.system() if seed is None else Entropy.seeded(seed, silo),
            )
            for silo, part in rows.silos.items()
        }
        federation = job.federation
        coordinator = Coordinator(
            run_id, plan, schedule, optimizers.build(federation.server_optimizer), federation.averaging
        )
        return cls(
            job=job, plan=plan, rows=rows, module=module, run_id=run_id, seed=seed, coordinator=coordinator,
            participants=participants, spent=SpentCurve(plan),
        )  # fmt: skip

    def start(self, folder: RunFolder, on_round: OnRound) -> Run:
        """Run all rounds."""
        _LOG.info(integers(self.plan))
        for caution in cautions(self.job, self.plan):
            _LOG.warning(caution)
        state = self.coordinator.start(models.to_vector(self.module))
        self._save(folder, state)
        return self._loop(folder, state, on_round)

    def go_on(
        self, folder: RunFolder, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any], on_round: OnRound
    ) -> Run:
        """Run the rounds after a checkpoint."""
        state = CoordinatorState(
            theta=arrays["theta"],
            optimizer=_group(arrays, "optimizer."),
            average=_group(arrays, "average."),
            round=facts["round"],
            attempt=facts["attempt"],
        )
        private = folder.read_json("silos.json")
        for silo, log in facts["silos"].items():
            non_finite = private.get(silo, {}).get("non_finite", 0)
            self.participants[silo].log = SiloLog(log["replies"], tuple(log["last"]), non_finite)
        self.tally = _Tally(**facts["tally"])
        self.saved, self.released = self._spending(state), state.model
        # A kill between checkpoint and metrics leaves the last line out, or half of it.
        lines = folder.read_metrics()
        folder.write_text("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        if state.round > len(lines):
            self._report(folder, state, 0.0)
        return self._loop(folder, state, on_round)

    def _loop(self, folder: RunFolder, state: CoordinatorState, on_round: OnRound) -> Run:
        if state.round < self.plan.rounds:  # a stopped run's statement says less than this one is about to spend
            folder.remove("privacy.json")
            folder.remove("model.safetensors")
        began, before, first = time.monotonic(), self.tally.seconds, state.round
        with Interrupt() as interrupt:
            try:
                while state.round < self.plan.rounds and not interrupt.requested:
                    state = self._attempt(folder, state, interrupt)
                    elapsed = time.monotonic() - began
                    self.tally.seconds = before + elapsed
                    with interrupt.shielded():
                        self._save(folder, state)
                    report = self._report(folder, state, elapsed / (state.round - first))
                    if on_round is not None:
                        on_round(report)
            except KeyboardInterrupt:
                interrupt.requested = True
            finally:
                with interrupt.shielded():
                    run = self._deliver(folder)
        if self.saved.rounds < self.plan.rounds:
            raise InterruptedRunError(
                f"{self.saved.rounds} of {self.plan.rounds} rounds are done and paid for.",
                f"Go on with: cosilo resume {folder.path}",
            )
        return run

    def _attempt(self, folder: RunFolder, state: CoordinatorState, interrupt: Interrupt) -> CoordinatorState:
        """One round; when it fails, what the silos spent on it is written down before the error goes on."""
        try:
            return self._round(state)
        except CosiloError:
            with interrupt.shielded():
                self._save(folder, self.coordinator.failed(state))
            raise

    def _round(self, state: CoordinatorState) -> CoordinatorState:
        cohort, task = self.coordinator.task(state)
        messages = self._replies(cohort, task)
        self._count_bytes(cohort, task, messages)
        updates = self._accepted(state, messages)
        following = self.coordinator.finish(state, updates)
        self.tally.survivors = len(updates)
        self.tally.fewest_survivors = min(len(updates), self.tally.fewest_survivors or len(updates))
        return following

    def _accepted(self, state: CoordinatorState, messages: Mapping[str, bytes]) -> dict[str, Update]:
        """The updates that belong to this round; others are dropped with a line in the log."""
        updates = {}
        for silo, message in messages.items():
            try:
                updates[silo] = self.coordinator.accept(state, silo, message)
            except ProtocolError as error:
                _LOG.warning("Dropped a message: %s", error.what)
        return updates

    def _replies(self, cohort: tuple[str, ...], task: bytes) -> dict[str, bytes]:
        """The cohort's updates. A silo that fails or refuses is missing; too few of them stop the run."""
        with one_silo_a_core() as pool:
            outcomes = list(pool.map(lambda silo: self._reply(silo, task), cohort))
        messages = {silo: found for silo, found in zip(cohort, outcomes, strict=True) if isinstance(found, bytes)}
        failures = [found for found in outcomes if isinstance(found, CosiloError)]
        if failures and len(messages) < self.plan.min_survivors:
            raise failures[0]
        return messages

    def _reply(self, silo: str, task: bytes) -> bytes | CosiloError:
        try:
            return self.participants[silo].reply(task)
        except CosiloError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a silo tells that it failed, never why: texts carry data
            failure = TooFewSilosError(
                f"Silo {silo!r} failed with {type(error).__name__}.",
                "Run with --debug to see where. The round is paid for, so the last planned one may be refused.",
            )
            failure.__cause__ = error
            return failure

    def _count_bytes(self, cohort: tuple[str, ...], task: bytes, messages: Mapping[str, bytes]) -> None:
        counts = self.tally.bytes_by_silo
        for silo in cohort:
            counts[silo] = counts.get(silo, 0) + len(task) + len(messages.get(silo, b""))

    def _spending(self, state: CoordinatorState) -> Spending:
        return Spending(
            rounds=state.round,
            replies={silo: participant.log.replies for silo, participant in self.participants.items()},
            fewest_survivors=self.tally.fewest_survivors,
        )

    def _save(self, folder: RunFolder, state: CoordinatorState) -> None:
        arrays = {"theta": state.theta}
        arrays |= {f"optimizer.{name}": value for name, value in state.optimizer.items()}
        arrays |= {f"average.{name}": value for name, value in state.average.items()}
        logs = {silo: participant.log for silo, participant in self.participants.items()}
        facts = {
            "run": self.run_id.hex(),
            "job_hash": self.job.hash,
            "plan_hash": self.plan.hash,
            "seeded_entropy": self.seed,
            "round": state.round,
            "attempt": state.attempt,
            "silos": {silo: {"replies": log.replies, "last": log.last} for silo, log in logs.items()},
            "tally": asdict(self.tally),
        }
        folder.write_checkpoint(arrays, facts)
        self.saved, self.released = self._spending(state), state.model

    def _report(self, folder: RunFolder, state: CoordinatorState, seconds_per_round: float) -> Round:
        last = state.round == self.plan.rounds
        due = last or state.round % self.job.evaluation.every == 0
        report = Round(
            round=state.round,
            rounds=self.plan.rounds,
            survivors=self.tally.survivors,
            epsilon_spent=self.spent(max(p.log.replies for p in self.participants.values())),
            epsilon=self.plan.epsilon,
            test=self._evaluate(self.released) if due else None,
            seconds=self.tally.seconds,
            eta=seconds_per_round * (self.plan.rounds - state.round),
        )
        folder.append_metrics({key: value for key, value in asdict(report).items() if key != "eta"})
        return report

    def _evaluate(self, model: np.ndarray) -> dict[str, float | None] | None:
        if self.rows.test is None:
            return None
        if self.evaluated is None or self.evaluated[0] is not model:
            models.from_vector(self.module, model)
            self.evaluated = model, evaluate(self.module, self.rows.test)
        return self.evaluated[1]

    def _deliver(self, folder: RunFolder) -> Run:
        """Write statement, model and the silos' logs for the rounds of the last checkpoint."""
        entropy: Literal["system", "seeded"] = "system" if self.seed is None else "seeded"
        privacy = statement(
            self.job, self.plan, self.saved, entropy=entropy, public_test_rows=self.rows.test is not None
        )
        models.from_vector(self.module, self.released)
        model = TrainedModel(
            self.module,
            encoding=self.rows.encoding,
            feature_shape=self.rows.feature_shape,
            classes=self.rows.encoding.levels if self.rows.encoding else tuple(map(str, range(self.rows.classes))),
            privacy=privacy,
        )
        test = self._evaluate(self.released)
        folder.write_bytes("model.safetensors", model_bytes(model, self.job.model))
        folder.write_json("silos.json", self._silo_logs())
        folder.write_json("privacy.json", privacy)
        return Run(
            path=folder.path,
            model=model,
            privacy=privacy,
            metrics={} if test is None else {"test": test},
            seconds=self.tally.seconds,
            mib_per_silo=max(self.tally.bytes_by_silo.values(), default=0) / _MIB,
            cautions=cautions(self.job, self.plan),
        )

    def _silo_logs(self) -> dict[str, Any]:
        return {
            silo: {**asdict(self.rows.counts[silo]), "non_finite": participant.log.non_finite}
            for silo, participant in self.participants.items()
        }


def _group(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}

"""The executor of `--engine ray`: units go to the nodes of a running Ray cluster, and those of a lost node go again.

Needs the extra `ray`. Every node has the same Gates and whatever its subjects need; only JSON crosses. Each unit has one
place in the books here, so a verdict that comes twice (a node that was thought lost) is counted once.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gates.model import ConfigurationError, Verdict
from gates.registry import Registry
from gates.run.engines import node
from gates.run.engines.needs import needs, unmet
from gates.run.engines.units import Unit, read_judged
from gates.run.runner import Judged, Options, PlannedCase, seed_of

ATTEMPTS = 5  # that a unit is sent: a cluster that loses its node five times is not the subject's fault, nor ours
AHEAD = 2  # units waiting for each processor of the cluster, so that none waits for the driver
PATIENCE_S = 10.0  # between two looks at a cluster in which nothing ends


class Cluster:
    """A connection to the cluster, from which every run of a proof or a check takes an executor."""

    def __init__(self, registry: Registry, address: str | None = None) -> None:
        try:
            import ray  # noqa: PLC0415  the extra, for those who ask for it
            from ray import exceptions  # noqa: PLC0415  as above
        except ImportError:
            raise ConfigurationError("--engine ray needs Ray: pip install 'rl-gates[ray]'") from None
        self.ray: Any = ray
        self.lost: tuple[type[BaseException], ...] = (
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.ObjectLostError,
            exceptions.LocalRayletDiedError,
            exceptions.OutOfMemoryError,
        )
        self.registry = registry
        self.again = 0  # units that were sent more than once
        wanted = address or os.environ.get("RAY_ADDRESS") or "auto"
        try:
            ray.init(address=wanted, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0][:200]
            raise ConfigurationError(
                f"--engine ray: no cluster answers at {wanted} ({reason}); start one with `ray start --head`, "
                "or set RAY_ADDRESS"
            ) from None
        self.judge: Any = ray.remote(node.judge)

    def __call__(self, options: Options) -> ClusterExecutor:
        """Return the executor of one run."""
        return ClusterExecutor(self, options)

    def nodes(self) -> list[Mapping[str, float]]:
        """Return what each living node has."""
        return [found["Resources"] for found in self.ray.nodes() if found["Alive"]]

    def close(self) -> None:
        """Leave the cluster; it goes on."""
        self.ray.shutdown()


class ClusterExecutor:
    """Sends cells, collects verdicts, sends again what a lost node had."""

    def __init__(self, cluster: Cluster, options: Options) -> None:
        self._cluster = cluster
        self._options = options
        self._waiting: deque[tuple[PlannedCase, int]] = deque()
        self._running: dict[Any, tuple[PlannedCase, int]] = {}  # reference → cell and how often it was sent before

    def submit(self, jobs: Sequence[PlannedCase]) -> None:
        """Take cells; they are sent when there is room."""
        self._waiting.extend((job, 0) for job in jobs)

    def judged(self) -> Iterator[Judged]:
        """Yield each cell's verdict once, whatever becomes of nodes."""
        while self._waiting or self._running:
            nodes = self._cluster.nodes()
            room = AHEAD * max(1, int(sum(found.get("CPU", 0) for found in nodes)))
            while self._waiting and len(self._running) < room:
                job, before = self._waiting.popleft()
                if missing := unmet(needs(job, self._options), nodes):
                    yield Judged(_unplaced(job, self._options, missing), seed=job.seed)
                else:
                    self._send(job, before)
            if self._running:
                done, _ = self._cluster.ray.wait(list(self._running), num_returns=1, timeout=PATIENCE_S)
                for reference in done:
                    yield from self._collect(reference)
                if not done:
                    yield from self._give_up()

    def close(self) -> None:
        """Take back what was sent."""
        for reference in self._running:
            self._cluster.ray.cancel(reference, force=True)
        self._running.clear()
        self._waiting.clear()

    def _send(self, job: PlannedCase, before: int) -> None:
        wants = needs(job, self._options)
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": 0}  # whoever counts the attempts must be one: we do
        if "cuda" in wants:
            options["num_gpus"] = wants.pop("cuda")
        if "memory" in wants:
            options["memory"] = wants.pop("memory")
        text = Unit.of(job, self._options, self._cluster.registry).text()
        self._running[self._cluster.judge.options(**options, resources=wants).remote(text)] = (job, before)

    def _give_up(self) -> Iterator[Judged]:
        """Take back what no living node can judge any more; Ray would keep it for a node that may never come."""
        nodes = self._cluster.nodes()
        for reference, (job, _) in list(self._running.items()):
            if missing := unmet(needs(job, self._options), nodes):
                del self._running[reference]
                self._cluster.ray.cancel(reference, force=True)
                yield Judged(_unplaced(job, self._options, missing), seed=job.seed)

    def _collect(self, reference: Any) -> Iterator[Judged]:
        job, before = self._running.pop(reference)
        try:
            answer = self._cluster.ray.get(reference)
        except self._cluster.lost as error:
            if before + 1 < ATTEMPTS:
                self._cluster.again += 1
                self._waiting.appendleft((job, before + 1))
                return
            yield Judged(_lost(job, self._options, error), seed=job.seed)
            return
        if "refused" in answer:
            raise ConfigurationError(f"--engine ray: {answer['refused']}")
        yield replace(read_judged(answer["judged"]), seed=job.seed)


def _unplaced(job: PlannedCase, options: Options, missing: str) -> Verdict:
    reason = f"no node of the cluster has {missing}; add one that does (ray start --resources)"
    seed = seed_of(job, options)
    return Verdict(job.gate.id, job.subject.name, job.case.name, seed, "skipped", "absent", reason)


def _lost(job: PlannedCase, options: Options, error: BaseException) -> Verdict:
    what = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
    reason = f"the cluster lost this cell {ATTEMPTS} times, the last by {what}"
    seed = seed_of(job, options)
    return Verdict(job.gate.id, job.subject.name, job.case.name, seed, "error", "engine", reason)

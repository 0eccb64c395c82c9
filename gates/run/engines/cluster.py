"""Judge on the nodes of a running Ray cluster (`--engine ray`); cases of a lost node are sent again.

This needs the extra `ray`. Every node must have the same version of Gates and what its subjects need.
Each case is counted once, even where two nodes report its verdict because one of them was taken for lost.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gates.model import ConfigurationError, Status, Verdict
from gates.registry import Registry
from gates.run.engines import node
from gates.run.engines.needs import needs, unmet
from gates.run.judge import Judged
from gates.run.plan import Options, PlannedCase, seed_of

ATTEMPTS = 5  # to judge one case; then the verdict is `error`, because neither subject nor gate is at fault
AHEAD = 2  # cases queued for each processor of the cluster, so that none is idle until the driver sends another
PATIENCE_S = 10.0  # between two checks of the cluster's nodes while no case ends


class Cluster:
    """A connection to the cluster. Called with options, it makes the executor of one run."""

    def __init__(self, registry: Registry, address: str | None = None) -> None:
        try:
            import ray  # noqa: PLC0415  an optional dependency
            from ray import exceptions  # noqa: PLC0415  as above
        except ImportError:
            raise ConfigurationError("--engine ray needs Ray: pip install '.[ray]' in a checkout of Gates") from None
        self.ray: Any = ray
        self.lost: tuple[type[BaseException], ...] = (
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.ObjectLostError,
            exceptions.LocalRayletDiedError,
            exceptions.OutOfMemoryError,
        )
        self.registry = registry
        self.again = 0  # cases that were sent more than once
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
        """Return the resources of each living node."""
        return [info["Resources"] for info in self.ray.nodes() if info["Alive"]]

    def close(self) -> None:
        """Disconnect; the cluster stays up."""
        self.ray.shutdown()


class ClusterExecutor:
    """Sends cases to nodes, collects verdicts, and sends the cases of a lost node again."""

    def __init__(self, cluster: Cluster, options: Options) -> None:
        self._cluster = cluster
        self._options = options
        self._waiting: deque[tuple[PlannedCase, int]] = deque()
        self._running: dict[Any, tuple[PlannedCase, int]] = {}  # Ray reference → case, and how often it was sent before

    def submit(self, cases: Sequence[PlannedCase]) -> None:
        """Queue cases; they are sent when a node has room."""
        self._waiting.extend((planned, 0) for planned in cases)

    def judged(self) -> Iterator[Judged]:
        """Yield each case's verdict once, even if nodes are lost."""
        while self._waiting or self._running:
            nodes = self._cluster.nodes()
            room = AHEAD * max(1, int(sum(resources.get("CPU", 0) for resources in nodes)))
            while self._waiting and len(self._running) < room:
                planned, before = self._waiting.popleft()
                if missing := unmet(needs(planned, self._options), nodes):
                    yield self._unplaced(planned, missing)
                else:
                    self._send(planned, before)
            if self._running:
                done, _ = self._cluster.ray.wait(list(self._running), num_returns=1, timeout=PATIENCE_S)
                for reference in done:
                    yield from self._collect(reference)
                if not done:
                    yield from self._give_up()

    def close(self) -> None:
        """Cancel the cases that were sent."""
        for reference in self._running:
            self._cluster.ray.cancel(reference, force=True)
        self._running.clear()
        self._waiting.clear()

    def _send(self, planned: PlannedCase, before: int) -> None:
        wants = needs(planned, self._options)
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": 0}  # attempts are counted here, not by Ray
        if "cuda" in wants:
            options["num_gpus"] = wants.pop("cuda")
        if "memory" in wants:
            options["memory"] = wants.pop("memory")
        unit = node.Unit.of(planned, self._options, self._cluster.registry)
        sent = self._cluster.judge.options(**options, resources=wants).remote(unit.fields())
        self._running[sent] = (planned, before)

    def _give_up(self) -> Iterator[Judged]:
        """Cancel the cases that no living node can judge: Ray would keep them for a node that may never join."""
        nodes = self._cluster.nodes()
        for reference, (planned, _) in list(self._running.items()):
            if missing := unmet(needs(planned, self._options), nodes):
                del self._running[reference]
                self._cluster.ray.cancel(reference, force=True)
                yield self._unplaced(planned, missing)

    def _collect(self, reference: Any) -> Iterator[Judged]:
        planned, before = self._running.pop(reference)
        try:
            answer = self._cluster.ray.get(reference)
        except self._cluster.lost as error:
            if before + 1 < ATTEMPTS:
                self._cluster.again += 1
                self._waiting.appendleft((planned, before + 1))
                return
            what = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
            reason = f"the cluster lost this case {ATTEMPTS} times, the last by {what}"
            yield self._unjudged(planned, "error", "engine", reason)
            return
        if isinstance(answer, str):
            raise ConfigurationError(f"--engine ray: {answer}")
        yield answer

    def _unplaced(self, planned: PlannedCase, missing: str) -> Judged:
        reason = f"no node of the cluster has {missing}; add one that does (ray start --resources)"
        return self._unjudged(planned, "skipped", "absent", reason)

    def _unjudged(self, planned: PlannedCase, status: Status, cause: str, reason: str) -> Judged:
        seed, op = seed_of(planned, self._options), planned.gate.graded(planned.case)
        return Judged(Verdict(*planned.names, seed, status, cause, reason, op=op), seed=planned.seed)

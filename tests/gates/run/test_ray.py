"""`--engine ray`: a cluster judges, a node is lost in the middle, and nothing is lost or counted twice.

Ray is an extra and no part of `make setup`; where it is absent only the units are tried. With
`pip install --constraint constraints.txt --requirement constraints-ray.txt` the rest runs too.
"""

import importlib.util
import json
import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import records

from gates.model import ConfigurationError, Subject
from gates.mutation.proof import try_mutants
from gates.registry import load
from gates.results.jsonl import Writer, read
from gates.run import session
from gates.run.engines import cluster as engine
from gates.run.engines import node
from gates.run.execute import run
from gates.run.judge import Judged
from gates.run.plan import Options, PlannedCase, plan
from gates.run.shards import Shard
from gates.subjects import catalogue

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is an extra: constraints-ray.txt")
SLOW = """
import os
import time
from pathlib import Path

JUDGES = Path(__file__).with_name("judges")

def pack_sequences(**inputs):
    with JUDGES.open("a") as file:
        file.write(f"{os.getppid()}\\n")
    end = time.monotonic() + 15.0
    while JUDGES.with_name("wait").exists() and len(set(JUDGES.read_text().split())) < 2 and time.monotonic() < end:
        time.sleep(0.05)  # until another process judges too
    time.sleep(1.0)
    raise NotImplementedError("it only takes its time")

OPS = {"pack_sequences": pack_sequences}
"""


@pytest.fixture
def slow(tmp_path: Path) -> Subject:
    """A subject in a file, which takes a second for each case, and writes down who judges."""
    (tmp_path / "slow.py").write_text(SLOW)
    return catalogue.from_file(str(tmp_path / "slow.py"), None)


def packing(*subjects: Subject) -> list[PlannedCase]:
    return plan(load().select(("packing",)), subjects, quick=False)


class TestUnits:
    """Cases on their way to a node."""

    def test_every_cell_is_found_again_by_its_names(self) -> None:
        """For each case of one subject, and for each subject, the unit is small plain data and gives the same case back."""
        registry = load()
        quick = plan(registry.gates.values(), registry.subjects.values(), quick=True)
        by_subject = {planned.subject.name: planned for planned in quick}
        for planned in (
            *plan(registry.gates.values(), [registry.subjects["numpy"]], quick=False),
            *by_subject.values(),
        ):
            unit = node.Unit.of(planned, Options(), registry)
            assert len(json.dumps(unit.fields())) < 1000
            found = unit.find(registry)
            assert (found.gate, found.subject, found.case) == (planned.gate, planned.subject, planned.case)

    def test_a_subject_of_a_file_is_found_by_its_path(self, slow: Subject) -> None:
        planned = packing(replace(slow, python=sys.executable))[0]
        found = node.Unit.of(planned, Options(seed=3), load()).find(load())
        assert found.subject == planned.subject

    def test_a_memory_limit_holds_on_the_node_too(self, slow: Subject) -> None:
        """Of a shipped subject and of a file; without one a worker is not watched."""
        for subject in (slow, load().subjects["numpy"]):
            for limit in (None, 1 << 30):
                planned = packing(replace(subject, memory_limit=limit))[0]
                found = node.Unit.of(planned, Options(), load()).find(load())
                assert found.subject.memory_limit == limit

    def test_another_version_is_refused(self, slow: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
        """A node with other gates under the same names would judge something else."""
        fields = node.Unit.of(packing(slow)[0], Options(), load()).fields()
        monkeypatch.setattr(session, "tool_version", lambda: "rl-gates 9")
        refused = node.judge(fields)
        assert isinstance(refused, str)
        assert "a node has rl-gates 9" in refused

    def test_names_that_a_node_lacks_are_refused(self, slow: Subject) -> None:
        """A plugin that a node lacks is said by name."""
        unit = node.Unit.of(packing(slow)[0], Options(), load())
        for other in (replace(unit, gate="no.gate"), replace(unit, case="none"), replace(unit, subject="x", file=None)):
            with pytest.raises(ConfigurationError, match="install the same plugins on every node"):
                other.find(load())

    def test_a_verdict_comes_back_as_it_was(self) -> None:
        """What the node's process says is what this one reads: verdict, versions, calls of a mutated function."""
        registry = load()
        planned = plan(registry.select(("philox.known-answers",)), [registry.subjects["numpy"]], quick=True)[0]
        try:
            found = node.judge(node.Unit.of(planned, Options(), registry).fields())
        finally:
            node._end()
        assert isinstance(found, Judged)
        assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301  as Ray sends it
        (here,) = run([planned], Options())
        assert replace(found.verdict, seconds=0.0) == replace(here.verdict, seconds=0.0)
        assert found.verdict.status == "correct"
        assert found.hello == here.hello


def test_without_ray_or_a_cluster_it_is_one_sentence(tmp_path: Path) -> None:
    """The extra is named where it is missing, and where no cluster answers, how to start one."""
    environment = {**os.environ, "RAY_ADDRESS": "127.0.0.1:1"} if importlib.util.find_spec("ray") is None else None
    if environment is None:
        pytest.skip("Ray is here, and would wait long for a cluster that is not")
    command = [sys.executable, "-m", "gates", "check", "philox", "--subject", "numpy", "--engine", "ray", "--quick"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gates: --engine ray needs Ray: pip install '.[ray]' in a checkout of Gates\n"


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A local cluster of three nodes: the head judges nothing, one of the two others has Metal."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster  # noqa: PLC0415  the extra

    local = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    local.test_nodes = [local.add_node(num_cpus=1, resources={"metal": 1}), local.add_node(num_cpus=1)]
    local.wait_for_nodes()
    yield local
    local.shutdown()


def other(three: Any) -> Any:
    """Take the node that this process is not connected to: Ray forbids to remove that one."""
    import ray  # noqa: PLC0415  the extra

    mine = ray._private.worker._global_node._raylet_socket_name
    victim = next(node for node in three.test_nodes if node._raylet_socket_name != mine)
    three.test_nodes.remove(victim)
    return victim


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default")  # Ray's own, at import and at shutdown
class TestCluster:
    """A local cluster of several nodes, each with processes of its own."""

    def test_a_lost_nodes_units_are_judged_again_and_none_counted_twice(
        self, three: Any, slow: Subject, tmp_path: Path
    ) -> None:
        """A node is killed while it judges: the file is complete, each case once, and some were sent again."""
        registry = load()
        cases = packing(slow)
        cluster = engine.Cluster(registry, three.address)
        head = records.header([c.names for c in cases], plan=Shard().record(cases), engine="ray")
        writer = Writer(tmp_path / "r.jsonl")
        writer.write(head)
        (tmp_path / "wait").touch()
        nodes = len(cluster.nodes())

        def lose(verdict: Any) -> None:
            both = len(set((tmp_path / "judges").read_text().split())) > 1
            if both and len(three.test_nodes) == 2:
                time.sleep(0.4)  # into the middle of the other node's case
                three.remove_node(other(three), allow_graceful=False)

        try:
            tally = session.check(session.CheckRequest(cases, Options(), writer, on_verdict=lose, engine=cluster))
        finally:
            writer.close()
            cluster.close()
        found = read(tmp_path / "r.jsonl")  # raises where a case is judged twice
        assert found.state == "complete"
        assert sorted((v.gate, v.subject, v.case) for v in found.verdicts) == sorted([c.names for c in cases])
        assert tally.counts == {"unsupported": len(cases)}
        assert cluster.again >= 1
        sys.stdout.write(
            json.dumps({"cells": len(cases), "again": cluster.again, "nodes": nodes, **tally.counts}) + "\n"
        )

    @pytest.mark.parametrize("verb", ["check", "calibrate"])
    def test_the_command_as_it_is_typed(self, three: Any, tmp_path: Path, verb: str) -> None:
        """`--engine ray` from the command line: the same statuses as here, each case once, and the header says who judged."""
        environment = {**os.environ, "RAY_ADDRESS": three.address}
        options = ["--seeds", "3"] if verb == "calibrate" else ["--quick"]
        runs = []
        for name in ("ray", "local"):
            command = [sys.executable, "-m", "gates", verb, "philox", "--subject", "numpy", *options]
            done = subprocess.run(
                [*command, "--engine", name, "--out", str(tmp_path / name)],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            (file,) = (tmp_path / name).glob("*.jsonl")
            runs.append(read(file))
        there, here = runs
        assert (there.header.engine, here.header.engine, there.state) == ("ray", "local", "complete")
        assert sorted((v.gate, v.case, v.status) for v in there.verdicts) == sorted(
            (v.gate, v.case, v.status) for v in here.verdicts
        )
        assert there.calibrations == here.calibrations
        assert there.verdicts or there.calibrations

    def test_units_go_where_their_needs_are_met(self, three: Any, slow: Subject) -> None:
        """What needs Metal is judged on the node that has it; what needs CUDA is skipped with a reason, for no node has."""
        cluster = engine.Cluster(load(), three.address)
        metal = replace(slow, needs={"metal": 1, "memory": 1e6})
        try:
            found = Counter(j.verdict.status for j in run(packing(metal)[:3], Options(), cluster))
            assert found == {"unsupported": 3}
            (cuda,) = run(packing(replace(slow, needs={"cuda": 1}))[:1], Options(), cluster)
            assert (cuda.verdict.status, cuda.verdict.cause) == ("skipped", "absent")
            assert "no node of the cluster has cuda 1" in cuda.verdict.reason
        finally:
            cluster.close()

    def test_a_process_that_always_dies_ends_in_an_error(self, three: Any, slow: Subject, tmp_path: Path) -> None:
        """A case that kills its judge wherever it is sent is an error after so many times, and the run goes on."""
        body = "import os, signal\ndef pack_sequences(**inputs):\n    os.kill(os.getppid(), signal.SIGKILL)\nOPS = {'pack_sequences': pack_sequences}\n"
        (tmp_path / "deadly.py").write_text(body)
        deadly = catalogue.from_file(str(tmp_path / "deadly.py"), None)
        cluster = engine.Cluster(load(), three.address)
        try:
            (judged,) = run(packing(deadly)[:1], Options(), cluster)
        finally:
            cluster.close()
        assert (judged.verdict.status, judged.verdict.cause) == ("error", "engine")
        assert judged.verdict.reason.startswith("the cluster lost this case 5 times")

    def test_a_cluster_without_nodes_ends_the_run(
        self, three: Any, slow: Subject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where every node that could judge is gone, what was sent and what was not ends with a reason."""
        monkeypatch.setattr(engine, "PATIENCE_S", 2.0)
        cluster = engine.Cluster(load(), three.address)
        running = run(packing(slow), Options(), cluster)
        found = [next(running).verdict]
        monkeypatch.setattr(engine.Cluster, "nodes", lambda self: [])  # Ray forbids to remove the driver's own
        try:
            found += [judged.verdict for judged in running]
        finally:
            cluster.close()
        assert sorted(v.case for v in found) == sorted(planned.case.name for planned in packing(slow))
        reasons = {v.reason for v in found if v.status == "skipped"}
        assert reasons == {"no node of the cluster has a processor; add one that does (ray start --resources)"}
        assert {v.status for v in found} == {"unsupported", "skipped"}

    def test_mutants_are_caught_by_a_cluster_too(self, three: Any) -> None:
        """A mutation runs on the nodes, and is caught with as many verdicts as here."""
        registry = load()
        mutants = [m for m in registry.mutants.values() if m.caught_by == ("philox.known-answers",)][:2]
        assert mutants
        options = Options(jobs=2, quick=True)
        cluster = engine.Cluster(registry, three.address)
        try:
            there = list(try_mutants(mutants, registry.gates, registry.subjects, options, cluster))
        finally:
            cluster.close()
        here = list(try_mutants(mutants, registry.gates, registry.subjects, options))
        assert {t.mutant.name: (t.state, len(t.verdicts)) for t in there} == {
            t.mutant.name: ("caught", len(t.verdicts)) for t in here
        }

"""On a Ray cluster: an existing one (RAY_ADDRESS, or the one this machine belongs to), or one of this machine alone.

A run takes one CPU, and on a GPU cluster a share of a GPU, one over `pack`. When a worker or a node dies, Ray starts
its runs again elsewhere. Options are those of ray.init, such as address.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from everlearn.errors import BadInput, EverlearnError, Notice
from everlearn.experiments.experiment import Experiment
from everlearn.launchers import AGAIN, Job, Outcome, Report, needs
from everlearn.launchers.remote import claims, run_there


def started(options: Mapping[str, str | int]) -> Any:
    """Ray, with a cluster at hand."""
    ray = needs("ray", "ray")
    if not ray.is_initialized():
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        try:
            ray.init(**quiet | dict(options))
        except Exception as error:  # nobody at that address, an option it does not know: each is an error of its own
            raise BadInput(f"Ray cannot be reached or started so: {str(error).strip().splitlines()[0]}") from None
    return ray


def launch(todo: Sequence[Experiment], job: Job, report: Report) -> Iterator[Outcome]:
    ray = started(job.options)
    cluster = ray.cluster_resources()
    gpu = job.device == "cuda"
    if cluster.get(wanted := "GPU" if gpu else "CPU", 0) <= 0:  # one that grows may have it later
        warnings.warn(
            f"no machine of the Ray cluster has a {wanted}; the runs wait until one has", Notice, stacklevel=1
        )
    share = {"num_gpus": 1 / (job.pack or 1)} if gpu else {}
    remote = ray.remote(**share, num_cpus=1, max_retries=AGAIN)(run_there)
    room = job.jobs or max(1, int(cluster.get("GPU", 1) * (job.pack or 1) if gpu else cluster.get("CPU", 1)))
    waiting, out = deque(todo), {}
    # Ray reports lost nodes on stdout, which is the result's.
    with claims(job) as held, contextlib.redirect_stdout(sys.stderr):
        while waiting or out:
            while waiting and len(out) < room:
                experiment = waiting.popleft()
                if refused := held.take(experiment):
                    yield experiment, refused
                else:
                    out[remote.remote(job, experiment)] = experiment
            for reference in ray.wait(list(out), timeout=1)[0] if out else ():
                experiment = out.pop(reference)
                try:
                    outcome = ray.get(reference)
                except ray.exceptions.RayError as error:
                    reason = str(error).strip().splitlines()[0]
                    outcome = EverlearnError(f"{experiment.name} was lost {AGAIN + 1} times on the cluster: {reason}")
                yield experiment, held.settle(experiment, outcome)


launch.device = lambda options: "cuda" if started(options).cluster_resources().get("GPU", 0) > 0 else "cpu"

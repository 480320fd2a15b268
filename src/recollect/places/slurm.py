"""On a Slurm cluster, through submitit: one job array, requeued when a job is preempted, sent again when one is killed.

Options are submitit's parameters: partition=gpu, timeout_min=120, slurm_account=…; cluster=local runs the jobs as processes of
this machine, which is how to try it. The folder of the runs must be one that all nodes see.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from recollect.errors import RecollectError
from recollect.experiments import Experiment
from recollect.places import Job, Outcome, Report, needs
from recollect.places.away import AGAIN, Files, claims, perform_there

LOOK = 1.0  # seconds


class Work:
    """What a job of the array does; told to make way, it asks to be started again."""

    def __call__(self, job: Job, experiment: Experiment) -> Files | Exception:
        return perform_there(job, experiment)

    def checkpoint(self, job: Job, experiment: Experiment):
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, job, experiment)


def perform(todo: Sequence[Experiment], job: Job, report: Report) -> Iterator[Outcome]:
    submitit = needs("submitit", "slurm")
    options = {name: int(value) if str(value).isdigit() else value for name, value in job.options.items()}
    executor = submitit.AutoExecutor(folder=job.store.root.resolve() / ".slurm", cluster=options.pop("cluster", None))
    gpus = {"gpus_per_node": 1} if job.device == "cuda" else {}
    array = {"slurm_array_parallelism": job.jobs} if job.jobs else {}
    executor.update_parameters(
        **{"name": "recollect", "cpus_per_task": 1, "timeout_min": 24 * 60} | gpus | array | options
    )
    lost: Counter[Experiment] = Counter()
    with claims(job) as held:
        sent: list[Experiment] = []
        for experiment in todo:
            if refused := held.take(experiment):
                yield experiment, refused
            else:
                sent.append(experiment)
        with executor.batch():  # one array
            handles = [executor.submit(Work(), job, experiment) for experiment in sent]
        out = dict(zip(sent, handles))
        try:
            while out:
                for experiment, handle in list(out.items()):
                    if not handle.done():
                        continue
                    del out[experiment]
                    try:
                        outcome = handle.result()
                    except submitit.core.utils.UncompletedJobError as error:  # it died without a word
                        lost[experiment] += 1
                        if lost[experiment] <= AGAIN:
                            out[experiment] = executor.submit(Work(), job, experiment)
                            continue
                        reason = str(error).strip().splitlines()[0]
                        outcome = RecollectError(f"{experiment.name} was lost {lost[experiment]} times: {reason}")
                    yield experiment, held.settle(experiment, outcome)
                time.sleep(LOOK if out else 0)
        finally:
            for handle in out.values():
                handle.cancel()

"""On a Slurm cluster, through submitit: one job array.

A job that is preempted is requeued, one that is killed is sent again, and both go on from their last checkpoint.

Options are submitit's parameters: partition=gpu, timeout_min=120, slurm_account=…; cluster=local runs the jobs as
processes of this machine, which is how to try it. The folder of the runs must be one that all nodes see.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from everlearn.errors import BadInput, EverlearnError
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.store import Store
from everlearn.launchers import AGAIN, Job, Outcome, Report, needs
from everlearn.launchers.local import cores
from everlearn.launchers.remote import Files, claims, run_there

LOOK = 1.0  # seconds


class Work:
    """What a job of the array does; when it is preempted, it asks to be started again."""

    def __call__(self, job: Job, experiment: Experiment, folder: Path) -> Files | Exception:
        return run_there(job, experiment, folder)

    def checkpoint(self, *given):
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *given)


def launch(todo: Sequence[Experiment], job: Job, report: Report) -> Iterator[Outcome]:
    submitit = needs("submitit", "slurm")
    options = {"cluster": "slurm", "name": "everlearn", "cpus_per_task": 1, "timeout_min": 24 * 60} | dict(job.options)
    options |= {"gpus_per_node": 1} if job.device == "cuda" else {}
    here = (cluster := options.pop("cluster")) == "local"
    if cluster == "slurm" and not shutil.which("sbatch"):
        raise BadInput(
            "there is no Slurm here (no sbatch); "
            "--launcher-option cluster=local tries it with processes of this machine"
        )
    options |= {"slurm_array_parallelism": job.jobs} if job.jobs and not here else {}
    try:
        executor = submitit.AutoExecutor(folder=(folder := job.store.root.resolve() / ".slurm"), cluster=cluster)
        executor.update_parameters(**options)
    except (NameError, TypeError, ValueError, AssertionError) as error:
        raise BadInput(f"submitit does not take these options: {str(error).strip().splitlines()[0]}") from None
    room = job.jobs or cores() if here else len(todo)  # Slurm has a queue of its own
    unfinished = Store(folder / "runs")
    lost: Counter[Experiment] = Counter()
    waiting, out = deque(todo), {}
    with claims(job) as held:
        try:
            while waiting or out:
                send: list[Experiment] = []
                while waiting and len(out) + len(send) < room:
                    experiment = waiting.popleft()
                    if not lost[experiment]:
                        if refused := held.take(experiment):
                            yield experiment, refused
                            continue
                        if job.fresh:
                            unfinished.forget(experiment)
                    send.append(experiment)
                if send:
                    with executor.batch():  # one array
                        handles = [executor.submit(Work(), job, experiment, unfinished.root) for experiment in send]
                    out |= dict(zip(send, handles))
                for experiment, handle in list(out.items()):
                    if not handle.done():
                        continue
                    del out[experiment]
                    try:
                        outcome = handle.result()
                    except submitit.core.utils.UncompletedJobError:  # the job died without a result
                        lost[experiment] += 1
                        if lost[experiment] <= AGAIN:
                            waiting.append(experiment)
                            continue
                        outcome = EverlearnError(
                            f"its job was lost {lost[experiment]} times, at last in the state {handle.state}; "
                            f"what it printed is in {handle.paths.stderr}"
                        )
                    if (error := held.settle(experiment, outcome)) is None:
                        unfinished.forget(experiment)
                    yield experiment, error
                time.sleep(LOOK if out else 0)
        finally:
            for handle in out.values():
                handle.cancel()


launch.device = lambda options: "cpu"  # a job has a GPU only where one is asked for

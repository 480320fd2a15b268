"""On this machine: worker processes on the CPU's cores, or streams on one GPU."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import queue
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

import torch

from everlearn.core import ranks
from everlearn.core.capture import own_stream
from everlearn.core.theta import small
from everlearn.errors import EverlearnError, Notice
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.run import parameters
from everlearn.launchers import AGAIN, Job, Outcome, Report, attempted, each, failure
from everlearn.spec import look_up


def launch(todo: Sequence[Experiment], job: Job, report: Report) -> Iterator[Outcome]:
    """Small networks: a process per core. On a GPU: `pack` runs side by side. Else one run at a time, on all ranks."""
    if ranks.distributed():
        yield from each(todo, job, report)
        return
    if job.device == "cuda":
        pack = job.pack or fitting(todo, job)
        # By precision: torch has one setting for all runs of a process.
        for precision in dict.fromkeys(e.training.precision for e in todo):
            same = [experiment for experiment in todo if experiment.training.precision == precision]
            yield from pack_up(same, job, report, pack) if min(pack, len(same)) > 1 else each(same, job, report)
        return
    workers = min(len(todo), job.jobs or cores()) if all(light(e, job) for e in todo) else 1
    if workers < 2:
        yield from each(todo, job, report)
        return
    yield from spread(todo, job, report, workers)


PLACES = ("event", "task", "epoch", "step", "steps", "tasks")  # what is passed on of a record
MOST = 5  # runs on one GPU; more gain little
SMALL, LARGE = (
    0.5,
    4.0,
)  # GiB per run of a small and of a larger network, generously: benchmarks/results has the figures


def fitting(todo: Sequence[Experiment], job: Job) -> int:
    """How many of these runs the GPU's free memory takes."""
    free, _ = torch.cuda.mem_get_info()
    of = lambda e: (SMALL if light(e, job) else LARGE) * look_up("method", e.method).thing.memory_factor
    return max(1, min(MOST, int(free / 2**30 / max(map(of, todo), default=LARGE))))


def light(experiment: Experiment, job: Job) -> bool:
    """Is its network small? One that cannot be made, for want of its data say, costs nothing: its run says why."""
    try:
        return small(parameters(experiment, job.data))
    except Exception:
        return True


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(todo: Sequence[Experiment], job: Job, report: Report, workers: int) -> Iterator[Outcome]:
    """Worker processes. One that is killed takes the pool with it: what was not done by then goes to a new one."""
    left = dict.fromkeys(todo)
    for _ in range(AGAIN):
        try:
            for experiment, error in _pool(list(left), job, report, workers):
                del left[experiment]
                yield experiment, error
            return
        except BrokenProcessPool:
            continue
    for experiment in left:
        yield (
            experiment,
            EverlearnError(
                "a worker process was killed, perhaps for want of memory; fewer at a time (--jobs 1) may fit"
            ),
        )


def _pool(todo: Sequence[Experiment], job: Job, report: Report, workers: int) -> Iterator[Outcome]:
    context = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
    if hasattr(os, "fork"):  # one process imports for all, and has no threads a fork would copy half-way
        context.set_forkserver_preload(["everlearn.launchers.local", "sklearn.datasets", "sklearn.model_selection"])
    records = context.Queue()
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(records,))
    try:
        with _uninterrupted():
            running: dict[Future, Experiment] = {
                pool.submit(_work, number, experiment, job): experiment for number, experiment in enumerate(todo)
            }
        while running:
            finished, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            _pass_on(records, todo, report)
            for future in finished:
                yield running.pop(future), future.result()
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()  # the worker clears away its unfinished run
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    _pass_on(records, todo, report)


def pack_up(todo: Sequence[Experiment], job: Job, report: Report, pack: int) -> Iterator[Outcome]:
    """One run does not fill a large GPU: several replay their steps on their own streams, launched by this thread."""
    waiting, active = deque(todo), []
    try:
        while waiting or active:
            if waiting and len(active) < pack:
                experiment = waiting.popleft()
                tell = lambda record, experiment=experiment: report(experiment, record)
                active.append((experiment, job.steps(experiment, tell), own_stream()))
            for run in list(active):
                experiment, steps, stream = run
                with stream:
                    error = None
                    try:
                        next(steps)
                        continue
                    except StopIteration:
                        pass
                    except Exception as reason:
                        error = failure(reason)
                active.remove(run)
                yield experiment, error
    finally:
        for _, steps, _ in active:
            steps.close()  # clears away an unfinished run


def _pass_on(records, todo: Sequence[Experiment], report: Report) -> None:
    try:
        while True:
            number, record = records.get_nowait()
            report(todo[number], record)
    except queue.Empty:
        pass


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits here; a process started meanwhile never hears it, for it inherits the mask."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(records) -> None:
    """A worker. Ctrl-C is the parent's business; terminated, or an orphan, it removes its unfinished run and ends."""
    global _records
    _records = records
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", Notice)  # said by the parent, which has looked at the data
    gc.freeze()  # what the imports left need not be looked through again
    records.cancel_join_thread()  # what nobody reads any more must not hold up the end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os.kill(os.getpid(), signal.SIGTERM)), daemon=True).start()


def _stop(*_) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: the clearing away is not to be interrupted
    sys.exit(1)


def _work(number: int, experiment: Experiment, job: Job) -> Exception | None:
    tell = lambda record: _records.put((number, {key: record[key] for key in PLACES if key in record}))
    try:
        return attempted(job, experiment, tell)
    except SystemExit:
        os._exit(1)  # a pool's worker would take the next run

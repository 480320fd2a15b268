"""On this machine: worker processes on the CPU's cores, or streams on one GPU."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import queue
import signal
import sys
import tempfile
import threading
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch

from everlearn.core import ranks
from everlearn.core.capture import own_stream
from everlearn.core.theta import small
from everlearn.errors import EverlearnError, Notice
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.run import Steps, parameters
from everlearn.launchers import AGAIN, Job, Outcome, Report, attempted, each, failure
from everlearn.learner import endings
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
    yield from spread(todo, job, report, workers) if workers > 1 else each(todo, job, report)


PLACE = ("task", "epoch", "step")
PASSED = (*PLACE, "event", "steps", "tasks")  # what is passed on of a record
SHORT = 60  # bytes of the temporary folder's path: with a socket's name in it, it may have 107
BEGUN = "begun"  # what a worker says of itself when it takes up a run
ENDED = 1  # its exit code when it is told to end
MOST = 5  # runs on one GPU; more gain little
# GiB that a run of a small and of a larger network may need, generously: benchmarks/results has the figures.
SMALL, LARGE = 0.5, 4.0


def fitting(todo: Sequence[Experiment], job: Job) -> int:
    """How many of these runs fit into the GPU's free memory at a time."""
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


class Lost(Exception):
    """A worker was killed, and the pool with it; these are the runs it may have been at."""

    def __init__(self, runs: Sequence[Experiment]):
        self.runs = runs


def spread(todo: Sequence[Experiment], job: Job, report: Report, workers: int) -> Iterator[Outcome]:
    """Worker processes. One that is killed takes the pool with it: what was not done by then goes to a new one.

    A run is given up when its worker was killed too often without getting any further.
    """
    left, killed = dict.fromkeys(todo), Counter()
    reached: dict[Experiment, tuple[int, ...]] = {}  # task, epoch and step

    def watched(experiment: Experiment, record: dict) -> None:
        if "task" in record and (place := tuple(record.get(key, 0) for key in PLACE)) > reached.get(experiment, ()):
            reached[experiment], killed[experiment] = place, 0
        report(experiment, record)

    while left:
        try:
            for experiment, error in _pool(list(left), job, watched, workers):
                del left[experiment]
                yield experiment, error
        except Lost as lost:
            killed.update(lost.runs)
        for experiment in [experiment for experiment in left if killed[experiment] > AGAIN]:
            del left[experiment]
            yield (
                experiment,
                EverlearnError(
                    "a worker process was killed, perhaps for want of memory; fewer at a time (--jobs 1) may fit"
                ),
            )


def _pool(todo: Sequence[Experiment], job: Job, report: Report, workers: int) -> Iterator[Outcome]:
    # One process imports for all workers and has no threads, which a fork would copy in the middle of something. It
    # is reached by a socket in the temporary folder, and the length of a socket's path is limited.
    serves = hasattr(os, "fork") and len(os.fsencode(tempfile.gettempdir())) <= SHORT
    context: Any = multiprocessing.get_context("forkserver" if serves else "spawn")
    if serves:
        context.set_forkserver_preload(["everlearn.launchers.local", "sklearn.datasets", "sklearn.model_selection"])
    with endings.exits(late=True), _uninterrupted():
        records = context.Queue()
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(records,))
    processes, begun = {}, {}  # processes by their number, and by run the number of the process that began it

    def pass_on() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                number, record = records.get_nowait()
                if record["event"] == BEGUN:
                    begun[todo[number]] = record["process"]
                else:
                    report(todo[number], record)

    running: dict[Future, Experiment] = {}
    try:
        with endings.exits(late=True), _uninterrupted():
            for number, experiment in enumerate(todo):
                running[pool.submit(_work, number, experiment, job)] = experiment
        processes = dict(pool._processes)
        while running:
            with endings.exits():
                finished, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            pass_on()
            for future in finished:
                outcome = future.result()
                yield running.pop(future), outcome
    except BrokenProcessPool:
        pool.shutdown()
        pass_on()
        at_work = [experiment for experiment in running.values() if experiment in begun]
        # The pool terminates the others: these exit codes are no deaths.
        dead = {n for n, process in processes.items() if process.exitcode not in (None, 0, ENDED, -signal.SIGTERM)}
        lost = [experiment for experiment in at_work if begun[experiment] in dead]
        if processes and not begun and not dead:
            raise EverlearnError(
                "the worker processes ended before they began: they import the script that starts them, so it starts "
                "runs under `if __name__ == '__main__':`"
            ) from None
        # A worker may die before it could say what it began: runs are begun in order, so it is the first unheard of.
        unheard = [experiment for experiment in running.values() if experiment not in begun] if dead else []
        raise Lost(lost or unheard[:1] or at_work or todo) from None
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()  # the worker writes down where it is
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    pass_on()


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
                try:
                    with stream:
                        next(steps)
                    continue
                except StopIteration:
                    error = None
                except Exception as reason:
                    error = failure(reason)
                active.remove(run)
                yield experiment, error
    finally:
        with contextlib.ExitStack() as left:
            for _, steps, stream in active:
                left.callback(_close, steps, stream)


def _close(steps: Steps, stream: contextlib.AbstractContextManager) -> None:
    """Clears away an unfinished run, or writes a checkpoint, of the state after the last step on its stream."""
    with stream:
        steps.close()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits here, whichever thread of ours it comes to; a process started meanwhile never hears it, for it
    inherits the mask."""
    with endings.heard(endings.CTRL_C):
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
    _records, sys.stdout = records, sys.stderr  # what somebody's code prints; stdout is for results
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", Notice)  # the parent process has looked at the data and given the notices
    gc.freeze()  # the garbage collector need not look through all that was imported
    records.cancel_join_thread()  # records that nobody reads any more must not delay the exit
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os.kill(os.getpid(), signal.SIGTERM)), daemon=True).start()
    signal.signal(signal.SIGTERM, _stop)  # last: an exit in here would be a traceback, and nothing has begun


def _stop(*_) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: the clearing away is not to be interrupted
    sys.exit(ENDED)


def _work(number: int, experiment: Experiment, job: Job) -> Exception | None:
    tell = lambda record: _records.put((number, {key: record[key] for key in PASSED if key in record}))
    try:
        _records.put((number, {"event": BEGUN, "process": os.getpid()}))
        return attempted(job, experiment, tell)
    except SystemExit:
        os._exit(ENDED)  # a pool's worker would take the next run

"""Several experiments at once: worker processes on the CPU's cores, or streams on one GPU."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from recollect import ranks, runs
from recollect.errors import RecollectError
from recollect.experiments import Experiment
from recollect.store import Store

Report = Callable[[Experiment, dict], None]
DONE = {"event": "run"}  # the last record of a run, for whoever watches


def perform_all(
    experiments: Sequence[Experiment],
    store: Store,
    *,
    device: str = "auto",
    data: Path | None = None,
    fresh: bool = False,
    pack: int | None = None,
    deterministic: bool = False,
    report: Report = lambda experiment, record: None,
) -> list[dict]:
    """The result of each experiment, in order; those that are there already are read and not run. `pack` runs share a GPU,
    as many as its memory takes, up to 5, unless given. Over several ranks they come one after another, each over all ranks."""
    todo = ranks.told([experiment for experiment in experiments if fresh or store.result(experiment) is None])
    settings = dict(device=runs.choose(device), data=data, fresh=True, deterministic=deterministic)
    if ranks.several():
        pack = 1
    elif settings["device"] == "cuda":
        pack = fitting(todo) if pack is None else pack
    spread = settings["device"] == "cpu" and all(map(_small, todo)) and not ranks.several()
    workers = min(len(todo), cores()) if spread else 1
    if workers > 1:
        for experiment in {e.stream: e for e in todo if e.stream != "digits"}.values():
            runs.load(experiment, data)  # what is wrong with the data shows here, not in every worker
        _spread(todo, store, settings, workers, report)
    elif settings["device"] == "cuda" and min(pack, len(todo)) > 1:
        for precision in dict.fromkeys(
            experiment.precision for experiment in todo
        ):  # torch has one setting for all runs of a process
            _pack(
                [experiment for experiment in todo if experiment.precision == precision], store, settings, pack, report
            )
    else:
        for experiment in todo:
            runs.perform(experiment, store, report=lambda record: report(experiment, record), **settings)
            report(experiment, DONE)
    return ranks.told([store.result(experiment) for experiment in experiments])


MOST = 5  # runs on one GPU; more gain little
NEED = {"mlp": 0.2, "cnn": 0.5}  # GiB a run; of a larger network's, generously: benchmarks/results has the figures
LARGE = 4.0


def fitting(todo: Sequence[Experiment]) -> int:
    """How many of these runs the GPU's free memory takes."""
    free, _ = torch.cuda.mem_get_info()
    return max(1, min(MOST, int(free / 2**30 / max((NEED.get(e.network, LARGE) for e in todo), default=LARGE))))


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _small(experiment: Experiment) -> bool:
    """Does it run on one thread? Then the number of workers does not change its bits."""
    return experiment.network in ("mlp", "cnn")


def _spread(todo: Sequence[Experiment], store: Store, settings: dict, workers: int, report: Report) -> None:
    context = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
    if hasattr(os, "fork"):  # one process imports for all, and has no threads a fork would copy half-way
        context.set_forkserver_preload(["recollect.workers", "sklearn.datasets", "sklearn.model_selection"])
    records = context.Queue()
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(records,))
    try:
        with _uninterrupted():
            running: set[Future] = {
                pool.submit(_work, number, experiment, store, settings) for number, experiment in enumerate(todo)
            }
        while running:
            finished, running = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            _pass_on(records, todo, report)
            for future in finished:
                future.result()  # raises what the run raised
    except BrokenProcessPool:
        raise RecollectError(
            "a worker process was killed, perhaps for want of memory; run the seeds one by one with --seed"
        ) from None
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()  # the worker clears away its unfinished run
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    _pass_on(records, todo, report)


def _stream() -> contextlib.AbstractContextManager:
    return torch.cuda.stream(torch.cuda.Stream()) if torch.cuda.is_available() else contextlib.nullcontext()


def _pack(todo: Sequence[Experiment], store: Store, settings: dict, pack: int, report: Report) -> None:
    """One run does not fill a large GPU: several replay their steps on streams of their own, launched in turn by this thread."""
    waiting, active = deque(todo), []
    try:
        while waiting or active:
            if waiting and len(active) < pack:
                experiment = waiting.popleft()
                tell = lambda record, experiment=experiment: report(experiment, record)
                active.append(
                    (
                        experiment,
                        runs.performing(
                            experiment, store, settings["device"], settings["data"], tell, settings["deterministic"]
                        ),
                        _stream(),
                    )
                )
            for run in list(active):
                experiment, steps, stream = run
                with stream:
                    if next(steps, DONE) is DONE:
                        active.remove(run)
                        report(experiment, DONE)
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
    """A worker: Ctrl-C is the parent's business; told to stop, or left alone, it clears away its unfinished run and ends."""
    global _records
    _records = records
    torch.set_num_threads(1)
    gc.freeze()  # what the imports left need not be looked through again
    records.cancel_join_thread()  # what nobody reads any more must not hold up the end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os.kill(os.getpid(), signal.SIGTERM)), daemon=True).start()


def _stop(*_) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # told once is enough: the clearing away is not to be interrupted
    sys.exit(1)


def _work(number: int, experiment: Experiment, store: Store, settings: dict) -> None:
    tell = lambda record: _records.put(
        (number, {key: record[key] for key in ("event", "task", "epoch") if key in record})
    )
    try:
        runs.perform(experiment, store, report=tell, **settings)
    except SystemExit:
        os._exit(1)  # a pool's worker would take the next run
    tell(DONE)

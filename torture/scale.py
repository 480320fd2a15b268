"""Does it stay as quick and as small as it began? Many tasks, many classes, on the CPU.

    python torture/scale.py [--count TASKS] [--classes N] [--out FILE]

Memory is what the process has, as the system counts it. A time is processor time, and a claim is about ratios.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from record import Record, options
from torch import nn

import everlearn

FLAT = 1.5  # the last tasks' time over that of early ones
GROWN = 40  # MiB that 1,000 tasks may add after the tenth
LINEAR = 3.0  # the time at twice the classes over the time


def held() -> float:
    """MiB of memory this process has now, on Linux."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


def many_tasks(record: Record, method: str, tasks: int) -> None:
    """One learner, taught task after task; ten classes come again and again."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 10))
    learner = everlearn.Learner(network, method, memory=50, epochs=2, batch=8, lr=0.01)
    x, y = torch.randn(10, 16, 8), torch.arange(10)
    seconds, first = [], 0.0
    for task in range(tasks):
        pair = [2 * task % 10, (2 * task + 1) % 10]
        begun = time.process_time()
        learner.update(x[pair].flatten(0, 1) + 0.01 * task, y[pair].repeat_interleave(16), progress=False)
        seconds.append(time.process_time() - begun)
        if task == 9:
            first = held()
    early, late = median(seconds[10 : 10 + tasks // 5]), median(seconds[-tasks // 5 :])
    record.figures[f"{method}, last tasks over early ones"] = round(late / early, 2)
    record.figures[f"{method}, MiB added after the tenth task"] = round(held() - first, 1)
    slow = f"the last tasks take {late / early:.2f} times as long" if late > FLAT * early else None
    record.tried("tasks, time", f"{method}, {tasks} tasks", slow)
    grown = f"memory grew by {held() - first:.0f} MiB" if held() - first > GROWN else None
    record.tried("tasks, memory", f"{method}, {tasks} tasks", grown)


def run_of(method: str, classes: int, folder: str) -> float:
    """Processor seconds of a whole run over ten tasks of so many classes in all."""
    rng = np.random.default_rng(0)
    file = Path(folder) / f"{classes}.npz"
    if not file.exists():
        images = lambda each: rng.integers(0, 256, (each * classes, 4, 4), dtype=np.uint8)
        labels = lambda each: np.tile(np.arange(classes), each)
        np.savez(file, x_train=images(4), y_train=labels(4), x_test=images(1), y_test=labels(1))
    begun = time.process_time()
    everlearn.run(method, f"npz:{file}", network="mlp", tasks=10, epochs=1, memory=200, batch=32, lr=0.01)
    return time.process_time() - begun


def many_classes(record: Record, classes: int) -> None:
    """A relational run at twice the classes takes about twice as long."""
    with tempfile.TemporaryDirectory() as folder:
        run_of("rer", classes // 4, folder)  # what is compiled and imported once
        half, whole, plain = (run_of(*of, folder) for of in (("rer", classes // 2), ("rer", classes), ("er", classes)))
    record.figures[f"rer, {classes} classes, s"] = round(whole, 1)
    record.figures[f"er, {classes} classes, s"] = round(plain, 1)
    record.figures[f"rer, {classes} classes over {classes // 2}"] = round(whole / half, 2)
    wrong = f"{whole / half:.1f} times the time at twice the classes" if whole > LINEAR * half else None
    record.tried("classes", f"rer, {classes}", wrong)


def main() -> int:
    parser = options(__doc__ or "", 1000)
    parser.add_argument("--classes", type=int, default=2000, help="of the relational run (2000)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    tasks = "Of 1,000 tasks late ones take at most half again the time of early ones, and 40 MiB more"
    record = Record("scale", f"{tasks}; a relation takes at most three times as long for twice the classes.")
    for method in ("er", "der++", "rder", "retain", "icarl", "agem", "si"):
        many_tasks(record, method, given.count)
    many_classes(record, given.classes)
    return record.end(given.out)


if __name__ == "__main__":
    sys.exit(main())

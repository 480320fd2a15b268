"""How long until a run is at its full speed? Seconds from a process's start until each kind of step is recorded.

    python benchmarks/start_up.py [--method rder] [--json FILE]

Two processes of the same shapes, one after the other, on a GPU, compiling, recording and replaying. Before the first,
torch's cache of compiled kernels and Python's of compiled modules are empty.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from records import keep_of_gpu, options


def each_kind_of_step(method: str) -> None:
    from everlearn.experiments.arithmetic import arithmetic
    from everlearn.experiments.bench import GPU, SHAPES, learner_of, tasks_of

    way = GPU[-2]
    learner = learner_of(method, "cuda", way)
    first, second = tasks_of(SHAPES["cuda"]._replace(steps=7), "cuda")
    with arithmetic(learner, way.precision):
        learner.update(first)
        learner.update(second)
    torch.cuda.synchronize()


def main():
    parser = options(__doc__)
    parser.add_argument("--method", default="rder")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.here:
        return each_kind_of_step(a.method)
    seconds = []
    with tempfile.TemporaryDirectory() as cache:
        caches = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "PYTHONPYCACHEPREFIX"
        environment = os.environ | {name: str(Path(cache) / name) for name in caches} | {"PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(2):
            start = time.perf_counter()
            subprocess.run([sys.executable, __file__, "--method", a.method, "--here"], env=environment, check=True)
            seconds.append(round(time.perf_counter() - start, 1))
    record = {"method": a.method, "seconds": {"nothing compiled yet": seconds[0], "the same shapes again": seconds[1]}}
    keep_of_gpu(record, a.json)


if __name__ == "__main__":
    main()

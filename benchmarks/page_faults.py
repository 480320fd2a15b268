"""What does it cost on a CPU that glibc gives every activation back to the system?

    python benchmarks/page_faults.py [--batch 32] [--side 64] [--steps 4] [--json FILE]

The same steps of ResNet-18 in two processes, one after the other: as they come, and after two calls of `mallopt` that
keep freed memory (no mmap for large blocks, nothing trimmed). System time, page faults and the most memory are each
process's own; they hardly depend on what else the machine does, the seconds of the clock do.
"""

import argparse
import ctypes
import json
import resource
import subprocess
import sys
import time

import torch
from records import keep, options

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def steps(batch: int, side: int, count: int) -> dict[str, float]:
    from everlearn.networks import ResNet18

    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = ResNet18((3, side, side), 10)
    x, y = torch.randn(batch, 3, side, side), torch.arange(batch) % 10
    for number in range(count + 1):
        if number == 1:  # the first makes what stays
            before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        network.zero_grad()
        torch.nn.functional.cross_entropy(network(x), y).backward()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds a step": (time.perf_counter() - start) / count,
        "of the user, s": (after.ru_utime - before.ru_utime) / count,
        "of the system, s": (after.ru_stime - before.ru_stime) / count,
        "page faults": (after.ru_minflt - before.ru_minflt) / count,
        "most memory, MiB": after.ru_maxrss / 1024,
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--here", choices=("as it is", "kept"), help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.here:
        if a.here == "kept":
            libc = ctypes.CDLL(None)
            assert libc.mallopt(M_MMAP_MAX, 0) and libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        print(json.dumps(steps(a.batch, a.side, a.steps)))
        return
    shape = ["--batch", str(a.batch), "--side", str(a.side), "--steps", str(a.steps)]
    record = {"batch": a.batch, "side": a.side}
    for how in ("as it is", "kept"):
        done = subprocess.run([sys.executable, __file__, "--here", how, *shape], stdout=subprocess.PIPE, check=True)
        record[how] = json.loads(done.stdout)
        print(how, record[how])
    keep(record, a.json)


if __name__ == "__main__":
    main()

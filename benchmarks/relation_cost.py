"""What relational weighting costs on the CPU: ResNet-18, batch 8 + 8, 3×32×32 images, all variants in turn in one run.

    python benchmarks/relation_cost.py [--json FILE] [--rounds N] [--base ER DER++]

A step with an RRN update by one forward-mode pass against the same by double backward (time, and peak memory above what
the process held before its first step, each in a process of its own); and an average RER step at Interval 5, half of
the epochs warm-up, against an ER step.
"""

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from records import keep, options

from everlearn import ER, DERpp
from everlearn.core.memory import Memory
from everlearn.core.step import SGD, Step, train_step
from everlearn.core.terms import Batch
from everlearn.core.theta import MainNet
from everlearn.networks import build
from everlearn.weightings import Fixed, Relation

B, CLASSES, INTERVAL = 8, 10, 5
BASES = {"ER": ER, "DER++": DERpp}


class Variant:
    """A learner at one point of its schedule, ready to take steps; `due` steps update the RRN, others do not."""

    def __init__(self, kind, weighting, epoch: int):
        self.net = MainNet(build("resnet18", (3, 32, 32), CLASSES, 0))
        self.net.module.train()
        self.method = kind(weighting)
        weighting.begin(self.method, self.net, 0)
        weighting.begin_epoch(task=1, epoch=epoch, epochs=50)
        random = torch.Generator().manual_seed(0)
        image = lambda: torch.randn(B, 3, 32, 32, generator=random)
        batch = lambda: Batch(
            image(),
            torch.randint(CLASSES, (B,), generator=random),
            stored={"logits": torch.randn(B, CLASSES, generator=random)},
        )
        own, extra, _ = self.method.all_draws()
        self.new, self.replay, self.extra = batch(), tuple(batch() for _ in own), tuple(batch() for _ in extra)
        self.memory = Memory(B, self.new.x, dict.fromkeys(self.method.keeps, (CLASSES,)))

    def step(self, due: bool) -> None:
        rows = torch.arange(B)
        train_step(
            self.method,
            Step(
                0 if due else 1,
                self.net,
                SGD(1e-4),
                self.memory,
                self.new.x,
                self.new.y,
                rows,
                self.new,
                self.replay,
                self.extra,
            ),
        )


def variants(base) -> dict[str, tuple]:
    """Name: how to make it, and whether the step is one that updates the RRN."""
    relation = lambda **settings: Relation(interval=INTERVAL, **settings)
    return {
        "baseline": (lambda: Variant(base, Fixed(), 0), False),
        "relational, no update": (lambda: Variant(base, relation(), 40), False),
        "update, past warm-up": (lambda: Variant(base, relation(), 40), True),
        "update, in warm-up": (lambda: Variant(base, relation(), 10), True),
        "update, fresh order": (lambda: Variant(base, relation(order="fresh"), 40), True),
        "update, double backward": (lambda: Variant(base, relation(hypergradient="double-backward"), 40), True),
        "update in warm-up, double backward": (
            lambda: Variant(base, relation(hypergradient="double-backward"), 10),
            True,
        ),
    }


def peak(base: str, name: str) -> float:
    """MiB above the start, in a fresh process."""
    here = str(Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {here!r}); import relation_cost; relation_cost.measure({base!r}, {name!r})"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(out.stdout)


def measure(base: str, name: str) -> None:
    make, due = variants(BASES[base])[name]
    variant = make()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew (it would be the parent's)
    before = resident("VmRSS")
    for _ in range(3):
        variant.step(due)
    print(resident("VmHWM") - before)


def resident(line: str) -> float:
    """MiB, of a line of the process's own status (Linux)."""
    return int(re.search(rf"{line}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def main():
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--base", nargs="+", default=["ER"], choices=BASES)
    arguments = parser.parse_args()
    record = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rounds": arguments.rounds}
    for base in arguments.base:
        made = {name: (make(), due) for name, (make, due) in variants(BASES[base]).items()}
        times = {name: [] for name in made}
        for _ in range(arguments.rounds + 1):
            for name, (variant, due) in made.items():
                start = time.perf_counter()
                variant.step(due)
                times[name].append(1e3 * (time.perf_counter() - start))
        milliseconds = {name: statistics.median(values[1:]) for name, values in times.items()}
        megabytes = {name: peak(base, name) for name in made}
        for name in made:
            print(f"{base:6} {name:36} {milliseconds[name]:8.1f} ms {megabytes[name]:8.0f} MiB")
        paired = lambda top, bottom: statistics.median(
            t / b for t, b in zip(top, bottom)
        )  # round by round: the machine's moods cancel
        plain, idle, warm, relation = (
            times[name][1:]
            for name in ("baseline", "relational, no update", "update, in warm-up", "update, past warm-up")
        )
        average = [
            ((INTERVAL - 1) * (p + i) + w + r) / (2 * INTERVAL) for p, i, w, r in zip(plain, idle, warm, relation)
        ]
        ratios = {
            "update / double backward, time": paired(relation, times["update, double backward"][1:]),
            "update / double backward, memory": megabytes["update, past warm-up"]
            / megabytes["update, double backward"],
            "warm-up update / double backward, time": paired(warm, times["update in warm-up, double backward"][1:]),
            "average relational step / baseline step": paired(average, plain),
        }
        for name, value in ratios.items():
            print(f"{base:6} {name:42} {value:.2f}")
        record[base] = {"milliseconds": milliseconds, "peak_mib": megabytes, "ratios": ratios}
    keep(record, arguments.json)


if __name__ == "__main__":
    main()

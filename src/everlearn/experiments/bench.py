"""How fast is it here? Milliseconds per step of each method, in every way the machine can take one.

On a GPU the shapes are CIFAR-10's: ResNet-18, batch 32 + 32 (+ 32), random images. On the CPU they are those of digits:
an MLP, batch 10 + 10 (+ 10). Steps are of a second task, past the warm-up, an RRN update every fifth.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from everlearn.core.capture import own_stream
from everlearn.data import STREAMS, Task
from everlearn.errors import BadInput
from everlearn.experiments.arithmetic import arithmetic
from everlearn.experiments.experiment import Experiment, settable
from everlearn.experiments.studies import FAMILIES
from everlearn.learner import Learner
from everlearn.networks import build
from everlearn.training import Training

METHODS = ("er", "rer", "der++", "rder")
PAIRS = {relational: base for base, relational in FAMILIES.items()}


class Way(NamedTuple):
    """A way to take a step."""

    name: str
    precision: str = "float32"
    capture: bool = False
    compile: bool = False
    together: int = 1


GPU = (
    Way("eager, float32"),
    Way("eager", "bfloat16"),
    Way("captured", "bfloat16", capture=True),
    Way("captured + compiled", "bfloat16", capture=True, compile=True),
    Way("five together", "bfloat16", capture=True, compile=True, together=5),
)
CPU = (Way("eager, float32"),)


class Shapes(NamedTuple):
    stream: str
    network: str
    batch: int
    steps: int  # per epoch


SHAPES = {"cuda": Shapes("cifar10", "resnet18", 32, 100), "cpu": Shapes("digits", "mlp", 10, 100)}


def bench(device: str, methods: Sequence[str] = METHODS, tell: Callable[[str], None] = lambda line: None) -> dict:
    """Everything as one document; `tell` gets a line per figure, as they come."""
    for method in methods:
        if Experiment.of(method).build().merges:
            raise BadInput(f"{method} learns all tasks at once, and bench times the steps of a second one")
    rows = []
    for method in methods:
        for way in GPU if device == "cuda" else CPU:
            row = {"method": method, "way": way.name, "together": way.together, **measure(method, device, way)}
            rows.append(row)
            tell(f"{method}, {way.name}: {row['milliseconds']:.2f} ms per step")
    best = {row["method"]: row for row in rows}  # the last way of each
    alone = {row["method"]: row for row in rows if row["together"] == 1}
    document = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu, one thread",
        "torch": torch.__version__,
        "shapes": SHAPES[device]._asdict(),
        "rows": rows,
        "relational_overhead": {
            f"{method} / {base}": {
                which: round(of[method]["milliseconds"] / of[base]["milliseconds"], 3)
                for which, of in (("alone", alone), ("together", best))
            }
            for method, base in PAIRS.items()
            if method in best and base in best
        },
    }
    if device == "cuda":
        way = GPU[-2]
        sizes = {size: measure("der++", device, way, memory=size)["milliseconds"] for size in (200, 50_000)}
        document["memory_size"] = {"milliseconds": sizes, "ratio": round(sizes[50_000] / sizes[200], 3)}
        peaks = {way: update_peak(way) for way in ("forward", "double-backward")}
        document["update_peak_mib"] = peaks | {"ratio": round(peaks["forward"] / peaks["double-backward"], 3)}
        document["throughput"] = throughput(alone["der++"]["milliseconds"]) if "der++" in alone else None
    return document


def tasks_of(shapes: Shapes, device: str) -> list[Task]:
    random = torch.Generator().manual_seed(0)
    count, shape = shapes.batch * shapes.steps, (3, 32, 32) if shapes.network == "resnet18" else (1, 8, 8)
    top = STREAMS[shapes.stream].pixels.top + 1
    part = lambda first: (
        torch.randint(0, top, (count, *shape), dtype=torch.uint8, generator=random).to(device),
        (torch.randint(0, 2, (count,), generator=random) + first).to(device),
    )
    return [Task(part(0), part(0), (0, 1)), Task(part(2), part(2), (2, 3))]


def learner_of(method: str, device: str, way: Way, seed: int = 0, memory: int = 200, **more) -> Learner:
    shapes = SHAPES[device]
    schedule = {"interval": 5, "warmup": 1} if "interval" in settable(method) else {}
    return Learner(
        build(shapes.network, (3, 32, 32) if shapes.network == "resnet18" else (1, 8, 8), 10, seed),
        Experiment.of(method, shapes.stream, **schedule, **more).build(),
        classes=range(10),
        memory=memory,
        training=Training(epochs=4, batch=shapes.batch, precision=way.precision),
        inputs=STREAMS[shapes.stream].pixels,
        capture=way.capture,
        compile=way.compile,
        seed=seed,
        device=device,
    )


def measure(method: str, device: str, way: Way, memory: int = 200) -> dict:
    """Medians over the last epochs of a second task: milliseconds per step, new images per second, peak memory."""
    start, on_gpu = time.perf_counter(), device == "cuda"
    shapes = SHAPES[device] if way.capture or not on_gpu else SHAPES[device]._replace(steps=25)
    tasks = tasks_of(shapes, device)
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    learners = [learner_of(method, device, way, seed, memory) for seed in range(way.together)]
    seconds: list[list[float]] = [[] for _ in learners]
    taken = [0 for _ in learners]  # steps of the second task, which may be on more than its own samples
    first: list[float] = []

    def work(number: int):
        for step, _ in enumerate(learners[number].updating(tasks[0])):
            if step == 2:  # by now the step is recorded as a CUDA graph
                first.append(time.perf_counter() - start)
            yield
        for _ in learners[number].updating(tasks[1], lambda record: seconds[number].append(record["seconds"])):
            taken[number] += 1
            yield

    with arithmetic(learners[0], way.precision):
        running = [(work(number), own_stream()) for number in range(way.together)]
        while running:
            for pair in list(running):
                with pair[1]:
                    if next(pair[0], running) is running:
                        running.remove(pair)
    epoch = statistics.median(value for run in seconds for value in run[2:])
    ms = epoch / (taken[0] / len(seconds[0])) * 1e3 / way.together
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20 / way.together if on_gpu else None
    return {
        "milliseconds": round(ms, 3),
        "images_a_second": round(shapes.batch / ms * 1e3),
        "peak_mib": None if peak is None else round(peak),
        "start_seconds": round(first[0], 1),
    }


def update_peak(hypergradient: str) -> float:
    """MiB that one step with an RRN update needs on top, captured or not; RER, past the warm-up."""
    way, peaks = Way("", "bfloat16", compile=True), []
    learner = learner_of("rer", "cuda", way, hypergradient=hypergradient)
    tasks = tasks_of(SHAPES["cuda"]._replace(steps=6), "cuda")
    learner.update(tasks[0])
    with arithmetic(learner, way.precision):
        steps = learner.updating(tasks[1])
        for number in range(4 * 6):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            next(steps)
            torch.cuda.synchronize()
            if number >= 2 * 6 and number % 6 in (0, 5):  # past the warm-up, the steps with an update
                peaks.append((torch.cuda.max_memory_allocated() - before) / 2**20)
        steps.close()
    return round(statistics.median(peaks), 1)


def throughput(milliseconds: float) -> dict:
    """What share of the matrix throughput measured here a DER++ step reaches."""
    from torch.utils.flop_counter import FlopCounterMode

    network = build("resnet18", (3, 32, 32), 10, 0).cuda()
    with FlopCounterMode(display=False) as counter:
        network(torch.randn(96, 3, 32, 32, device="cuda")).sum().backward()
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    times = []
    for _ in range(12):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(5):
            torch.matmul(a, a)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / 5)
    peak = 2 * 8192**3 / statistics.median(times[2:])
    reached = counter.get_total_flops() / milliseconds * 1e3
    return {
        "step_gflop": round(counter.get_total_flops() / 1e9, 1),
        "matrix_tflops": round(peak / 1e12),
        "step_tflops": round(reached / 1e12, 1),
        "fraction": round(reached / peak, 3),
    }

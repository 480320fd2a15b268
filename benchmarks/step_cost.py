"""What the library costs: an ER step against a bare hand-written loop doing the same arithmetic, in one process.

    python benchmarks/step_cost.py [--json FILE]

MLP 64-100-10, batch 10 + 10, memory 100, one thread. The two are timed in turn, many times over; the figure is the
ratio of the medians. Both are given the same plan and end with the same weights, which is checked first.
"""

import statistics
import time

import torch
from records import keep, options
from torch.nn import functional as F

import everlearn
from everlearn.core.plan import Draw, plan_epoch, reservoir
from everlearn.learner import Learner
from everlearn.networks import build

EPOCHS, BATCH, MEMORY, LR = 2, 10, 100, 0.1


def plans(samples: int):
    presented = 0
    for epoch in range(EPOCHS):
        plan = plan_epoch(
            0,
            0,
            epoch,
            samples=samples,
            batch=BATCH,
            draws=[Draw()],
            capacity=MEMORY,
            presented=presented,
            slot_rule=reservoir,
        )
        presented += len(plan) * BATCH
        yield plan


def bare(x, y, network):
    """Experience replay as one would write it in a notebook."""
    memory_x, memory_y = torch.zeros(MEMORY + 1, *x.shape[1:], dtype=torch.uint8), torch.full((MEMORY + 1,), -100)
    optimiser = torch.optim.SGD(network.parameters(), lr=LR)
    network.train()
    for plan in plans(len(x)):
        for order, draw, slots, _ in plan:
            new_x, new_y = x[order], y[order]
            old_x, old_y = memory_x[draw], memory_y[draw]
            loss = F.cross_entropy(network(new_x.float() / 16), new_y)
            loss = (
                loss + F.cross_entropy(network(old_x.float() / 16), old_y, reduction="sum") / BATCH
            )  # an empty memory counts 0
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            memory_x[slots], memory_y[slots] = new_x, new_y
    return network


def ours(task, network, stream):
    learner = Learner(
        network,
        everlearn.ER(),
        classes=range(10),
        inputs=stream.pixels,
        memory=MEMORY,
        epochs=EPOCHS,
        batch=BATCH,
        lr=LR,
    )
    learner.update(task)
    return network


def main():
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    stream = everlearn.load("digits")
    task = stream.merged()
    fresh = lambda: build("mlp", stream.shape, 10, seed=0)
    apart = max(
        float((a - b).detach().abs().max())
        for a, b in zip(bare(*task.train, fresh()).parameters(), ours(task, fresh(), stream).parameters())
    )
    assert apart < 1e-4, apart
    steps = sum(len(plan) for plan in plans(len(task.train[0])))
    times = {"bare loop": [], "everlearn": []}
    for _ in range(arguments.rounds):
        for name, run in (
            ("bare loop", lambda: bare(*task.train, fresh())),
            ("everlearn", lambda: ours(task, fresh(), stream)),
        ):
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) / steps * 1e6)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = medians["everlearn"] / medians["bare loop"]
    pairs = sorted(b / a for a, b in zip(times["bare loop"], times["everlearn"]))
    print(
        f"one ER step: bare loop {medians['bare loop']:.0f} µs, everlearn {medians['everlearn']:.0f} µs; "
        f"ratio {ratio:.2f} (half of the rounds between {pairs[len(pairs) // 4]:.2f} and "
        f"{pairs[3 * len(pairs) // 4]:.2f}); weights apart by {apart:.1e}"
    )
    record = {
        "microseconds": medians,
        "ratio": ratio,
        "steps": steps,
        "rounds": arguments.rounds,
        "weights_apart": apart,
        "torch": torch.__version__,
    }
    keep(record, arguments.json)


if __name__ == "__main__":
    main()

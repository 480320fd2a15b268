"""What limits runs that share a GPU: arithmetic, or how many kernels can be started?

    python benchmarks/packing.py [--methods er der++] [--widths 8 64] [--together 1 5] [--batches 32] [--json FILE]

A ResNet-18 of width 8 has the kernels of one of width 64 and next to none of its arithmetic. If runs of both take as
long a step when they share the GPU, kernels are what to save. Steps are those of `everlearn bench`.
"""

from functools import partial
from itertools import product

from records import keep, keep_of_gpu, options

from everlearn.experiments import bench
from everlearn.networks import build


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--methods", nargs="+", default=["der++"])
    parser.add_argument("--widths", nargs="+", type=int, default=[8, 64], help="of the ResNet-18's first stage")
    parser.add_argument("--together", nargs="+", type=int, default=[1, 5], help="runs at once")
    parser.add_argument("--batches", nargs="+", type=int, default=[32], help="new samples per step")
    parser.add_argument("--steps", type=int, default=100, help="per epoch")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    rows, gpu = [], given.device == "cuda"
    for method, width, batch, together in product(given.methods, given.widths, given.batches, given.together):
        bench.build = partial(build, width=width)
        bench.SHAPES[given.device] = bench.Shapes("cifar10", "resnet18", batch, given.steps)
        way = bench.Way("", "bfloat16" if gpu else "float32", capture=gpu, compile=gpu, together=together)
        found = bench.measure(method, given.device, way)
        rows.append({"method": method, "width": width, "batch": batch, "together": together, **found})
        print(rows[-1], flush=True)
    (keep_of_gpu if gpu else keep)({"rows": rows}, given.json)


if __name__ == "__main__":
    main()

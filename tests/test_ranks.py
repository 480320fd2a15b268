"""One run over two processes is the run of one: the same parameters, memory, net and statistics, to 1e-10."""

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from conftest import built, toy
from torch import nn

import everlearn
from everlearn import Learner, Relation
from everlearn.core.norm import Norm
from everlearn.experiments import run as runs
from everlearn.experiments.experiment import settable
from everlearn.experiments.store import Store
from everlearn.networks import CNN, MLP, Block

pytestmark = pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="torch has no gloo here")
SOURCE = Path(everlearn.__file__).parents[1]
CLOSE = 1e-10


class Residual(nn.Sequential):
    """A sum, and a short cut with a layer of its own."""

    rowwise = True

    def __init__(self, shape, classes):
        super().__init__(nn.Conv2d(shape[0], 4, 3), Norm(4), Block(4, 8, 2), nn.Flatten(), nn.Linear(8 * 9, classes))


class Unmarked(nn.Module):
    """Norm layers in a network that does not say it is `rowwise`: a pass a batch."""

    def __init__(self, shape, classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(shape[0], 4, 3), Norm(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, classes)
        )

    def forward(self, x):
        return self.body(x)


NETWORKS = {"MLP": MLP, "CNN": CNN, "Residual": Residual, "Unmarked": Unmarked}
MOST = ("er", "er-ace", "der++", "rer", "rer-ace", "rder")
OTHERS = ("finetune", "joint", "oewc", "si", "lwf", "gem", "agem", "icarl", "gss", "der")
WEIGHTINGS = ("er+split", "er-ace+vanilla", "der+++consolidate", "der+relation", "gss+relation")
CASES = [(name, "MLP", {}) for name in MOST] + [(name, "CNN", {}) for name in MOST + OTHERS + WEIGHTINGS]
CASES += [
    ("rer", "MLP", {"order": "fresh"}),
    ("rer", "CNN", {"order": "fresh"}),
    ("rder", "Residual", {}),
    ("rer", "Unmarked", {}),
    ("agem", "Unmarked", {}),
    ("gem", "Unmarked", {}),
    ("rder", "CNN", {"forward": "joint"}),
    ("rer", "CNN", {"momentum": 0.5, "weight_decay": 1e-3}),
]


def named(case) -> str:
    return " ".join(map(str, case))


def learned(name: str, network: str, more: dict) -> dict[str, torch.Tensor]:
    """The whole state of a learner after two tasks, and the records of its epochs as numbers."""
    stream = toy(pixels=everlearn.Pixels((0.5,), (0.25,), pad=1, flip=True))
    torch.manual_seed(int(os.environ.get("RANK", 0)))  # other weights on each rank: the first one's count
    own = {key: more[key] for key in more if key in ("forward", "momentum", "weight_decay")}
    options = {"warmup": 1, "interval": 2} | {key: more[key] for key in more if key not in own}
    learner = Learner(
        NETWORKS[network](stream.shape, stream.classes),
        built(name, **{key: options[key] for key in options if key in settable(name)}),
        classes=range(stream.classes),
        inputs=stream.pixels,
        memory=10,
        epochs=2,
        batch=4,
        lr=0.02,
        dtype=torch.float64,
        **own,
    )
    records = []
    for task in [stream.merged()] if learner.method.merges else stream.tasks:
        learner.update(task, report=lambda record: records.append({**record, "seconds": 0}))
        records.append(learner.method.weighting.review(learner, stream.tasks[: learner.tasks - 1], task))
    numbers = torch.tensor(list(flat(records)), dtype=torch.float64)
    return {key: tensor.clone() for key, tensor in learner.state().items()} | {"records": numbers}


def flat(record):
    """Every number of a record, the names of its keys left out."""
    if isinstance(record, (dict, list, tuple)):
        for part in record.values() if isinstance(record, dict) else record:
            yield from flat(part)
    elif isinstance(record, (int, float)):
        yield float(record)


def refusals() -> list[str]:
    """What several ranks cannot do, in the words a user gets."""
    stream = toy()
    make = lambda method, network, **more: Learner(network, method, classes=range(4), inputs=stream.pixels, **more)
    mlp = lambda: MLP(stream.shape, 4)
    asked = [
        lambda: make(everlearn.ER(), mlp(), batch=5),
        lambda: make(everlearn.ER(), nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)), batch=4),
        lambda: make(everlearn.ER(Relation(hypergradient="double-backward")), mlp(), batch=4),
    ]
    said = []
    for ask in asked:
        try:
            said.append(str(ask()))
        except everlearn.BadInput as error:
            said.append(str(error))
    return said


def left_and_resumed() -> list[tuple[bool, int]]:
    """After some steps of a learner: does one that goes on from there end with the same bits and records?"""
    stream = toy(pixels=everlearn.Pixels((0.5,), (0.25,), pad=1, flip=True))

    def made() -> Learner:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))
        method = built("rder", warmup=1)
        return Learner(network, method, classes=range(4), inputs=stream.pixels, memory=10, epochs=3, batch=4, lr=0.02)

    whole, states, lines = made(), [], []
    for task in stream:
        for _ in whole.updating(task, lines.append):
            states.append((len(lines), whole.state()))
    seen = []
    for told, state in states[1::4]:
        again, more = made(), []
        again.restore(state)
        for task in stream.tasks[again.tasks :]:
            again.update(task, report=more.append)
        numbers = [list(flat([{**line, "seconds": 0} for line in of])) for of in (lines[told:], more)]
        seen.append((torch.equal(again.net.theta, whole.net.theta) and numbers[0] == numbers[1], again.step))
    return seen


def found_complete(rank: int, folder: Path) -> bool:
    """A run that is whole and was only not moved to its place: does every rank have its result, and go on?"""
    experiment = everlearn.Experiment.of("finetune", classes=["0", "1"], tasks=1, epochs=1, device="cpu")
    store, made = Store(folder / "runs"), []
    for _ in range(2):
        made.append(runs.finish(runs.recorded(experiment, store, "cpu")))
        dist.barrier()
        if not rank and store.has(experiment) and len(made) == 1:
            store.path(experiment).rename(store.part(experiment))
        dist.barrier()
    return made[0]["class_il"] == made[1]["class_il"] and store.has(experiment)


def main(rank: int, folder: Path) -> None:
    """One of two ranks."""
    torch.set_num_threads(1)
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    states = {named(case): learned(*case) for case in CASES}
    states |= {"refusals": refusals(), "resumed": left_and_resumed()}
    states |= {"complete": found_complete(rank, folder)}
    torch.save(states, folder / f"{rank}.pt")
    dist.destroy_process_group()


def torchrun(*words, folder: Path, **more) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=300, **more)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    """What each of two ranks has in the end, case by case. Both are forked from a process that imports for them."""
    folder, context = tmp_path_factory.mktemp("ranks"), multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["everlearn.launchers.local"])
    processes = [context.Process(target=main, args=(rank, folder)) for rank in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        process.kill()  # if it hangs
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("case", CASES, ids=named)
def test_two_ranks_at_half_the_batch_are_one_at_the_whole(ranks, case):
    alone, (one, other) = learned(*case), (rank[named(case)] for rank in ranks)
    assert alone.keys() == one.keys() == other.keys()
    for key, tensor in alone.items():
        assert torch.equal(one[key], other[key]), f"{key} is not the same on both ranks"
        if key == "records":  # they are written down with four digits
            assert torch.allclose(one[key], tensor, rtol=2e-3, atol=1e-9, equal_nan=True), key
        else:
            assert torch.allclose(one[key].double(), tensor.double(), rtol=0, atol=CLOSE, equal_nan=True), key


def test_what_several_ranks_cannot_do_is_refused(ranks):
    batch, norm, backward = ranks[0]["refusals"]
    assert "a batch of 5 cannot be dealt to 2 ranks" in batch
    assert "BatchNorm2d" in norm and "everlearn.core.norm.Norm" in norm
    assert "hypergradient=forward" in backward


def test_left_after_any_step_two_ranks_go_on_to_the_same_bits(ranks):
    assert len(ranks[0]["resumed"]) > 3 and all(rank["resumed"] == [(True, 0)] * len(rank["resumed"]) for rank in ranks)


def test_a_run_that_turns_out_to_be_complete_is_so_on_every_rank(ranks):
    assert all(rank["complete"] for rank in ranks)


RUN = [
    *("run", "rer", "--epochs", "1", "--memory", "20", "--device", "cpu", "--json"),
    *("--set", "classes=0,1,2,3", "--set", "tasks=2"),
]


def test_torchrun_gives_the_run_of_one_process(tmp_path):
    pair = torchrun("-m", "everlearn", *RUN, "--out", tmp_path / "pair", folder=tmp_path)
    assert pair.returncode == 0, pair.stderr
    settings = dict(epochs=1, memory=20, device="cpu", classes=["0", "1", "2", "3"], tasks=2)
    alone = everlearn.run("rer", out=tmp_path / "alone", **settings)
    one, other = json.loads(pair.stdout), json.loads(json.dumps(alone))  # the first rank speaks for both
    assert one["experiment"] == other["experiment"] and one["provenance"]["ranks"] == 2
    for setting in ("class_il", "task_il"):
        assert torch.allclose(torch.tensor(one[setting]["matrix"]), torch.tensor(other[setting]["matrix"]), atol=1.5)
    names = [sorted(path.relative_to(tmp_path / of) for path in (tmp_path / of).rglob("*")) for of in ("pair", "alone")]
    assert names[0] == names[1]


@pytest.mark.slow
def test_an_error_on_one_rank_ends_the_other_and_leaves_a_note_at_most(tmp_path):
    script = tmp_path / "one.py"
    script.write_text(ONE_FAILS)
    failed = torchrun(script, *RUN, "--out", tmp_path / "runs", folder=tmp_path)
    assert failed.returncode != 0 and "everlearn, rank 1: the lights went out" in failed.stderr
    left = [path.name for path in (tmp_path / "runs").iterdir()]  # the other may be ended before it can write a note
    assert not failed.stdout and all(name.endswith(".failed.json") for name in left)


ONE_FAILS = """
import os
from everlearn import errors, learner
from everlearn.cli import app as cli
from everlearn.experiments import run

class Learner(learner.Learner):
    def examine(self, stream):
        if self.tasks and os.environ["RANK"] == "1":
            raise errors.EverlearnError("the lights went out")
        return super().examine(stream)

run.Learner = Learner
cli.main()
"""

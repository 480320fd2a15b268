"""Small streams and networks that every test may use."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import everlearn
from everlearn import arguments, core, registry
from everlearn.core import norm
from everlearn.core.norm import Norm
from everlearn.data import Pixels, Stream, Task
from everlearn.networks import CNN
from everlearn.spec import options_of

with contextlib.suppress(ImportError):  # a machine with a GPU may have less
    from hypothesis import HealthCheck, settings

    # The same examples every time, and few of them; many with HYPOTHESIS_PROFILE=thorough.
    settings.register_profile("quick", max_examples=25, derandomize=True, deadline=None, database=None)
    settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_randomness():
    torch.manual_seed(0)


ON_GPU = [  # the marks of what only a GPU can show
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
    pytest.mark.usefixtures("exact"),
]


@pytest.fixture
def exact():
    """The same bits every time on a GPU."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = False, True
    yield
    torch.backends.cudnn.deterministic = False


@pytest.fixture
def stand_ins(monkeypatch):
    """A part is tested alone, with stand-ins where an object of ours is due."""
    monkeypatch.setattr(arguments.trust, "now", True)


@pytest.fixture
def kernels(monkeypatch):
    """Of a function: a layer that finds it as each of its GPU kernels."""

    def layer(kernel: Callable) -> Norm:
        found = SimpleNamespace(**dict.fromkeys(("normalise", "settled", "pull_back", "push_forward"), kernel))
        monkeypatch.setattr(core, "kernels", found, raising=False)
        monkeypatch.setitem(sys.modules, "everlearn.core.kernels", found)
        norm.fused.cache_clear()
        layer = Norm(3)
        layer.groups, layer.fuse = 2, True
        return layer

    yield layer
    norm.fused.cache_clear()


@pytest.fixture
def failing(kernels):
    """Of an error: a layer whose kernels fail with it."""

    def layer(error: Exception) -> Norm:
        def fail(*given):
            raise error

        return kernels(fail)

    return layer


@pytest.fixture(scope="session")
def digits() -> Stream:
    return everlearn.load("digits")


def toy(
    tasks: int = 2, each: int = 12, side: int = 8, channels: int = 1, seed: int = 0, pixels: Pixels | None = None
) -> Stream:
    """Two classes a task that a small network can tell apart: blobs of brightness in noise."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.randint(40, 216, (2 * tasks, channels, side, side), generator=random)

    def samples(count: int, classes: range) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.arange(count) % 2 + classes.start
        noise = torch.randint(-40, 40, (count, channels, side, side), generator=random)
        return (centres[y] + noise).to(torch.uint8), y

    dealt = [range(2 * t, 2 * t + 2) for t in range(tasks)]
    parts = tuple(Task(samples(each, run), samples(each, run), tuple(run)) for run in dealt)
    return Stream(
        "toy",
        parts,
        tuple(f"class {c}" for c in range(2 * tasks)),
        pixels or Pixels((0.5,) * channels, (0.25,) * channels),
    )


def built(name: str, **options) -> everlearn.Method:
    """The method and weighting a label such as `er+consolidate` names; schedules left open, as a Learner's are."""
    method, weighting = registry.parts(name)
    find = lambda kind, name: registry.find(kind, name)
    things = {"method": find("method", method), "weighting": find("weighting", weighting or "fixed")}
    own = {kind: {k: v for k, v in options.items() if k in options_of(kind, thing)} for kind, thing in things.items()}
    assert options.keys() == own["method"].keys() | own["weighting"].keys()
    return things["method"](weighting=things["weighting"](**own["weighting"]), **own["method"])


# Every method, every relational one, and every weighting on ER, ER-ACE and DER++.
LABELS = [
    *registry.METHODS,
    *registry.ALIASES,
    *(
        f"{m}+{w}"
        for m in ("er", "er-ace", "der++")
        for w in registry.WEIGHTINGS
        if w not in ("fixed", "relation", "labelled")
    ),
    "der+++labelled",
]


def learner_of(name: str, stream: Stream, seed: int = 0, network=None, options={}, **settings) -> everlearn.Learner:
    """A method and its weighting, with the weights digits would have, and a small network."""
    torch.manual_seed(seed)
    return everlearn.Learner(
        network or CNN(stream.shape, stream.classes),
        built(name, **options),
        classes=range(stream.classes),
        inputs=stream.pixels,
        seed=seed,
        **dict(memory=8, epochs=2, batch=4, lr=0.05) | settings,
    )


def forked(do: Callable[[], object]) -> int:
    """A process that does it, forked from this one, which has imported all it takes; its number."""
    if process := os.fork():
        return process
    code = 1
    try:
        do()
        code = 0
    finally:
        os._exit(code)


def kill_at(goal: int, pause: float, part: Path, do: Callable[[], object]) -> None:
    """Let a process do a run until its folder has so many records, and a little longer; then it is killed."""
    process, lines = forked(do), part / "metrics.jsonl"
    while not lines.exists() or len(lines.read_text().splitlines()) < goal:
        time.sleep(0.002)
        assert os.waitpid(process, os.WNOHANG) == (0, 0), "it ended before"
    time.sleep(pause)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def interruptible() -> None:
    """Before a process starts: a job in the background would ignore Ctrl-C, and so would all it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

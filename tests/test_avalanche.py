"""Avalanche's ER, DER++, A-GEM and GEM beside ours, step by step in float64: the same θ once its departures are out.

Avalanche trains on a stream of its own making. Of each of its steps the weights before and after are kept, with the
batches it took; ours takes the same step from the same weights on the same batches. Where Avalanche departs:

- ER takes the mean over one batch of new and remembered samples: our weights are then a half each.
- DER++ has both memory terms on one batch.
- GEM adds 0.001 to the diagonal of G Gᵀ, and rounds the projected gradient to float32.

It also writes its memories after a task and not after a step, which a single step does not see.
"""

import contextlib

import pytest
import torch
from conftest import toy

from everlearn import AGEM, ER, GEM, Batch, DERpp, FineTune, Fixed, Learner
from everlearn.core.memory import Memory
from everlearn.core.step import SGD, Step, train_step
from everlearn.methods import gem
from everlearn.networks import MLP

pytestmark = pytest.mark.slow
STREAM, LR, BATCH = toy(tasks=3, each=16), 0.05, 4


@pytest.fixture(scope="module")
def avalanche():
    """Avalanche imports torchvision, whose wheel is built for CUDA. Beside a torch for the CPU it can be imported once
    two of its operators are declared."""
    declared = torch.library.Library("torchvision", "FRAGMENT")
    with contextlib.suppress(RuntimeError):  # they are there
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return pytest.importorskip("avalanche", exc_type=ImportError)


def benchmark(inputs):
    """The toy stream as Avalanche has streams."""
    from avalanche.benchmarks.scenarios.deprecated.generators import nc_benchmark
    from torch.utils.data import TensorDataset

    def of(part: str):
        x, y = (torch.cat([getattr(task, part)[n] for task in STREAM]) for n in (0, 1))
        data = TensorDataset(inputs(x), y)
        data.targets = y.tolist()
        return data

    return nc_benchmark(
        of("train"), of("test"), n_experiences=3, task_labels=False, fixed_class_order=list(range(STREAM.classes))
    )


def theirs(kind: str, **options):
    """What each step of an Avalanche strategy saw and did: the strategy, the weights before, and then after it."""
    from avalanche.training import supervised
    from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin, SupervisedPlugin
    from avalanche.training.storage_policy import ReservoirSamplingBuffer

    torch.manual_seed(0)
    network, steps = MLP(STREAM.shape, STREAM.classes).double(), []
    weights = lambda: torch.cat([p.detach().flatten() for p in network.parameters()])

    class Recorder(SupervisedPlugin):
        def before_training_iteration(self, strategy, **_):
            self.before = weights()

        def after_forward(self, strategy, **_):
            self.seen = strategy.mb_x.clone(), strategy.mb_y.clone()

        def after_update(self, strategy, **_):
            number = strategy.clock.train_exp_counter
            steps.append((number, self.before, *self.seen, extra(strategy), weights()))

    def extra(strategy):
        """What else it took: DER++'s recorded logits, A-GEM's batch, GEM's memories."""
        if kind == "DER" and strategy.replay_loader is not None:
            return strategy.batch_logits.clone()
        if kind == "AGEM":
            return [Batch(*drawn.pop()[:2])] if drawn else None
        if kind == "GEM":
            (plugin,) = (plugin for plugin in strategy.plugins if hasattr(plugin, "memory_x"))
            return [Batch(plugin.memory_x[task], plugin.memory_y[task]) for task in plugin.memory_x]
        return None

    plugins = [Recorder()]
    if kind == "Naive":
        memory = dict(mem_size=8, batch_size=BATCH, batch_size_mem=BATCH, storage_policy=ReservoirSamplingBuffer(8))
        plugins.append(ReplayPlugin(**memory))
    learner = Learner(MLP(STREAM.shape, STREAM.classes), ER(), classes=range(STREAM.classes), inputs=STREAM.pixels)
    strategy = getattr(supervised, kind)(
        model=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=LR),
        criterion=torch.nn.CrossEntropyLoss(),
        train_mb_size=BATCH,
        train_epochs=2,
        evaluator=EvaluationPlugin(loggers=[]),
        plugins=plugins,
        **options,
    )
    drawn = []
    if kind == "AGEM":
        (plugin,) = (plugin for plugin in strategy.plugins if hasattr(plugin, "sample_from_memory"))
        take = plugin.sample_from_memory
        plugin.sample_from_memory = lambda: (drawn.append(take()), drawn[-1])[1]
    for experience in benchmark(lambda x: learner.inputs(x).double()).train_stream:
        strategy.train(experience)
    return steps


def ours(method, before, new: Batch, replay=(), references=()) -> torch.Tensor:
    """θ after our step from these weights on these batches."""
    learner = Learner(
        MLP(STREAM.shape, STREAM.classes), method, classes=range(STREAM.classes), memory=8, dtype=torch.float64
    )
    net = learner.net
    with torch.no_grad():
        net.theta.copy_(before)
    memory = Memory(8, new.x[:0], {"logits": (STREAM.classes,)}, torch.float64)
    train_step(method, Step(0, net, SGD(LR), memory, new.x, new.y, None, new, replay, (), references))
    return net.theta.detach()


def apart(x, y, number, **more) -> tuple[Batch, Batch]:
    """The new samples of a joint batch and the remembered ones."""
    new = torch.tensor([c in STREAM.tasks[number].classes for c in y.tolist()])
    return Batch(x[new], y[new]), Batch(x[~new], y[~new], **more)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return float((one - other).abs().max()) < 1e-13


def test_er_is_avalanches_replay(avalanche):
    replayed = 0
    for number, before, x, y, _, after in theirs("Naive"):
        if number == 0:
            continue
        new, memory = apart(x, y, number)
        assert len(new.y) == len(memory.y) == BATCH
        assert same(ours(ER(Fixed((0.5, 0.5))), before, new, (memory,)), after)
        replayed += 1
    assert replayed == 2 * 2 * 4, "two tasks, two epochs, four steps"


def test_der_plus_plus_is_avalanches_der_with_a_beta(avalanche):
    replayed = 0
    for _, before, x, y, logits, after in theirs("DER", mem_size=8, batch_size_mem=BATCH, alpha=0.3, beta=0.7):
        if logits is None:
            continue
        memory = Batch(x[:BATCH], y[:BATCH], stored={"logits": logits})
        new = Batch(x[BATCH:], y[BATCH:])
        assert same(ours(DERpp(Fixed((1, 0.3, 0.7))), before, new, (memory, memory)), after)
        replayed += 1
    assert replayed == 2 * 2 * 4


def test_agem_is_avalanches(avalanche):
    projected = 0
    for number, before, x, y, past, after in theirs("AGEM", patterns_per_exp=8, sample_size=BATCH):
        if number:
            method, new = AGEM(), Batch(x, y)
            method.constrained = True
            assert same(ours(method, before, new, references=past), after)
            projected += not same(ours(FineTune(), before, new), after)
    assert projected > 8, "the constraint was active"


def test_gem_is_avalanches(avalanche, monkeypatch):
    solved, own = 0, gem.dual

    def dual(gram, along, margin):
        """Ours, with their 0.001 on the diagonal instead of our millionth of its mean."""
        more = (1e-3 - 1e-6 * float(gram.diagonal().mean())) / (1 + 1e-6)
        return own(gram + more * torch.eye(len(gram)).double(), along, margin)

    monkeypatch.setattr(gem, "dual", dual)
    with monkeypatch.context() as exact:
        exact.setattr(torch.Tensor, "float", torch.Tensor.double)
        steps = theirs("GEM", patterns_per_exp=4, memory_strength=0.5)
    for number, before, x, y, past, after in steps:
        if number:
            method, new = GEM(margin=0.5), Batch(x, y)
            method.past = past[:number]
            assert same(ours(method, before, new), after)
            solved += not same(ours(FineTune(), before, new), after)
    assert solved > 8, "a programme was solved"

"""What once went wrong on a GPU, and what may not go wrong again; skipped where there is none."""

import pytest
import torch
from conftest import ON_GPU, learner_of, toy
from torch import nn
from vit import ViT

from everlearn import ER, BadInput, Learner
from everlearn.core.capture import own_stream
from everlearn.core.norm import Norm
from everlearn.networks import build

pytestmark = ON_GPU


def dropping() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.Dropout(0.5), nn.Linear(32, 4))


def on_gpu(name: str, seed: int = 0, make=lambda: build("cnn", (3, 8, 8), 4, 0), **settings) -> tuple:
    stream = toy(tasks=2, each=24, channels=3)
    torch.manual_seed(seed)
    return learner_of(name, stream, seed, make(), **dict(epochs=4, lr=0.02, device="cuda") | settings), stream


@pytest.mark.parametrize("setting", ["lr", "momentum", "weight_decay"])
def test_a_setting_of_the_descent_changed_in_report_is_followed_in_replayed_steps(setting):
    ends = []
    for capture in (True, False):
        learner, stream = on_gpu("rder", capture=capture, momentum=0.5)
        follow = lambda record, sgd=learner.sgd: setattr(sgd, setting, 0.1 / (1 + record["epoch"]))
        for task in stream:
            learner.update(task, report=follow)
        ends.append(learner.net.theta.detach().clone())
    assert torch.equal(*ends)


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("name", ["er", "rder"])
def test_learners_with_dropout_that_take_turns_learn_what_they_learn_alone(name, capture):
    apart, together = ([on_gpu(name, seed, dropping, capture=capture)[0] for seed in (1, 2)] for _ in range(2))
    stream = on_gpu(name)[1]
    for learner in apart:
        for task in stream:
            learner.update(task)
    torch.manual_seed(7)
    expected = [(torch.rand(1), torch.rand(1, device="cuda").cpu()) for _ in range(200)]
    torch.manual_seed(7)
    drawn = []
    for task in stream:
        running = [(learner.updating(task), own_stream()) for learner in together]
        while running:
            for pair in list(running):
                with pair[1]:
                    if next(pair[0], running) is running:
                        running.remove(pair)
            drawn.append((torch.rand(1), torch.rand(1, device="cuda").cpu()))
    assert drawn == expected[: len(drawn)], "the caller's numbers are the caller's own"
    torch.cuda.synchronize()
    for one, other in zip(apart, together):
        assert torch.equal(one.net.theta, other.net.theta)


def test_replayed_steps_draw_what_eager_ones_draw():
    ends = []
    for capture in (True, False):
        learner, stream = on_gpu("rder", 3, dropping, capture=capture)
        for task in stream:
            learner.update(task)
        ends.append(learner.net.theta.detach().clone())
    assert torch.equal(*ends)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("mode", ["forward", "double-backward"])
def test_a_vision_transformer_is_relational_in_replayed_steps_as_in_eager_ones(mode, precision):
    ends, options = [], {"hypergradient": mode}
    for capture in (True, False):
        make = lambda: ViT((3, 8, 8), 4, dropout=0.1)
        learner, stream = on_gpu("rer", 0, make, options=options, capture=capture, precision=precision)
        for task in stream:
            learner.update(task)
        ends.append(learner.net.theta.detach().clone())
    assert torch.isfinite(ends[0]).all() and torch.allclose(*ends, rtol=0, atol=1e-6)


def test_a_recurrent_network_that_cudnn_cannot_do_is_refused_with_words():
    """cuDNN has neither derivative."""

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.out = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 4)

        def forward(self, x):
            return self.out(self.rnn(x[:, 0])[0][:, -1])

    for mode in ("forward", "double-backward"):
        learner, stream = on_gpu("rer", 0, Recurrent, options={"hypergradient": mode})
        with pytest.raises(BadInput, match="would not help"):
            learner.update(stream.tasks[0])


def test_a_learner_that_is_garbage_disturbs_no_recording_of_another():
    """Its graphs are destroyed when garbage is collected, which no recording survives (pytorch/pytorch#161037)."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.zeros(1, device="cuda")
    left = [graph]
    del graph

    class Untidy(ER):
        def learn(self, new):
            if torch.cuda.is_current_stream_capturing() and left:
                garbage = [left.pop()]
                garbage.append(garbage)
                del garbage
                assert [[] for _ in range(5000)], "enough for garbage to be looked for"
            return super().learn(new)

    stream = toy(tasks=2, each=24, channels=3)
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    learner = Learner(network, Untidy(), classes=range(4), inputs=stream.pixels, batch=4, memory=8, device="cuda")
    learner.update(stream.tasks[0])
    assert not left and torch.isfinite(learner.net.theta).all()


def test_a_lack_of_memory_is_passed_on_from_compiled_kernels():
    layer, x = Norm(32).cuda(), torch.zeros(1024, 64, 64, 32, device="cuda").permute(0, 3, 1, 2)
    layer.groups, layer.fuse = 2, True
    torch.cuda.empty_cache()
    room = torch.cuda.memory_reserved() / torch.cuda.get_device_properties(0).total_memory  # what is taken, and no more
    torch.cuda.set_per_process_memory_fraction(room)
    try:
        with torch.no_grad(), pytest.raises(torch.OutOfMemoryError):
            layer(x)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)

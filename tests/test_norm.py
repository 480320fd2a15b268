"""Several batches in one pass, each with BatchNorm statistics of its own: the same numbers as a pass a batch."""

import copy
import sys
import warnings

import pytest
import torch
from conftest import learner_of, toy
from torch import nn
from torch.nn import functional as F

from everlearn import core
from everlearn.core import norm
from everlearn.core.norm import Grouped, Norm
from everlearn.core.theta import MainNet
from everlearn.experiments.bench import bench
from everlearn.networks import CNN, build

double = dict(dtype=torch.float64)


def inputs(residual: bool) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(0)
    shapes = [(2, 5, 3), (3,), (3,)] + ([(2, 5, 3)] if residual else [])
    return tuple(torch.randn(shape, generator=random, **double).requires_grad_() for shape in shapes)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_its_derivatives_are_right_backward_forward_and_twice(residual, relu):
    function = lambda x, w, b, r=None: Grouped.apply(x, w, b, r, relu, 1e-5, False)[0]
    assert torch.autograd.gradcheck(function, inputs(residual), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, inputs(residual))


@pytest.mark.parametrize("relu", [False, True])
def test_it_is_batchnorm_of_each_batch_then_the_sum_then_relu(relu):
    layer = Norm(3).to(**double)
    plain = nn.BatchNorm2d(3).to(**double)
    x, residual = (torch.randn(8, 3, 4, 4, **double) for _ in range(2))
    layer.groups = 2
    together = layer(x, residual=residual, relu=relu)
    apart = torch.cat([plain(part) for part in x.split(4)]) + residual
    assert torch.allclose(together, F.relu(apart) if relu else apart, rtol=0, atol=1e-12)
    for mode in (True, False):
        alone, theirs = Norm(3).to(**double).train(mode), nn.BatchNorm2d(3).to(**double).train(mode)
        expected = theirs(x) + residual
        assert torch.equal(alone(x, residual=residual, relu=relu), F.relu(expected) if relu else expected)
        assert torch.equal(alone.running_var, theirs.running_var), "left to itself it is BatchNorm, bit for bit"
        assert alone.seen == () and alone.groups is None and alone.fuse is False


def test_a_pass_over_three_batches_is_three_passes():
    one, other = (build("resnet18", (3, 32, 32), 10, 0) for _ in range(2))
    apart, together = MainNet(one, **double), MainNet(other, **double, fuse=True)
    batches = [torch.randn(2, 3, 32, 32, **double) for _ in range(3)]
    results = []
    for net in (apart, together):
        net.module.train()
        z = torch.stack(list(net.at(net.theta)(*batches)))
        (g,) = torch.autograd.grad(z.square().sum(), net.theta)
        results.append((z.detach(), g / g.abs().max(), *net.state().values()))
    for a, b in zip(*results):
        assert torch.allclose(a.double(), b.double(), rtol=0, atol=1e-12)
    assert int(one.stem[1].num_batches_tracked) == int(other.stem[1].num_batches_tracked) == 3


def test_a_virtual_pass_leaves_the_running_statistics_alone():
    net = MainNet(CNN((1, 8, 8), 4), **double, fuse=True)
    net.module.train()
    before = copy.deepcopy(net.state())
    net.at(net.theta, virtual=True)(*torch.randn(2, 4, 1, 8, 8, **double))
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state().items())


class Plain(nn.Module):
    """Ordinary BatchNorm, and a statistic of one's own that is assigned anew in every pass."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=None), nn.Flatten())
        self.head = nn.Linear(4 * 36, 2)
        self.register_buffer("level", torch.zeros(()))

    def forward(self, x):
        self.level = self.level + x.detach().mean()
        return self.head(self.body(x))


def averaging() -> CNN:
    """A CNN whose running statistics are means of all batches, layer by layer."""
    network = CNN((1, 8, 8), 2)
    for layer in network.modules():
        if isinstance(layer, Norm):
            layer.momentum = None
    return network


@pytest.mark.parametrize("name", ["er", "der++", "rder", "gss", "er+split"])
@pytest.mark.parametrize("network", [lambda: CNN((1, 8, 8), 2), averaging, Plain])
@pytest.mark.parametrize("together", [False, True])
def test_an_empty_memory_moves_no_running_statistics(name, network, together):
    """One step: as if there were only the new samples. After another the memory has its part."""
    apart = {}
    for samples in (4, 8):
        for method in ("finetune", name):
            torch.manual_seed(0)
            stream = toy(tasks=1, each=samples)
            learner = learner_of(method, stream, epochs=1, network=network(), compile=together, **double)
            learner.update(stream.tasks[0])
            apart[samples, method] = {
                key: t for key, t in learner.net.state().items() if t.ndim == 0 or "running" in key
            }
    alone, beside = apart[4, "finetune"], apart[4, name]
    assert alone and all(torch.equal(alone[key], beside[key]) for key in alone)
    assert not any(torch.equal(apart[8, "finetune"][key], apart[8, name][key]) for key in alone)


def test_in_a_joint_pass_an_empty_memory_has_no_part_in_the_statistics():
    states = []
    for method in ("finetune", "er"):
        learner = learner_of(method, stream := toy(tasks=1, each=4), epochs=1, forward="joint", **double)
        learner.update(stream.tasks[0])
        states.append(learner.net.state())
    one, other = states
    close = lambda key: torch.allclose(one[key].double(), other[key].double(), rtol=0, atol=1e-12)
    assert all(close(key) for key in one if "running_var" not in key), "of a variance, rows - 1 are others"


@pytest.mark.parametrize("name", ["finetune", "er", "rder", "agem", "icarl", "gss", "er-ace+vanilla"])
@pytest.mark.parametrize("more", [{}, {"hypergradient": "double-backward"}])
def test_training_is_the_same_either_way(name, more):
    stream, thetas = toy(tasks=2, each=20), []
    if more and name != "rder":
        pytest.skip("it has no hypergradient")
    for together in (False, True):
        learner = learner_of(name, stream, options=more, epochs=4, lr=0.02, compile=together, **double)
        for task in stream:
            learner.update(task)
        assert learner.net.forward.__name__ == ("_grouped" if together else "_separate")
        thetas.append(learner.net.theta.detach())
    assert torch.allclose(*thetas, rtol=0, atol=1e-9)


def test_batches_of_unequal_size_take_a_pass_each():
    net = MainNet(CNN((1, 8, 8), 4), **double, fuse=True)
    net.module.train()
    x = torch.randn(9, 1, 8, 8, **double)
    z, other = net.at(net.theta)(x[:3], x[3:])
    assert torch.allclose(z, net.at(net.theta)(x[:3])[0]) and len(other) == 6


def test_where_triton_does_not_work_it_says_so_once_and_goes_on(failing):
    layer = failing(RuntimeError("no compiler\nand more"))
    with pytest.warns(UserWarning, match="RuntimeError: no compiler"):
        y = layer(torch.randn(8, 3, 4, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(torch.randn(8, 3, 4, 4))
    assert torch.isfinite(y).all()


def test_the_bench_has_a_figure_for_every_method_and_the_overheads():
    document = bench("cpu", ("er", "rer"))
    assert [row["method"] for row in document["rows"]] == ["er", "rer"]
    assert all(row["milliseconds"] > 0 and row["images_a_second"] > 0 for row in document["rows"])
    assert document["relational_overhead"]["rer / er"]["alone"] > 0


def test_running_statistics_move_batch_after_batch_as_torchs_do():
    ours, theirs = Norm(3).double().train(), nn.BatchNorm2d(3).double().train()
    x = torch.randn(8, 3, 4, 4, dtype=torch.float64) * 2 + 1
    ours.groups = 2
    for _ in range(2):  # used twice in each batch
        ours(x)
    assert len(ours.seen) == 2 and ours.num_batches_tracked == 0, "whoever set the groups moves the statistics"
    ours.move()
    for half in x.split(4):
        for _ in range(2):
            theirs(half)
    assert torch.allclose(ours.running_mean, theirs.running_mean, atol=1e-12)
    assert torch.allclose(ours.running_var, theirs.running_var, atol=1e-12)
    assert ours.num_batches_tracked == theirs.num_batches_tracked == 4 and ours.seen == ()
    ours.momentum = theirs.momentum = None  # the mean over all batches
    ours(x)
    ours.move()
    for half in x.split(4):
        theirs(half)
    assert torch.allclose(ours.running_mean, theirs.running_mean, atol=1e-12)
    assert torch.allclose(ours.running_var, theirs.running_var, atol=1e-12)


def test_where_triton_is_not_installed_it_says_so_and_goes_on(monkeypatch):
    monkeypatch.delattr(core, "kernels", raising=False)
    monkeypatch.delitem(sys.modules, "everlearn.core.kernels", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    attempt = norm.fused.__wrapped__(norm.normalise, True)
    x, ones = torch.randn(2, 5, 3), torch.ones(3)
    with pytest.warns(UserWarning, match="Triton does not work here .ModuleNotFoundError.*going on without it"):
        y, *_ = attempt(x, ones, ones, None, True, 1e-5)
    assert torch.equal(y, norm.normalise(x, ones, ones, None, True, 1e-5)[0])


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("Triton Error [CUDA]: out of memory")]
)
def test_a_lack_of_memory_is_not_taken_for_a_lack_of_triton(failing, error):
    layer = failing(error)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of memory"):
            layer(torch.randn(8, 3, 4, 4))


def test_an_error_without_words_is_one_too(failing):
    with pytest.warns(UserWarning, match=r"Triton does not work here .AssertionError: it does not say why.;"):
        failing(AssertionError())(torch.randn(8, 3, 4, 4))


@pytest.fixture
def teacher(kernels):
    """Of what its kernel is: a teacher's layer, whose statistics are settled."""

    def layer(kernel) -> Norm:
        layer = kernels(kernel).eval().requires_grad_(False)
        layer.groups, layer.frozen = None, True
        layer.running_mean.normal_()
        return layer

    return layer


def test_a_teachers_kernel_is_not_asked_for_derivatives_for_it_has_none(teacher):
    asked, x = [], torch.randn(8, 3, 4, 4)
    layer = teacher(lambda *given: asked.append(given) or norm.settled(*given))
    expected = layer(x)
    assert len(asked) == 1
    needed = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(needed).sum(), needed)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        tangent = torch.autograd.forward_ad.unpack_dual(layer(dual)).tangent
    scale = (layer.running_var + layer.eps).rsqrt()[:, None, None].expand_as(x)
    assert torch.allclose(gradient, scale) and torch.allclose(tangent, scale) and len(asked) == 1
    with torch.no_grad():
        assert torch.equal(layer(needed), expected) and len(asked) == 2, "where none is wanted it is asked"


def test_a_kernel_is_not_asked_for_what_has_no_memory_to_read_and_is_asked_again_afterwards(teacher):
    asked, x = [], torch.randn(2, 8, 3, 4, 4)
    layer = teacher(lambda *given: asked.append(given) or norm.settled(*given))
    assert torch.allclose(torch.vmap(layer)(x), torch.stack([layer(x[0]), layer(x[1])])) and len(asked) == 2
    assert layer(x[0, :0]).shape == (0, 3, 4, 4) and len(asked) == 2


def test_gradients_of_several_losses_at_once_need_no_kernel(kernels):
    asked, x = [], torch.randn(8, 3, 4, 4)
    of = {4: norm.normalise, 6: norm.normalise, 9: norm.pull_back}
    layer = kernels(lambda *given: asked.append(len(given)) or of[len(given)](*given))
    y, each = layer(x).square().mean(dim=(1, 2, 3)), torch.eye(8)
    together = torch.autograd.grad(y, layer.weight, each, retain_graph=True, is_grads_batched=True)[0]
    assert asked == [6]
    alone = [torch.autograd.grad(y, layer.weight, row, retain_graph=True)[0] for row in each]
    assert torch.allclose(together, torch.stack(alone), atol=1e-6) and asked == [6] + [9] * 8


def test_kernels_are_asked_where_they_are_to_be_and_else_the_function_itself(kernels):
    asked, x = [], torch.randn(8, 3, 4, 4)
    layer = kernels(lambda *given: asked.append(given) or norm.normalise(*given))
    y = layer(x)
    assert len(asked) == 1 and asked[0][1] is layer.weight
    layer.fuse = False
    assert torch.equal(layer(x), y) and len(asked) == 1
    assert norm.fused(norm.normalise, False) is norm.normalise


@pytest.mark.parametrize("grouped", [1, 2])
def test_one_value_per_channel_has_no_statistics(grouped):
    layer = Norm(3)
    layer.groups = grouped
    with pytest.raises(ValueError, match="more than one value per channel"):
        layer(torch.randn(grouped, 3, 1, 1))


@pytest.mark.parametrize("residual", [False, True])
def test_where_nothing_was_added_relus_derivative_does_not_need_what_it_gave(residual):
    x, weight, bias, *rest = (tensor.detach() for tensor in inputs(residual))
    y, mean, _, rho = norm.normalise(x, weight, bias, rest[0] if rest else None, True, 1e-5)
    dy, of = torch.randn_like(x), (x, weight, bias)
    for asked in (
        lambda y: norm.pull_back(dy, *of, y, mean, rho, True, residual)[:3],
        lambda y: (norm.push_forward(dy, weight, bias, None, *of, y, mean, rho, True),),
    ):
        same = all(torch.equal(one, other) for one, other in zip(asked(y), asked(None)))
        assert same is not residual, "with a residual it does"


def test_in_half_precision_statistics_are_the_weights_precision_and_answers_the_inputs():
    x, weight, bias = torch.randn(2, 50, 3).to(torch.bfloat16), torch.ones(3), torch.zeros(3)
    residual = torch.randn(2, 50, 3).to(torch.bfloat16)
    y, mean, variance, rho = norm.normalise(x, weight, bias, residual, False, 1e-5)
    assert y.dtype == torch.bfloat16 and mean.dtype == variance.dtype == rho.dtype == torch.float32
    assert torch.allclose(mean, x.float().mean(1, keepdim=True), atol=1e-6)
    assert torch.allclose(variance, x.float().var(1, keepdim=True), atol=1e-5)
    dx, dw, db, dr = norm.pull_back(y, x, weight, bias, y, mean, rho, True, True)
    assert dx.dtype == dr.dtype == torch.bfloat16 and dw.dtype == db.dtype == torch.float32
    assert torch.allclose(db, y.float().relu().sum(dim=(0, 1)), rtol=1e-4)
    assert norm.push_forward(dx, weight, bias, None, x, weight, bias, y, mean, rho, True).dtype == torch.bfloat16


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("added", [True, False])
def test_a_teachers_layer_is_batchnorm_by_running_statistics_in_one_function(relu, added, monkeypatch):
    layer, plain = Norm(3).to(**double), nn.BatchNorm2d(3).to(**double)
    x, residual = torch.randn(2, 4, 3, 5, 5, **double)
    with torch.no_grad():
        for tensor in (*layer.parameters(), layer.running_mean, layer.running_var):
            tensor.uniform_(0.5, 2)
    plain.load_state_dict(layer.state_dict())
    expected = plain.eval()(x) + (residual if added else 0)
    asked = []
    monkeypatch.setattr(norm, "fused", lambda function, fuse: asked.append((function, fuse)) or function)
    layer.eval().frozen = layer.fuse = True
    with torch.no_grad():
        answer = layer(x, residual=residual if added else None, relu=relu)
    assert torch.allclose(answer, F.relu(expected) if relu else expected, rtol=0, atol=1e-12)
    assert asked == [(norm.settled, True)] and layer.seen == ()


def test_a_derivative_nobody_asks_for_is_none():
    x, weight, bias = (tensor.requires_grad_() for tensor in inputs(False))
    y, mean, variance = Grouped.apply(x, weight, bias, None, False, 1e-5, False)
    assert y.requires_grad and not mean.requires_grad and not variance.requires_grad
    assert Grouped.backward(None, None) == (None,) * 7

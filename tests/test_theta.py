"""The network as one vector θ, its teacher, its average and its random numbers: each part by itself."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

import everlearn
from everlearn import Average, Snapshot
from everlearn.core import filling, theta
from everlearn.core.layout import Layout, Rounded, write_back
from everlearn.core.norm import Norm
from everlearn.core.seeding import Randomness, seeded
from everlearn.core.theta import MainNet, reading, small, widen
from everlearn.errors import BadInput
from everlearn.networks import CNN
from everlearn.weightings.bilevel import slope

X = torch.linspace(-1, 1, 12).view(4, 3)


class Counting(nn.Module):
    """A buffer that is assigned anew in every pass in training, and is part of the answer."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        answer = self.out(x) + self.seen
        if self.training:
            self.seen = self.seen + 1
        return answer


# Bound and unbound ----------------------------------------------------------------------------------------------------
def test_what_is_assigned_to_the_module_at_rest_is_taken_up_by_state_copy_and_resize():
    for taken in (MainNet.state, copy.deepcopy, lambda net: net.resize("", 3)):
        net = MainNet(nn.Linear(3, 2))
        net.module.weight = nn.Parameter(torch.full((2, 3), 7.0))
        taken(net)
        assert net.module.weight[:2].eq(7).all() and net.theta[:6].eq(7).all()
    copied = copy.deepcopy(net)
    copied.theta.data.zero_()
    assert not copied.module.weight.any() and net.module.weight[:2].eq(7).all(), "a copy has memory of its own"
    assert copied.state()["weight"].data_ptr() == copied.theta.data_ptr(), "which its parameters share"


def test_what_was_assigned_makes_way_for_the_owners_own_parameters():
    net = MainNet(nn.Linear(3, 2))
    own = net.module.weight
    net.module.weight = nn.Parameter(torch.full((2, 3), 7.0))
    net.sync()
    assert net.module.weight is own and own.eq(7).all() and own.data_ptr() == net.theta.data_ptr()


def test_a_network_in_use_takes_nothing_up_until_it_is_at_rest():
    net = MainNet(nn.Linear(3, 2))
    net.at(net.theta.detach() * 0)
    net.sync()
    assert not net.module.weight.any(), "it still speaks for the θ it was bound to"
    assert net.unbind() is net.module and torch.equal(net.module.weight.reshape(-1), net.theta[:6])
    assert isinstance(net.module.weight, nn.Parameter)


def test_other_layers_than_before_are_refused():
    for change in (
        lambda module: module.append(nn.Linear(2, 2)),
        lambda module: module.__setitem__(0, nn.Linear(3, 2)),
        lambda module: module.__delitem__(1),
    ):
        net = MainNet(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
        change(net.module)
        with pytest.raises(BadInput, match="the network has other layers than it had when the learner was made"):
            net.state()


def test_an_assigned_buffer_is_what_the_next_real_pass_reads_and_no_virtual_one_changes_it():
    net = MainNet(Counting())
    first = net.at(net.theta)(X)[0]
    second = net.at(net.theta)(X)[0]
    assert torch.allclose(second - first, torch.ones(4, 2))
    buffer = net.unbind()._buffers["seen"]
    assert buffer == 2 and net.floats().tolist() == [2] and net.state()["seen"] == 2
    virtual = net.at(net.theta, virtual=True)
    for n in (2.0, 3.0):
        assert torch.allclose(virtual(X)[0] - first, torch.full((4, 2), n))
    assert torch.allclose(net.at(net.theta)(X)[0] - first, torch.full((4, 2), 2.0)), "as if it had not been"
    net.at(net.theta, virtual=True)(X)
    assert net.unbind()._buffers["seen"] is buffer and buffer == 3, "it is written into the owner's own"


def test_an_assigned_buffer_is_written_down_once_its_gradient_is_known():
    net = MainNet(Counting())
    loss = net.at(net.theta)(X)[0].square().mean()
    net.gradient(loss, retain_graph=True)
    assert net.floats().tolist() == [0], "the graph may still be read"
    net.gradient(loss)
    assert net.floats().tolist() == [1]


def test_a_gradient_is_of_one_number():
    net = MainNet(nn.Linear(3, 2))
    with pytest.raises(BadInput, match=r"the loss to descend is of shape \[4, 2\]; it must be one number"):
        net.gradient(net.at(net.theta)(X)[0])
    loss = net.at(net.theta)(X)[0].square().mean()
    kept = net.gradient(loss, retain_graph=True)
    assert torch.equal(net.gradient(loss), kept)
    with pytest.raises(RuntimeError, match="second time"):
        net.gradient(loss)


def test_statistics_and_theta_can_be_assigned_and_read_as_vectors():
    net = MainNet(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    net.module.train()
    net.at(net.theta)(X)
    before = net.theta.detach().clone(), net.floats()
    assert before[1].tolist() == [*net.module[1].running_mean.tolist(), *net.module[1].running_var.tolist()]
    net.assign(torch.zeros_like(before[0]), torch.arange(4.0))
    assert not net.module[0].weight.any() and net.module[1].running_var.tolist() == [2, 3]
    assert int(net.module[1].num_batches_tracked) == 1, "a counter is no statistic"
    net.assign(*before)
    assert torch.equal(net.floats(), before[1]) and torch.equal(net.theta, before[0])
    assert MainNet(nn.Linear(3, 2)).floats().shape == (0,)


def test_on_a_cpu_theta_is_the_parameters_one_after_another_tied_ones_once():
    module = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Conv2d(2, 3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    module[3].weight = module[2].weight
    module[0].bias.requires_grad_(False)
    expected = torch.cat([p.detach().reshape(-1) for p in module.parameters() if p.requires_grad])
    net = MainNet(module, dtype=torch.float64)
    assert torch.equal(net.theta, expected.double()) and torch.equal(net.plain(net.theta.detach()), net.theta)
    assert module[0].weight.dtype == torch.float64 and net.theta.requires_grad
    assert MainNet(nn.Linear(2, 2)).theta.dtype == torch.float32


def test_a_recurrent_network_answers_and_learns_as_torchs():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.read, self.out = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x):
            return self.out(self.read(x)[0][:, -1])

    torch.manual_seed(0)
    module = Words()
    plain, x = copy.deepcopy(module), torch.randn(2, 5, 3)
    expected = torch.autograd.grad(plain(x).square().mean(), plain.parameters())
    net = MainNet(module)
    found = net.gradient(net.at(net.theta)(x)[0].square().mean())
    assert torch.allclose(found, torch.cat([g.reshape(-1) for g in expected]), atol=1e-6)
    moved = net.at(net.theta.detach() * 0)(x)[0]
    assert not moved.any(), "bound to another θ it has another answer"


def test_a_gradient_per_sample_is_that_of_a_batch_of_one():
    net = MainNet(Counting().eval())
    loss = lambda net, x, y: F.cross_entropy(net(x)[0], y)
    y = torch.tensor([0, 1, 1, 0])
    each = net.per_sample(loss, X, y)
    for row, x, label in zip(each, X, y):
        alone = net.gradient(F.cross_entropy(net.at(net.theta)(x[None])[0], label[None]))
        assert torch.allclose(row, alone, atol=1e-6)
    assert each.shape == (4, 8) and not net.floats().any()


def test_in_bfloat16_a_gradient_per_sample_is_that_of_a_batch_of_one_but_for_rounding():
    """Torch's own BatchNorm refuses bfloat16 within vmap."""
    torch.manual_seed(0)
    net, x, y = MainNet(CNN((3, 8, 8), 4), precision="bfloat16"), torch.randn(3, 3, 8, 8), torch.tensor([0, 3, 1])
    for norm in (m for m in net.module.modules() if isinstance(m, Norm)):
        norm.running_mean.uniform_(-0.5, 0.5)
        norm.running_var.uniform_(0.5, 2)
    loss = lambda net, x, y: F.cross_entropy(net(x)[0], y)
    with net.evaluating():
        each = net.per_sample(loss, x, y)
        for n, row in enumerate(each):
            alone = net.gradient(loss(net.at(net.theta), x[n : n + 1], y[n : n + 1]))
            assert (row - alone).norm() < 0.02 * alone.norm()
    assert each.dtype == torch.float32 and not any(getattr(m, "mapped", False) for m in net.module.modules())


class Recurrent(nn.Module):
    """Rows of 3 numbers, read one by one; what is negative is padding."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.out = layer, nn.Linear(4, 2)

    def forward(self, x):
        steps, lengths = x[..., None].expand(-1, -1, 4), (x >= 0).sum(dim=1).clamp(min=1)
        if isinstance(self.layer, nn.LSTM):
            steps = pack_padded_sequence(steps, lengths, batch_first=True, enforce_sorted=False)
            return self.out(self.layer(steps)[1][0][0])
        if isinstance(self.layer, nn.GRU):
            return self.out(self.layer(steps)[1][0])
        padded = torch.arange(3) >= lengths[:, None]
        return self.out(self.layer(steps, src_key_padding_mask=padded).mean(dim=1))


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.GRU(4, 4, batch_first=True),
        lambda: nn.LSTM(4, 4, batch_first=True),
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1),
    ],
    ids=["gru", "packed lstm", "padded transformer"],
)
def test_so_it_is_in_a_network_that_torch_cannot_map_over_samples(layer):
    """OEWC and GSS ended in torch's words: a batching rule that is missing, a shape that does not match."""
    torch.manual_seed(0)
    net, x, y = MainNet(Recurrent(layer())), X, torch.tensor([0, 1, 1, 0])
    loss = lambda net, x, y: F.cross_entropy(net(x)[0], y)
    with net.evaluating(), torch.no_grad():
        each = net.per_sample(loss, x, y)
    with net.evaluating():
        alone = [net.gradient(loss(net.at(net.theta), x[n : n + 1], y[n : n + 1])) for n in range(4)]
    assert torch.allclose(each, torch.stack(alone), atol=1e-6) and all(row.any() for row in each)


class AsCuDNN(torch.autograd.Function):
    """x² with what a recurrent layer does on a GPU: no rule for vmap, and in evaluation mode no derivative by cuDNN."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        if torch.backends.cudnn.enabled:
            raise RuntimeError("cudnn RNN backward can only be called in training mode")
        return 2 * ctx.saved_tensors[0] * dy


def test_and_in_a_recurrent_one_that_cudnn_would_differentiate_in_training_mode_alone():
    class Squared(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return AsCuDNN.apply(self.layer(x))

    net, before = MainNet(Squared()), torch.backends.cudnn.enabled
    with net.evaluating(), torch.no_grad():
        each = net.per_sample(lambda net, x: net(x)[0].sum(), torch.ones(4, 3))
    assert each.shape == (4, 8) and each.any() and torch.backends.cudnn.enabled == before


# Modes ----------------------------------------------------------------------------------------------------------------
def test_evaluation_mode_is_for_the_length_of_a_question():
    module = nn.Sequential(nn.Linear(3, 2), nn.Dropout(), nn.Sequential(nn.Dropout()))
    net = MainNet(module)
    module[2].eval()
    with pytest.raises(KeyError), net.evaluating():
        assert not any(m.training for m in module.modules())
        raise KeyError
    assert [m.training for m in module.modules()] == [True, True, True, False, False]


def test_training_mode_leaves_frozen_layers_in_evaluation_mode_still():
    frozen = nn.Sequential(nn.Linear(3, 3), nn.Dropout()).eval().requires_grad_(False)
    bare = nn.Dropout().eval()
    half = nn.Sequential(nn.Linear(3, 2), nn.Dropout()).eval()
    module = nn.Sequential(frozen, bare, half).train()
    frozen.eval(), bare.eval(), half.eval()
    net = MainNet(module)
    net.train()
    assert (
        not any(m.training for m in frozen.modules())
        and not bare.training
        and not any(m.training for m in half.modules())
    ), "in a network in training mode its owner has set each by hand"
    module = nn.Sequential(nn.Linear(3, 3).requires_grad_(False), nn.Dropout(), nn.Linear(3, 2)).eval()
    net = MainNet(module)
    net.train()
    assert [m.training for m in module] == [False, True, True], "as a whole it was only just loaded"


def test_what_was_frozen_or_thawed_since_is_noticed():
    net = MainNet(nn.Sequential(nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 2)))
    assert not net.refrozen
    net.module[1].bias.requires_grad_(False)
    assert net.refrozen
    net.module[1].bias.requires_grad_(True)
    net.module[0].bias.requires_grad_(True)
    assert net.refrozen
    with pytest.raises(BadInput, match="the network has no trainable parameter"):
        MainNet(nn.Linear(3, 2).requires_grad_(False))


# Precision ------------------------------------------------------------------------------------------------------------
def test_in_bfloat16_matrices_come_first_and_are_rounded_and_vectors_are_not():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    net = MainNet(module, precision="bfloat16")
    assert net.matrices == 2 and MainNet(nn.Linear(3, 2)).matrices is None
    weights = [module[0].weight, module[1].weight, module[0].bias, module[1].bias]
    assert torch.equal(net.theta, torch.cat([w.detach().reshape(-1) for w in weights]))
    plain = torch.cat([w.detach().reshape(-1) for w in module.parameters()])
    assert torch.equal(net.plain(net.theta.detach()), plain), "in the module's own order"
    assert torch.equal(net.laid_out(plain), net.theta)
    bound = net.at(net.theta).module
    assert [bound[0].weight.dtype, bound[0].bias.dtype] == [torch.bfloat16, torch.float32]
    assert torch.equal(bound[1].weight, weights[1].detach().to(torch.bfloat16))
    assert net(X)[0].dtype == torch.float32 and net.features(X).dtype == torch.float32


@pytest.mark.parametrize("channels_last", [False, True])
def test_rounded_tensors_have_the_derivatives_of_a_cast_and_a_cut_to_the_bit(channels_last):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3, 2))
    slots = [(module[n]._parameters, name) for name in ("weight", "bias") for n in (0, 2)]
    layout, lengths = Layout(slots, torch.device("cpu"), torch.float32, channels_last), [54 + 6, 5]
    assert layout.sizes == [54, 6, 3, 2]
    x, along = torch.randn(4, 2, 3, 3), torch.randn(65)

    def loss(pieces, x=x):
        kernel, matrix, *biases = pieces
        hidden = F.conv2d(x.to(kernel.dtype), kernel).float().flatten(1) + biases[0]
        return (F.linear(hidden.to(matrix.dtype), matrix).float() + biases[1]).pow(3).sum()

    def cast_and_cut(theta):
        matrices, vectors = theta.split(lengths)
        return layout.shaped([*matrices.to(torch.bfloat16).split([54, 6]), *vectors.split([3, 2])])

    ways = cast_and_cut, lambda theta: Rounded.apply(theta, layout, 2)
    once, twice, forward, each = [], [], [], []
    for way in ways:
        at = layout.vector.clone().requires_grad_()
        assert [piece.dtype for piece in way(at)] == [torch.bfloat16] * 2 + [torch.float32] * 2
        (gradient,) = torch.autograd.grad(loss(way(at)), at)
        once.append(gradient)
        (gradient,) = torch.autograd.grad(loss(way(at)), at, create_graph=True)
        twice.append(torch.autograd.grad(gradient @ along, at)[0])
        forward.append(slope(lambda theta, way=way: loss(way(theta)), at, along))
        of_one = torch.func.grad(lambda theta, x, way=way: loss(way(theta), x[None]))
        each.append(torch.func.vmap(of_one, in_dims=(None, 0))(at.detach(), x))
    for one, other in (once, twice, forward, each):
        assert torch.equal(one, other) and one.abs().sum() > 0
    assert torch.allclose(once[1], each[1].sum(0), rtol=0.02, atol=0.02)


def test_rounded_tensors_have_gradients_of_several_losses_at_once():
    torch.manual_seed(0)
    net = MainNet(nn.Linear(3, 2), precision="bfloat16")
    answers = net.at(net.theta)(X)[0]
    each = [torch.autograd.grad(answers[:, n].sum(), net.theta, retain_graph=True)[0] for n in range(2)]
    columns = torch.eye(2)[:, None].expand(2, *answers.shape)
    (both,) = torch.autograd.grad(answers, net.theta, columns, is_grads_batched=True)
    assert torch.allclose(both, torch.stack(each), rtol=1e-2)


def test_what_a_network_writes_into_a_bias_in_a_pass_stays_whatever_the_precision():
    class Clamped(nn.Linear):
        def forward(self, x):
            self.bias.data.clamp_(-0.01, 0.01)
            return super().forward(x)

    for precision in ("float32", "bfloat16"):
        net = MainNet(Clamped(3, 2), precision=precision)
        net.module.bias.data.fill_(0.5)
        net.gradient(net.at(net.theta)(X)[0].sum())
        assert net.unbind().bias.tolist() == pytest.approx([0.01, 0.01]) and net.theta[-1] == net.module.bias[-1]


def test_a_tensor_without_a_gradient_has_zeros_in_the_whole_vector():
    net = MainNet(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), precision="bfloat16")
    last = net.at(net.theta).module[1]
    gradient = net.gradient(last.weight.float().sum() + last.bias.sum())
    assert gradient.count_nonzero() == 8 + 2 and gradient.dtype == torch.float32 and gradient.shape == net.theta.shape


def test_a_network_of_fewer_than_two_million_parameters_is_small():
    assert theta.SMALL == 2_000_000 and small(1_999_999) and not small(2_000_000)


# Heads and features ---------------------------------------------------------------------------------------------------
def test_features_are_read_at_the_head_or_at_the_last_linear_layer_and_no_hook_is_left():
    body = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    with reading(body) as read:
        body(X)
    assert torch.equal(read[-1], body[:2](X)) and not any(m._forward_pre_hooks for m in body.modules())

    class Headed(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.more = nn.Conv1d(3, 3, 1), nn.Linear(3, 2)

        def forward(self, x):
            return self.more(self.head(x[:, :, None])[:, :, 0])

    net = MainNet(Headed())
    assert torch.equal(net.features(X), X[:, :, None])
    with pytest.raises(BadInput, match="the network uses no linear layer and names no head"), reading(nn.ReLU()):
        pass


def test_a_network_that_reads_has_the_features_of_each_batch():
    for network in (nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)), everlearn.networks.MLP((3,), 2)):
        net = MainNet(network)
        net.reads = True
        net.at(net.theta)(X, X[:3])
        assert [len(of) for of in net.read] == [4, 3]
        assert torch.allclose(net.read[0][:3], net.read[1], atol=1e-6)
        net.unbind()
        assert net.read == ()


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_a_head_that_is_widened_or_cut_keeps_its_first_outputs(outputs):
    for bias in (True, False):
        layer = nn.Linear(3, 2, bias=bias)
        layer.weight.requires_grad_(False)
        before = copy.deepcopy(layer)
        widen(layer, outputs)
        same = min(outputs, 2)
        assert layer.out_features == outputs and layer.weight.shape == (outputs, 3) and (layer.bias is None) != bias
        assert torch.equal(layer.weight[:same], before.weight[:same]) and not layer.weight[same:].any()
        assert not layer.weight.requires_grad and (not bias or layer.bias.requires_grad)


def test_vectors_like_theta_follow_a_head_that_is_resized():
    net = MainNet(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)))
    like = torch.arange(float(len(net.theta)))
    weights = net.theta.detach().clone()
    follow = net.resize("1", 3)
    body, weight, bias = follow(like).split([12, 9, 3])
    assert body.tolist() == list(range(12))
    assert weight.tolist() == [*range(12, 18), 0, 0, 0] and bias.tolist() == [18, 19, 0]
    assert torch.equal(net.theta[:18], weights[:18]) and net.at(net.theta)(X)[0].shape == (4, 3)
    assert net.unbind() is net.module and net.module[1].weight.data_ptr() == net.theta[12:].data_ptr()


def test_a_network_in_use_is_at_rest_once_it_is_resized():
    net = MainNet(nn.Linear(3, 2))
    own = net.theta.detach().clone()
    net.at(own * 0)
    net.resize("", 3)
    assert isinstance(net.module.weight, nn.Parameter) and torch.equal(net.theta[:6], own[:6]), "with its own weights"


def test_rows_without_a_sample_are_filled_with_samples_of_the_first_batch_by_turns():
    first, old = torch.arange(4.0).view(2, 2), torch.full((5, 2), 9.0)
    there = torch.tensor([True, False, False, True, False])
    filled = filling.filled([first, old], [None, there])
    assert filled[0] is first
    assert filled[1].tolist() == [[9, 9], [2, 3], [0, 1], [9, 9], [0, 1]]
    assert filling.filled([first, old], ())[1] is old
    with pytest.raises(ValueError):
        filling.filled([first, old], [None])


def test_a_batch_moves_statistics_if_it_has_a_sample():
    batches = [X, X, X]
    assert filling.any_there(batches, ()) == [None] * 3
    found = filling.any_there(batches, [None, torch.tensor([False, True]), torch.tensor([False, False])])
    assert found[0] is None and [bool(moves) for moves in found[1:]] == [True, False]


def test_an_answer_that_is_no_tensor_is_refused():
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    net = MainNet(Pair(3, 2))
    with pytest.raises(BadInput, match="the network answers with a tuple; it should be a tensor, one logit per class"):
        net.at(net.theta)(X)


class Shared(nn.Module):
    """Norm layers of any momenta, the first used as often as said."""

    rowwise = True

    def __init__(self, momenta, uses=1):
        super().__init__()
        self.norms, self.out, self.uses = nn.ModuleList(Norm(3) for _ in momenta), nn.Linear(3, 2), uses
        for norm, momentum in zip(self.norms, momenta):
            norm.momentum = momentum

    def forward(self, x):
        x = x[:, :, None, None]
        for norm in [self.norms[0]] * self.uses + [*self.norms[1:]]:
            x = norm(x) * 2 + 1
        return self.out(x[:, :, 0, 0])


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("momenta, uses", [((0.1, 0.1), 1), ((0.1, 0.3), 1), ((None, None), 1), ((0.2,), 2)])
def test_batches_in_one_pass_move_statistics_as_passes_of_their_own_do(momenta, uses, there):
    batches = [torch.randn(4, 3, dtype=torch.float64) * 3 + n for n in range(3)]
    rows = [None, torch.zeros(4, dtype=torch.bool), torch.ones(4, dtype=torch.bool)] if there else ()
    found = []
    for fuse in (False, True):
        torch.manual_seed(0)
        net = MainNet(Shared(momenta, uses), dtype=torch.float64, fuse=fuse)
        net.train()
        z = torch.stack(list(net.at(net.theta)(*batches, there=rows)))
        z2 = torch.stack(list(net.at(net.theta, virtual=True)(*batches, there=rows)))
        assert torch.allclose(z, z2, atol=1e-12) and all(norm.groups is None and norm.seen == () for norm in net._norms)
        found.append((z, net.floats(), torch.stack([norm.num_batches_tracked for norm in net.unbind().norms]).double()))
    for one, other in zip(*found):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


def test_batches_of_one_size_share_a_pass_where_they_may_and_others_do_not():
    calls = []

    class Watched(Shared):
        def forward(self, x):
            calls.append(len(x))
            return super().forward(x)

    for fuse, sizes, passes in ((True, (4, 4, 4), [12]), (True, (4, 3, 4), [4, 3, 4]), (False, (4, 4), [4, 4])):
        net = MainNet(Watched((0.1,)), fuse=fuse)
        calls.clear()
        answers = net.at(net.theta)(*(torch.randn(size, 3) for size in sizes))
        assert calls == passes and [len(z) for z in answers] == list(sizes)


# Teachers and averages ------------------------------------------------------------------------------------------------
def test_a_teacher_is_a_frozen_copy_in_evaluation_mode():
    net = MainNet(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)))
    teacher = Snapshot(net)
    with torch.no_grad():
        net.theta.add_(1)
    assert not any(m.training for m in teacher.module.modules()) and net.module.training
    assert not any(p.requires_grad for p in teacher.module.parameters())
    assert torch.equal(teacher(X), teacher.module(X)) and not teacher(X).requires_grad
    assert torch.equal(teacher.features(X), teacher.module[:2](X)) and not teacher.features(X).requires_grad
    assert not torch.allclose(teacher(X), net.at(net.theta)(X)[0])
    other = Snapshot(net)
    other.restore(teacher.state())
    assert torch.equal(other(X), teacher(X)) and teacher.fleeting
    for state in ({}, {**teacher.state(), "more": X}, {**teacher.state(), "0.bias": X}):
        with pytest.raises(BadInput, match="this state is of another network"):
            other.restore(state)


def test_a_teachers_matrices_are_rounded_once_and_it_answers_the_same_bits():
    module = CNN((1, 8, 8), 4)
    module.body[0].weight.requires_grad_(False)
    net = MainNet(module, precision="bfloat16")
    whole, teacher, x = copy.deepcopy(net.unbind()).eval(), Snapshot(net), torch.randn(5, 1, 8, 8)
    with net.autocast, torch.no_grad():
        expected = whole(x).float()
    assert torch.equal(teacher(x), expected)
    kinds = {name: parameter.dtype for name, parameter in teacher.module.named_parameters()}
    rounded = {"body.4.weight", "head.weight"}  # not what is frozen in the network, nor vectors
    assert {name for name, kind in kinds.items() if kind == torch.bfloat16} == rounded
    assert all(parameter.dtype == torch.float32 for parameter in net.module.parameters())
    assert {p.dtype for p in Snapshot(MainNet(CNN((1, 8, 8), 4))).module.parameters()} == {torch.float32}


@pytest.mark.parametrize("decay", [0.05, 0.5, 0.999])
def test_an_average_is_the_equation_of_its_docstring(decay):
    net, average = MainNet(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), dtype=torch.float64), Average(decay)
    with average.applied(net):  # there is none yet
        assert torch.equal(net.unbind()[0].weight, net.module[0].weight)
    expected = None
    for n in range(25):
        now = torch.cat([torch.full_like(net.theta.detach(), float(n**2)), torch.full((4,), n + 0.5).double()])
        net.assign(now[:-4], now[-4:])
        average.update(net)
        d = min(decay, (1 + n) / (10 + n))
        expected = now if expected is None else d * expected + (1 - d) * now
        assert torch.allclose(torch.cat([average.mean, average.statistics]), expected, rtol=0, atol=1e-9)
    with pytest.raises(KeyError), average.applied(net):
        assert torch.equal(net.theta, average.mean) and torch.equal(net.floats(), average.statistics)
        raise KeyError
    assert torch.equal(torch.cat([net.theta.detach(), net.floats()]), now)


def test_an_average_without_a_decay_is_none_and_a_decay_is_below_1():
    net, average = MainNet(nn.Linear(3, 2)), Average(0.0)
    average.update(net)
    assert average.mean is average.statistics is average.steps is None
    for wrong in (1.0, -0.1):
        with pytest.raises(BadInput, match="average"):
            Average(wrong)


def test_an_average_over_half_a_task_has_the_decay_of_its_length():
    net, average = MainNet(nn.Linear(3, 2), dtype=torch.float64), Average("task")
    assert average.decay == 0.999  # where there are no tasks
    for steps in (1, 100):
        average.begin_task(steps)
        assert average.decay == steps / (steps + 2)
    fixed = Average(0.98)
    fixed.begin_task(100)
    assert fixed.decay == 0.98
    # Long after its beginning half of a task ago has a weight of 1/e.
    average.update(net)
    average.steps += 10_000
    net.assign(torch.zeros_like(net.theta), net.floats())
    average.mean.fill_(1.0)
    for _ in range(50):
        average.update(net)
    assert average.mean[0].item() == pytest.approx(math.exp(-1), abs=0.005)
    with pytest.raises(BadInput, match=r"average 'half' is neither 'task' .* nor a decay such as 0\.999"):
        Average("half")


# Random numbers -------------------------------------------------------------------------------------------------------
def test_random_numbers_from_a_key_go_on_where_they_were_left_and_the_callers_are_untouched():
    draw = lambda: torch.rand(1).item()
    with seeded(7):
        first = [draw() for _ in range(4)]
    assert first == [torch.rand(1, generator=g).item() for g in [torch.Generator().manual_seed(7)] for _ in range(4)]
    torch.manual_seed(1)
    callers = [draw() for _ in range(3)]
    torch.manual_seed(1)
    random = Randomness().start(7)
    with random:
        drawn = [draw(), draw()]
        inside = random.state()
    between = draw()
    with random:
        drawn += [draw()]
    assert drawn == first[:3] and [between, draw(), draw()] == callers
    again = Randomness()
    again.restore(inside)
    with again:
        assert draw() == first[2], "a state is where they are, inside too"
    again.restore(random.state())
    with again:
        assert draw() == first[3]
    with pytest.raises(RuntimeError):
        again.restore({"cpu": torch.zeros(3, dtype=torch.uint8)})


def test_keys_of_several_numbers_are_different_beginnings():
    drawn = []
    for key in ((7,), (7, 0), (7, 1), (8, 0)):
        with seeded(*key):
            drawn.append(torch.rand(1).item())
    assert len(set(drawn)) == 4
    with seeded(3, 1):
        assert torch.initial_seed() == 5712964121383671236, "runs are repeated from their seeds: this is for ever"


def test_steps_draw_from_a_key_alone_or_by_turns():
    def steps():
        for _ in range(3):
            yield torch.rand(1).item()

    with seeded(5):
        expected = list(steps())
    torch.manual_seed(2)
    assert list(seeded(5).alone(steps())) == expected
    by_turns, callers = [], []
    torch.manual_seed(2)
    for value in seeded(5).by_turns(steps()):
        by_turns.append(value)
        callers.append(torch.rand(1).item())
    torch.manual_seed(2)
    assert by_turns == expected and callers == list(steps())


class Generator:
    """A GPU's, as far as it is asked."""

    def __init__(self, of=None):
        self.of = of or torch.Generator()

    def clone_state(self):
        return Generator(self.of.clone_state())

    def manual_seed(self, seed):
        self.of.manual_seed(seed)

    def get_state(self):
        return self.of.get_state()

    def set_state(self, state):
        self.of.set_state(state)

    def graphsafe_get_state(self):
        return Generator(self.of)

    def graphsafe_set_state(self, other):
        self.of = other.of


def test_a_gpus_generator_is_handed_the_keys_state_inside_and_the_callers_after(monkeypatch):
    gpu = Generator()
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "default_generators", [gpu])
    draw = lambda: torch.rand(1, generator=gpu.of).item()
    of = lambda seed: [torch.rand(1, generator=g).item() for g in [torch.Generator().manual_seed(seed)] for _ in "123"]
    gpu.manual_seed(1)
    random = Randomness("cuda").start(7)
    drawn = [draw()]
    with random:
        drawn += [draw(), draw()]
    drawn += [draw()]
    state = random.state()
    with random:
        drawn += [draw()]
    assert drawn == [of(1)[0], *of(7)[:2], of(1)[1], of(7)[2]]
    random.restore(state)
    with random:
        assert draw() == of(7)[2]
    random.restore({"cpu": state["cpu"]})
    with random:
        assert draw() not in of(7), "a state left on a CPU says nothing of it"


# Layouts --------------------------------------------------------------------------------------------------------------
def test_a_vector_is_laid_over_another_tensor_by_tensor_whatever_their_lengths():
    home = {"a": torch.zeros(2, 2), "b": torch.zeros(3), "c": torch.zeros(())}
    layout = Layout([(home, name) for name in home], torch.device("cpu"), torch.float32)
    vector = layout.overlaid([torch.ones(1, 2).double(), torch.ones(5).double(), torch.tensor(4.0).double()])
    images = {"conv": torch.arange(12.0).view(1, 3, 2, 2)}
    assert Layout([(images, "conv")], torch.device("cpu"), torch.float32).vector.tolist() == list(range(12))
    assert vector.tolist() == [1, 1, 0, 0, 1, 1, 1, 4] and vector.dtype == torch.float64 and not vector.requires_grad
    with pytest.raises(ValueError):
        layout.overlaid([torch.ones(1, 2)])


def test_what_was_put_in_a_slot_is_copied_unless_it_is_the_same_memory():
    own = torch.zeros(2)
    write_back([("w", own, own.view(2))])
    write_back([("w", own, torch.tensor([1.0, 2.0], requires_grad=True))])
    assert own.tolist() == [1, 2]
    for wrong, became in ((None, "None"), (torch.zeros(3), r"of shape \[3\]")):
        with pytest.raises(BadInput, match=rf"the network's w was of shape \[2\] and is {became} now; it must keep it"):
            write_back([("w", own, wrong)])


@pytest.mark.parametrize("wanted", [True, False])
def test_slots_are_as_before_unless_what_was_done_to_them_is_wanted(wanted):
    home = {"written": torch.zeros(2), "assigned": torch.zeros(2), "shrunk": torch.zeros(2), "gone": torch.zeros(1)}
    layout = Layout([(home, name) for name in home], torch.device("cpu"), torch.float32)
    layout.bind(layout.unflatten(layout.vector))
    with layout.kept_if(torch.tensor(wanted)):
        home["written"] += 1
        home["assigned"] = home["assigned"] + 2
        home["shrunk"], home["gone"] = torch.ones(1), None
    assert home["written"].tolist() == [1.0 * wanted] * 2 == layout.vector[:2].tolist()
    assert home["assigned"].tolist() == [2.0 * wanted] * 2 and not layout.vector[2:].any()
    assert home["shrunk"].tolist() == [1] and home["gone"] is None, "what cannot be right is said elsewhere"

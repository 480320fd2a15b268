"""What once went wrong, and what may not go wrong again."""

import pytest
import torch
from conftest import learner_of, toy
from torch import nn
from torch.nn import functional as F
from vit import ViT

from everlearn import ER, BadInput, Learner
from everlearn.core.theta import MainNet
from everlearn.weightings import Relation
from everlearn.weightings.bilevel import double_backward, forward_mode, gradient

double = dict(dtype=torch.float64)


# Attention ------------------------------------------------------------------------------------------------------------
class Layered(nn.Module):
    """Rows of pixels as tokens, through one of torch's own attention layers; its fused path is for evaluation mode."""

    def __init__(self, layer: nn.Module, still: bool = False):
        super().__init__()
        self.before, self.layer, self.head = nn.Linear(8, 8), layer, nn.Linear(8, 4)
        if still:
            layer.requires_grad_(False).eval()

    def forward(self, x):
        x = self.before(x[:, 0])
        x = self.layer(x, x, x, need_weights=False)[0] if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)
        return self.head(x.mean(dim=1))


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


ATTENTIVE = {
    "vit": lambda: ViT((1, 8, 8), 4),
    "multihead": lambda: Layered(nn.MultiheadAttention(8, 2, batch_first=True)),
    "encoder": lambda: Layered(encoder()),
    "still encoder": lambda: Layered(encoder(), still=True),
    "still multihead": lambda: Layered(nn.MultiheadAttention(8, 2, batch_first=True), still=True),
}


@pytest.mark.parametrize("name", ATTENTIVE)
def test_attention_has_both_hypergradients_and_they_agree(name):
    net = MainNet(ATTENTIVE[name](), **double)
    net.train()
    x, y, weights = torch.randn(2, 6, 1, 8, 8, **double), torch.randint(4, (2, 6)), torch.rand(6, 1, **double)
    losses = lambda theta: F.cross_entropy(net.at(theta, virtual=True)(x[0])[0], y[0], reduction="none")[:, None]
    outer = lambda theta: F.cross_entropy(net.at(theta, virtual=True)(x[1])[0], y[1])
    stepped = net.theta.detach() - 0.1 * gradient(lambda theta: (weights * losses(theta)).mean(), net.theta)
    one, other = (mode(losses, net.theta, weights, outer, stepped, 0.1) for mode in (forward_mode, double_backward))
    assert (one - other).norm() < 1e-10 * other.norm()
    assert torch.backends.mha.get_fastpath_enabled() and torch.backends.cuda.flash_sdp_enabled(), "as they were"


@pytest.mark.parametrize("hypergradient", ["forward", "double-backward"])
def test_a_vision_transformer_with_dropout_learns_relationally(hypergradient):
    stream, records = toy(tasks=2, each=40), []
    torch.manual_seed(0)
    learner = Learner(
        ER(Relation(hypergradient=hypergradient)),
        ViT(stream.shape, 4, dropout=0.1),
        classes=4,
        pixels=stream.pixels,
        memory=10,
        epochs=6,
        batch=4,
        lr=0.1,
    )
    for task in stream:
        learner.update(task, records.append)
    assert records[-1]["phase"] == "relation" and 0 < records[-1]["weights"]["new"]["mean"] < 1
    assert learner.evaluate(stream).task_il[1] > 75


# Advice ---------------------------------------------------------------------------------------------------------------
class Once(torch.autograd.Function):
    """Twice its input; it has a forward-mode derivative or it has not, and no second one."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return 2 * dy


class Forward(Once):
    @staticmethod
    def jvp(ctx, dx):
        return 2 * dx


class Ending(nn.Module):
    def __init__(self, end):
        super().__init__()
        self.end = end

    def forward(self, x):
        return self.end(x)


@pytest.mark.parametrize(
    ("end", "mode", "words"),
    [
        (Forward.apply, "double-backward", "differentiated twice.*; set hypergradient=forward"),
        (Once.apply, "double-backward", "differentiated twice.*forward would not help: .*Once.*; use other"),
        (Once.apply, "forward", "Once.*no forward-mode.*double-backward would not help: .*twice.*; use other"),
        (lambda z: -torch.cdist(z, torch.eye(4), p=1.0), "forward", "_cdist_forward.*would not help: .*_cdist_backward"),
        (lambda z: -torch.cdist(z, torch.eye(4), p=1.0), "double-backward", "_cdist_backward.*would not help"),
    ],
)
def test_a_network_is_refused_in_the_first_step_with_advice_that_helps(end, mode, words):
    stream = toy()
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), Ending(end))
    learner = learner_of("rer", stream, network=network, options={"hypergradient": mode})
    with pytest.raises(BadInput, match=words):
        next(learner.updating(stream.tasks[0]))

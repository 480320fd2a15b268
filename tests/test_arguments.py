"""What is public takes what its type hints say, and refuses all else in one sentence."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from conftest import toy
from torch import Tensor, nn

import everlearn
from everlearn import BadInput, Batch, Draw, Learner, Pixels, Task, Term, Terms, cross_entropy, distance
from everlearn.arguments import kind_of
from everlearn.errors import LONG, EverlearnError, parsed, passed_on, shown

NESTED = torch.nested.nested_tensor([torch.rand(2), torch.rand(3)])


@pytest.mark.parametrize(
    ("hint", "right", "wrong"),
    [
        (int, [0, True, np.int64(3), 10**5000], [1.0, "1", None, [1], torch.tensor(1)]),
        (float, [1, 0.5, np.float32(1), math.nan], ["1", None, [1.0], 1j, torch.tensor(1.0)]),
        (bool, [True, np.True_], [1, "true", None]),
        (str, ["", "er"], [1, b"er", None, "a\0b", "\ud800", Path("x")]),
        (Path | str, [Path("x"), "x"], [1, None, Path("a\0b"), "\ud800"]),
        (int | None, [1, None], ["1", 1.5]),
        (
            Sequence[float],
            [(), [1, 2.0], range(3), np.ones(2), torch.ones(2)],
            [1.0, "12", ["1"], torch.tensor(1.0), NESTED],
        ),
        (tuple[Tensor, int], [(torch.ones(1), 2), [torch.ones(1), 2]], [(torch.ones(1),), (2, torch.ones(1)), "ab"]),
        (Mapping[str, int], [{}, {"a": 1}], [[], {1: 1}, {"a": "b"}]),
        (Iterable[int], [[1], range(2), iter([1])], [1, "12", torch.tensor(1), NESTED]),
        (Callable[[int, int], int], [max, lambda a, b: a, lambda *a: a], [1, None, lambda: 1, lambda a: a]),
        (Tensor, [torch.ones(2), torch.ones(())], [1.0, [1.0], torch.eye(2).to_sparse(), NESTED]),
        (Tensor, [nn.Parameter(torch.ones(2))], [torch.ones(2, device="meta"), np.ones(2), None]),
        (Literal["a", "b"], ["a"], ["c", 1, ["a"]]),
        (nn.Module, [nn.ReLU()], [nn.ReLU, None]),
    ],
)
def test_a_hint_accepts_its_type_and_nothing_else(hint, right, wrong):
    kind = kind_of(hint)
    assert all(kind.accepts(value) for value in right)
    assert not any(kind.accepts(value) for value in wrong)


@pytest.mark.parametrize("hint", [Any, object, Any | None])
def test_a_hint_that_says_nothing_accepts_anything(hint):
    assert kind_of(hint) is None


class Mute:
    def __repr__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, "3"),
        pytest.param(10**5000, "a number of 16610 bits", id="5,001 digits"),
        (-(2**200), "a number of 201 bits"),
        ("er", "'er'"),
        ("x" * 500, "'" + "x" * (LONG - 2) + "…"),
        (np.float64(0.5), "0.5"),
        (torch.tensor(2), "2"),
        ([1], "[1]"),
        ([1, 2, 3, 4], "a list"),
        ((1, torch.zeros(2)), "a tuple (1, a Tensor)"),
        (Mute(), "a Mute"),
        (Mute, "the class Mute"),
        (torch.eye(2).to_sparse(), "a sparse_coo one"),
        (torch.ones(2, device="meta"), "a meta one"),
        (NESTED, "a nested one"),
    ],
)
def test_any_value_can_be_named_in_a_sentence(value, words):
    assert shown(value) == words


def test_a_document_nested_too_deep_is_a_mistake_like_any_other():
    assert parsed('{"a": [1]}') == {"a": [1]}
    for wrong in ("[" * 100_000, "9" * 5000, "{"):
        with pytest.raises(ValueError):
            parsed(wrong)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: everlearn.Training(epochs=[1]), "epochs must be a whole number, not [1]"),
        (lambda: everlearn.ER().learn("x"), "new must be a Batch, not 'x'"),
        (lambda: everlearn.ER().remember(3, None), "step must be a Step, not 3"),
        (lambda: everlearn.Relation(weights="ab"), "weights must be a list (each a number) or a number, not 'ab'"),
        (lambda: Draw(size="x"), "size must be a whole number or None, not 'x'"),
        (lambda: Term("x", None), "loss must be a dense tensor, not 'x'"),
        (lambda: Batch(NESTED, NESTED), "x must be a dense tensor, not a nested one"),
        (lambda: Terms([]), "at least one loss term"),
        (lambda: Task((torch.ones(2), 3), None, (0,)), "train must be a tuple (a dense tensor, a dense tensor)"),
        (lambda: everlearn.load(5), "name must be a word, not 5"),
        (lambda: everlearn.run("er", out=3), "out must be a path or a word or None, not 3"),
        (lambda: everlearn.register(3), "name must be a word, not 3"),
        (lambda: Pixels.parse({}), "it lacks mean, std, pad, flip, top"),
        (lambda: Pixels(device="toaster"), "device must be a device, such as cpu, not 'toaster'"),
        (lambda: everlearn.Experiment.read({"method": {"name": []}}), "not the document of an experiment"),
        (lambda: everlearn.Experiment.of().with_options("seed", x=1), "unknown part of this experiment 'seed'"),
        (lambda: Learner(nn.Linear(1, 1)).predict(3), "3 cannot be learned from"),
    ],
)
def test_what_is_public_refuses_another_type_in_a_sentence(call, words):
    if "learned from" in words:
        learner = Learner(nn.Linear(4, 2), epochs=1, memory=4).update((torch.rand(4, 4), [0, 1, 0, 1]), progress=False)
        call = lambda: learner.predict(3)
    with pytest.raises(BadInput) as refused:
        call()
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_loss_on_a_batch_that_does_not_fit_is_refused():
    x, y = torch.rand(3, 4), torch.tensor([0, 1, 0])
    seen = Batch(x, y, torch.rand(3, 2))
    for call, words in (
        (lambda: cross_entropy(Batch(x, y)), "has not seen this batch"),
        (lambda: cross_entropy(Batch(x, y, torch.rand(2, 2))), "logits are [B, C] and labels [B]"),
        (lambda: cross_entropy(Batch(x, y, torch.rand(3))), "logits are [B, C] and labels [B]"),
        (lambda: cross_entropy(seen, torch.ones(3, dtype=torch.bool)), "a mask of 2 classes"),
        (lambda: cross_entropy(seen, torch.ones(2)), "a mask of 2 classes"),
        (lambda: distance(seen), "without recorded logits"),
        (lambda: distance(seen._replace(stored={"logits": torch.rand(3, 3)})), "without recorded logits"),
    ):
        with pytest.raises(BadInput) as refused:
            call()
        assert words in str(refused.value)


def test_a_networks_own_error_comes_through_with_a_line_that_says_whose_it_is():
    class Broken(nn.Linear):
        fails = False

        def forward(self, x):
            if self.fails:
                raise LookupError("the owner's words")
            return super().forward(x)

    network = Broken(4, 2)
    learner = Learner(network, classes=range(2), epochs=1, memory=4).update(
        (torch.rand(4, 4), [0, 1, 0, 1]), progress=False
    )
    network.fails = True
    with pytest.raises(LookupError, match="the owner's words") as raised:
        learner.predict(torch.rand(2, 4))
    assert raised.value.__notes__ == ["everlearn: the network's own forward raised this"]
    with pytest.raises(EverlearnError) as ours, passed_on("nobody"):
        raise EverlearnError("ours")
    assert not hasattr(ours.value, "__notes__")


def test_methods_of_ones_own_are_checked_by_their_own_hints():
    class Mine(everlearn.ER):
        def __init__(self, weighting: everlearn.Weighting | None = None, power: float = 2.0, odd: "Nowhere" = None):  # noqa: F821
            super().__init__(weighting)
            self.power = power

    assert Mine(power=3, odd="anything").power == 3
    with pytest.raises(BadInput, match="power must be a number, not 'x'"):
        Mine(power="x")


def test_a_stream_is_tested_on_whole_tasks_alone():
    stream = toy(1)
    learner = Learner(nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), epochs=1, memory=4, inputs=stream.pixels)
    learner.update(stream.tasks[0], progress=False)
    with pytest.raises(BadInput, match="a list of tasks; this one has 3"):
        learner.evaluate([3])

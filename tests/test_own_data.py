"""Data, networks, transforms and folders of one's own: what is welcome, and what is refused in a sentence."""

import copy
import enum
import errno
import functools
import json
import os
import pickle
import re
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from test_growth import same
from test_learner import refused
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import everlearn
from everlearn import Learner, Pixels
from everlearn.data import Inputs
from everlearn.data.inputs import described
from everlearn.errors import BadInput, EverlearnError, Notice
from everlearn.learner import saved

X = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3


def network(outputs: int = 4, width: int = 6) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, outputs))


def learner_of(method="er", own: nn.Module | None = None, **settings) -> Learner:
    return Learner(own or network(), method, **dict(memory=8, epochs=2, batch=4, lr=0.05) | settings)


def taught(method="er", own: nn.Module | None = None, **settings) -> Learner:
    return learner_of(method, own, **settings).update(X, Y)


class Pairs(Dataset):
    def __init__(self, *pairs):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, n):
        return self.pairs[n]


class Passing(IterableDataset):
    """It knows its length, as some do, and has no items."""

    def __len__(self):
        return len(X)

    def __iter__(self):
        return zip(X, Y.tolist())


# Data -----------------------------------------------------------------------------------------------------------------
FORMS = {
    "tensors": lambda: (X, Y),
    "arrays": lambda: (X.numpy(), Y.numpy()),
    "lists": lambda: (X.tolist(), Y.tolist()),
    "labels as floats": lambda: (X.double().numpy(), Y.double().numpy()),
    "one tensor, labels in a list": lambda: [X, Y.tolist()],
    "a TensorDataset": lambda: TensorDataset(X, Y),
    "a Subset": lambda: Subset(TensorDataset(X, Y), range(12)),
    "a Dataset": lambda: Pairs(*zip(X.numpy(), Y.numpy())),
    "an IterableDataset": Passing,
    "a list of pairs": lambda: list(zip(X, Y.tolist())),
    "a generator": lambda: ((x, y) for x, y in zip(X, Y)),
    "a DataLoader": lambda: DataLoader(TensorDataset(X, Y), batch_size=5),
    "a DataLoader without tensors": lambda: DataLoader(
        list(zip(X, Y)), batch_size=5, collate_fn=lambda batch: tuple(map(list, zip(*batch)))
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_data_in_any_form_are_the_same_task(form):
    whole, other = taught(), learner_of().update(FORMS[form]())
    assert same(whole.state(), other.state())
    assert other.score(FORMS[form]()) == whole.score(X, Y)


def test_images_are_stored_channels_first_however_they_come():
    from PIL import Image

    random = np.random.default_rng(0)
    images = [Image.fromarray(random.integers(0, 256, (5, 7, 3), dtype=np.uint8)) for _ in range(6)]
    labels = ["a", "b"] * 3
    make = lambda: learner_of(own=nn.Sequential(nn.Flatten(), nn.Linear(105, 2)))
    one = make().update(Pairs(*zip(images, labels)))
    assert one.memory.x.shape[1:] == (3, 5, 7) and isinstance(one.inputs, Pixels)
    loader = DataLoader(list(zip(images, labels)), batch_size=4, collate_fn=lambda batch: tuple(zip(*batch)))
    torch.manual_seed(0)
    for other in (make().update(images, labels), make().update((images, labels)), make().update(loader)):
        assert torch.equal(one.memory.x, other.memory.x)
    assert one.predict(images).tolist() == one.predict(Pairs(*zip(images, labels))).tolist()
    grey = [image.convert("L") for image in images]
    assert learner_of(own=nn.Sequential(nn.Flatten(), nn.Linear(35, 2))).update(grey, labels).memory.x.shape[1:] == (
        1,
        5,
        7,
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: TensorDataset(X[:0], Y[:0]), "there is no sample among the data"),
        (lambda: (X[:0], Y[:0]), "there is no sample among the data"),
        (lambda: DataLoader(TensorDataset(X[:0], Y[:0])), "there is no sample among the data"),
        (list, "there is no sample among the data"),
        (lambda: ([], []), "there is no sample among the data"),
        (lambda: Pairs((X[0], 0), (X[1][:3], 1)), "sample 1 is float32 of shape [3], and the first one float32 of"),
        (lambda: Pairs((X[0], 0), (X[1].long(), 1)), "sample 1 is int64 of shape [6]"),
        (lambda: ([[1.0, 2.0], [3.0]], [0, 1]), "sample 1 is float64 of shape [1]"),
        (lambda: Pairs((X[0], [1, 2])), "a label that is [1, 2] could not be saved; give a word"),
        (lambda: Pairs((X[0], {"a": 1})), "a label that is a dict could not be saved; give a word"),
        (lambda: Pairs((X[0], 0), (X[1], None)), "sample 1 has no label: it is None"),
        (lambda: Pairs((X[0], float("nan"))), "sample 0 has no label: it is nan"),
        (lambda: (X, np.where(Y == 1, np.nan, Y)), "sample 1 has no label: it is nan"),
        (lambda: (X, Y + 0.5), "continuous, such as 0.5"),
        (lambda: (X, Y[:-1]), "11 labels for 12 samples"),
        (lambda: (X, nn.functional.one_hot(Y)), "labels of shape [12, 3]; give one for each sample"),
        (lambda: Pairs((X[0], torch.tensor([0, 1]))), "a label of shape [2]"),
        (lambda: Pairs((X[0], 0, 1)), "a sample must be a pair (input, label), not a tuple of 3"),
        (lambda: Pairs({"x": X[0]}), "a sample must be a pair (input, label), not a dict"),
        (lambda: (np.array(["a", "b"]), [0, 1]), "they must be numbers"),
        (lambda: 7, "a int cannot be learned from; give a Dataset, a DataLoader"),
        (lambda: X, "there are no labels; give them beside the samples"),
        (lambda: X.numpy(), "there are no labels"),
        (lambda: (X.masked_fill(X > 1, torch.inf), Y), "NaN or inf"),
        (lambda: (X.long(), Y), "the network cannot take int64 samples of shape (6,)"),
        (lambda: (X[:, :5], Y), "the network cannot take float32 samples of shape (5,)"),
    ],
)
def test_data_that_cannot_be_learned_from_are_refused_and_change_nothing(data, words):
    learner = learner_of()
    before = learner.state()
    with refused(words):
        learner.update(data())
    assert same(before, learner.state()) and learner.inputs is None
    learner.update(X, Y)
    assert same(learner.state(), taught().state())


def test_samples_of_another_type_or_shape_than_before_are_refused():
    learner = taught()
    before = learner.state()
    bytes_ = (X.to(torch.uint8), "torch.uint8 samples of shape (6,) after torch.float32")
    for x, words in (bytes_, (X[:, :3], "of shape (3,)")):
        for ask in (
            lambda x=x: learner.update(x, Y + 3),
            lambda x=x: learner.predict(x),
            lambda x=x: learner.observe(x, Y),
        ):
            with refused(words):
                ask()
    assert same(before, learner.state())
    learner.update(X.double(), Y)  # floats are brought to the network's precision, and so are whole numbers after them
    assert torch.equal(learner.predict_proba(X.long()), learner.predict_proba(X.long().float()))
    learner.update(X.long(), Y)


def test_one_class_will_do_at_the_start():
    learner = learner_of().update(X, Y * 0)
    assert learner.predict(X).tolist() == [0] * 12 and learner.predict_proba(X).tolist() == [[1.0]] * 12


def test_labels_may_be_words_numbers_truths_and_tuples():
    for labels in (["b", "a", "c"], [30, 10, 20], [True, False, True], [("a", 1), ("b", 2), ("a", 2)], ["a", 1, "b"]):
        learner = learner_of(epochs=40).update(X, labels * 4)
        names = learner.classes_.tolist()
        assert sorted(map(str, names)) == sorted(map(str, set(labels)))
        right = [one == other for one, other in zip(learner.predict(X).tolist(), labels * 4)]
        assert learner.score(X, labels * 4) == sum(right) / 12
    assert learner_of().update(X, ["b", "a", "c"] * 4).classes_.tolist() == ["a", "b", "c"], "sorted, if they can be"


def test_a_label_never_met_counts_as_wrong():
    learner = taught(epochs=40)
    assert learner.score(X, Y) > 0.5 and learner.score(X, Y + 7) == 0 and learner.score(X, ["never"] * 12) == 0
    half = torch.where(torch.arange(12) < 6, Y, Y + 7)
    assert learner.score(X, half) == float((learner.predict(X) == half).double().mean())
    assert learner.classes_.tolist() == [0, 1, 2], "and it gets no output"


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "score", "export"])
def test_what_has_been_taught_nothing_answers_nothing(ask, tmp_path):
    given = {"score": (X, Y), "export": (tmp_path / "x.pt",)}.get(ask, (X,))
    with refused("; teach it first: learner.update(data)"):
        getattr(learner_of(), ask)(*given)


def test_more_classes_than_announced_are_refused_and_get_no_outputs():
    learner = learner_of(classes=2).update(X[Y < 2], Y[Y < 2])
    before = learner.state()
    for teach in (learner.update, learner.observe):
        with refused("would make 3 classes, and the learner was told classes=2"):
            teach(X, Y)
    assert same(before, learner.state()) and learner.net.module[2].out_features == 2


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("lwf", "LwF keeps what it needs at the end of a task"),
        ("icarl", "ICaRL keeps what it needs at the end of a task"),
        ("agem", "AGEM keeps what it needs at the end of a task"),
        ("joint", "Joint keeps"),
        ("er+consolidate", "Consolidate has two phases per task"),
    ],
)
def test_a_stream_is_refused_by_what_lives_on_tasks(method, words):
    learner = learner_of(method)
    with refused(words):
        learner.observe(X, Y)
    assert not learner.classes and not learner.prequential.samples


# Networks -------------------------------------------------------------------------------------------------------------
def changed(change) -> nn.Module:
    made = network()
    change(made)
    return made


def tied() -> nn.Module:
    made = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    made[1].weight = made[0].weight
    return made


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 6), nn.Flatten()),
            "the network's answer is not a plain linear layer's",
        ),
        (lambda: nn.Sequential(nn.Linear(6, 8), nn.Unflatten(1, (4, 2)), nn.AvgPool1d(2), nn.Flatten()), "not a plain"),
        (lambda: nn.Sequential(network(), nn.BatchNorm1d(4)), "the network cannot have 3 outputs instead"),
        (lambda: changed(lambda net: net[2].requires_grad_(False)), "the network's last layer, 2, is frozen"),
        (lambda: changed(lambda net: net[2].bias.requires_grad_(False)), "the network's last layer, 2, is frozen"),
        (lambda: changed(lambda net: nn.utils.parametrizations.weight_norm(net[2])), "not a plain linear layer's"),
        (lambda: changed(lambda net: nn.utils.parametrizations.orthogonal(net[2])), "not a plain linear layer's"),
        (lambda: changed(lambda net: nn.utils.spectral_norm(net[2])), "not a plain linear layer's"),
        (tied, "the network's last layer, 1, shares its weights with another"),
    ],
)
def test_a_head_that_cannot_grow_is_refused_and_learns_what_was_listed(make, words):
    own = make()
    before = {name: tensor.clone() for name, tensor in own.state_dict().items()}
    learner = learner_of(own=own)
    with refused(words) as told:
        learner.update(X, Y)
    assert "give `classes`, a list of the labels of all classes there will be" in str(told.value)
    after = own.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    outputs = own(X).shape[1]
    listed = learner_of(own=own, classes=range(outputs)).update(X, Y)
    assert listed.classes == outputs and listed.tasks == 1


def test_a_head_that_can_grow_may_be_anywhere_and_have_no_bias():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.first, self.head = nn.Linear(8, 2, bias=False), nn.Linear(6, 8), ["no layer"]

        def forward(self, x):
            return self.last(self.first(x).relu()).log_softmax(dim=1)

    for own in (Odd(), nn.Linear(6, 1), nn.DataParallel(network())):
        learner = learner_of(own=own)
        for first in (0, 3):
            learner.update(X, Y + first)
        assert learner.classes == 6 and own(X).shape[1] == 6


# Saved and loaded -----------------------------------------------------------------------------------------------------
def scaled(x):
    return (lambda v: v * FACTOR)(x)


FACTOR = 2.0


class Scaled:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x * torch.as_tensor(self.by)

    def twice(self, x):
        return self(self(x))


class Layer(nn.Module):
    def __init__(self, by: float, shift: float = 0.0):
        super().__init__()
        self.register_buffer("by", torch.tensor(by))
        self.shift = shift

    def forward(self, x):
        return x * self.by + self.shift


def closure(by):
    return lambda x: x * torch.as_tensor(by)


def typed(text: str):
    """A function typed at a prompt, of which there is no text."""
    names = {"torch": torch}
    exec(text, names)
    return names["own"]


class Apart(Scaled):
    """What differs from Scaled is what it inherits from."""


INPUTS = {
    "a function": (lambda: scaled, lambda: torch.tanh),
    "a lambda": (lambda: lambda x: x / 2, lambda: lambda x: x / 3),
    "two lambdas of a line": (lambda: [lambda x: x, lambda x: -x][0], lambda: [lambda x: x, lambda x: -x][1]),
    "a closure": (lambda: closure(2.0), lambda: closure(3.0)),
    "a closure over a tensor": (lambda: closure(torch.tensor(2.0)), lambda: closure(torch.tensor(3.0))),
    "a built-in function": (lambda: torch.tanh, lambda: torch.sin),
    "a partial": (lambda: functools.partial(torch.mul, other=2), lambda: functools.partial(torch.mul, other=3)),
    "an object": (lambda: Scaled(2.0), lambda: Scaled(3.0)),
    "an object with a tensor": (lambda: Scaled(torch.ones(6)), lambda: Scaled(torch.ones(6) * 2)),
    "an object with a list": (lambda: Scaled([2.0] * 6), lambda: Scaled([2.0] * 5 + [3.0])),
    "a method": (lambda: Scaled(2.0).twice, lambda: Scaled(2.0).__call__),
    "a method of another": (lambda: Scaled(2.0).twice, lambda: Scaled(3.0).twice),
    "a module": (lambda: Layer(2.0), lambda: Layer(3.0)),
    "a module's plain value": (lambda: Layer(2.0), lambda: Layer(2.0, shift=1.0)),
    "a module in another": (lambda: nn.Sequential(Layer(2.0)), lambda: nn.Sequential(Layer(2.0, shift=1.0))),
    "pixels": (lambda: Inputs(Pixels(top=1)), lambda: Inputs(Pixels(top=2))),
    "an augmentation": (lambda: Inputs(torch.tanh, closure(2.0)), lambda: Inputs(torch.tanh, closure(3.0))),
    "no augmentation": (lambda: Inputs(torch.tanh, closure(2.0)), lambda: Inputs(torch.tanh)),
    "typed at a prompt": (
        lambda: typed("def own(x):\n return (lambda v: v * 2.0)(x)"),
        lambda: typed("def own(x):\n return (lambda v: v * 3.0)(x)"),
    ),
    "a class": (lambda: Scaled(2.0), lambda: Apart(2.0)),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_samples_are_made_the_networks_input_as_they_were(kind, tmp_path):
    same_one, other = INPUTS[kind]
    images = kind == "pixels"
    own = nn.Sequential(nn.Flatten(), network()) if images else network()
    x = X.view(12, 1, 2, 3).abs() if images else X
    learner = learner_of(own=own, inputs=same_one()).update(x, Y)
    learner.save(tmp_path)
    again = Learner.load(tmp_path, own, inputs=same_one())
    assert same(learner.state(), again.state())
    with refused("made the network's input in another way than `inputs` says now"):
        Learner.load(tmp_path, own, inputs=other())
    with refused("taught with inputs of its own; give them again"):
        Learner.load(tmp_path, own)
    assert Learner.load(tmp_path, own, inputs=other(), changed_inputs=True).tasks == 1


def test_a_function_is_known_by_the_globals_it_reads(monkeypatch):
    before = described(scaled)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert described(scaled) != before
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert described(scaled) == before


def test_a_function_whose_text_is_gone_is_known_by_its_code():
    one, other = (typed(f"def own(x):\n return x * {by}") for by in (2, 3))
    assert described(one)[1] == "" and described(one) != described(other)
    assert described(one) == described(typed("def own(x):\n\n return x * 2")), "whatever it looks like"


def test_pixels_are_found_again_or_refused_if_others_are_given(tmp_path):
    x, own = (X.abs() * 50).to(torch.uint8).view(12, 1, 2, 3), nn.Sequential(nn.Flatten(), network())
    learner = learner_of(own=own, inputs=Pixels((0.5,), (0.25,), pad=1)).update(x, Y)
    learner.save(tmp_path)
    assert Learner.load(tmp_path, own).inputs.document() == Pixels((0.5,), (0.25,), pad=1).document()
    assert Learner.load(tmp_path, own, inputs=Pixels((0.5,), (0.25,), pad=1)).tasks == 1
    for others in (Pixels((0.5,), (0.25,)), Pixels((0.4,), (0.25,), pad=1), torch.tanh):
        with refused("in another way than `inputs` says now"):
            Learner.load(tmp_path, own, inputs=others)
    plain = learner_of(own=own).update(x, Y)
    plain.save(tmp_path)
    assert Learner.load(tmp_path, own).inputs.document() == Pixels().document(), "which it chose itself"


class Named(everlearn.ER):
    """A method one can find."""


def test_a_method_is_found_again_or_given_again(tmp_path):
    class Nameless(everlearn.ER):
        pass

    taught(Named()).save(tmp_path / "named")
    assert type(Learner.load(tmp_path / "named", network()).method) is Named
    learner = taught(Nameless())
    learner.save(tmp_path / "nameless")
    with refused("its method could not be saved (test_a_method_is_found_again_or_given_again.<locals>.Nameless"):
        Learner.load(tmp_path / "nameless", network())
    assert same(Learner.load(tmp_path / "nameless", network(), method=Nameless()).state(), learner.state())
    with refused("this state is of Nameless, another method than ER"):
        Learner.load(tmp_path / "nameless", network(), method="er")


def test_a_folder_that_holds_no_learner_is_refused(tmp_path):
    from safetensors.torch import save

    taught().save(tmp_path)
    file = tmp_path / saved.LEARNER
    whole = file.read_bytes()
    spot = whole.index(b"0.05")
    newer = taught()
    for content, words in (
        (whole[:-100], "cannot be read"),
        (whole[:4], "cannot be read"),
        (b"", "cannot be read"),
        (b"PK" + bytes(2000), "cannot be read"),
        (whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:], "is damaged"),
        (whole[:spot] + b"0.06" + whole[spot + 4 :], "is damaged"),
        (save({"x": X}), "is not a learner saved by everlearn"),
        (save({"x": X}, {"everlearn": "[1]"}), "is not a learner saved by everlearn"),
        (
            saved.packed(newer.state(), saved.document(newer) | {"format": saved.FORMAT + 1, "everlearn": "99.0"}),
            "was written by everlearn 99.0, which is newer than",
        ),
    ):
        file.write_bytes(content)
        with refused(words):
            Learner.load(tmp_path, network())
    file.write_bytes(whole)
    assert Learner.load(tmp_path, network()).tasks == 1
    with refused("learner.save(folder) makes one"):
        Learner.load(tmp_path / "none", network())
    with refused("cannot be read"):
        Learner.load(file, network())
    with refused("is a file; give the name of a folder"):
        taught().save(file)
    with refused("holds weights and no code; give a network like it had"):
        Learner.load(tmp_path)
    for other in (nn.Linear(6, 4), network(width=7), nn.Sequential(nn.Linear(6, 16), nn.Linear(16, 4))):
        with refused("this state is of another network: what was saved has "):
            Learner.load(tmp_path, other)
    with refused("lr is what the learner was saved with"):
        Learner.load(tmp_path, network(), lr=0.1)


def test_a_save_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    learner = taught()
    learner.save(tmp_path)
    before = (tmp_path / saved.LEARNER).read_bytes()
    learner.update(X, Y)
    monkeypatch.setattr(saved.os, "replace", lambda *given: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        learner.save(tmp_path)
    assert (tmp_path / saved.LEARNER).read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_labels_that_could_not_be_saved_are_refused_at_once(tmp_path):
    class Colour(enum.Enum):
        RED, BLUE = 1, 2

    class Word(enum.StrEnum):
        RED, BLUE = "red", "blue"

    day = np.array(["2020-01-01", "2020-01-02"] * 6, dtype="datetime64[ns]")
    for labels, words in (
        ([Colour.RED, Colour.BLUE] * 6, "a label that is a Colour could not be saved; give a word, such as str(label)"),
        ([("a", Colour.RED)] * 12, "a label that is a Colour could not be saved"),
        (day, "could not be saved"),
        (day.astype("datetime64[us]"), "could not be saved"),
        ([10**30] * 12, "has more than 64 bits; give it as a word"),
    ):
        with refused(words):
            learner_of().update(X, labels)
    learner_of().update(X, [Word.RED, Word.BLUE] * 6).save(tmp_path)
    assert Learner.load(tmp_path, network()).classes_.tolist() == ["blue", "red"], "one that is a word is one"


def test_labels_are_found_again_as_they_were(tmp_path):
    for labels in (["b", "a", "ç"], [30, -10, 2**40], [True, False, True], [("a", 1), ("b", ("c", 2)), ("a", 2)]):
        learner = learner_of().update(X, labels * 4)
        learner.save(tmp_path)
        again = Learner.load(tmp_path, network())
        names = again.labels.names
        assert names == learner.labels.names and [*map(type, names)] == [*map(type, learner.labels.names)]
        assert (again.predict(X) == learner.predict(X)).all()


# While it learns ------------------------------------------------------------------------------------------------------
def test_an_update_inside_a_callback_is_refused_and_the_task_goes_on():
    learner, said = learner_of(), Counter()
    inside = {
        "update": lambda learner: learner.update(X, Y),
        "observe": lambda learner: learner.observe(X, Y),
        "forget": lambda learner: learner.forget(lambda x, label: True),
    }
    for name, call in inside.items():
        with pytest.warns(
            UserWarning, match="a callback failed, and the learner continues: BadInput.*under way|epochs into"
        ):
            learner.update(X, Y, on_epoch=lambda learner, record, call=call: call(learner))
        said[name] += 1
    plain = learner_of()
    for _ in inside:
        plain.update(X, Y)
    assert learner.tasks == len(said) == 3 and same(plain.state(), learner.state())


def test_callbacks_may_ask_save_and_fail_and_change_nothing(tmp_path):
    seen = []

    def on_epoch(learner, record):
        learner.predict(X), learner.score(X, Y), learner.save(tmp_path), learner.kept()
        seen.append((record["event"], record["task"], record["epoch"], set(record["loss"])))
        raise RuntimeError("no connection")

    def on_task(learner, record):
        seen.append(record)
        raise KeyError("x")

    learner = learner_of("der++")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        learner.update(X, Y, on_epoch=on_epoch, on_task=on_task)
    assert [str(one.message) for one in told] == [
        "a callback failed, and the learner continues: RuntimeError('no connection')",
        "a callback failed, and the learner continues: RuntimeError('no connection')",
        "a callback failed, and the learner continues: KeyError('x')",
    ]
    names = {"new", "dark", "memory"}
    assert seen == [
        ("epoch", 0, 0, names),
        ("epoch", 0, 1, names),
        {"event": "task", "task": 0, "classes": [0, 1, 2], "epochs": 2},
    ]
    assert same(learner.state(), taught("der++").state())
    again = Learner.load(tmp_path, network())
    assert again.epoch == 2 and same(again.update(X, Y).state(), learner.state()), "saved in the middle of the task"


def test_a_task_that_is_stopped_is_learned_and_the_next_one_may_come():
    learner, short = learner_of("si", epochs=5), learner_of("si", epochs=2)
    learner.update(X, Y, on_epoch=lambda learner, record: record["epoch"] == 1 and learner.stop())
    short.update(X, Y)
    assert learner.tasks == 1 and learner.epoch == 0 and same(learner.state(), short.state())
    learner.stop()  # of no task: it has no effect
    told = []
    learner.update(X, Y + 1, on_epoch=lambda learner, record: told.append(record["epoch"]))
    assert told == [0, 1, 2, 3, 4] and learner.classes == 4


def test_a_share_is_held_out_and_tested_on_and_never_learned():
    told = []
    learner = learner_of(memory=100, epochs=3)
    learner.update(X, Y, validation=0.25, on_epoch=lambda learner, record: told.append(record["validation"]))
    assert len(told) == 3 and all(round(3 * value, 9) in (0, 1, 2, 3) for value in told)
    held = {tuple(x) for x in learner.memory.held()[0].tolist()}
    assert len(held) == 9 and held < {tuple(x) for x in X.tolist()}
    again = learner_of(memory=100, epochs=3).update(X, Y, validation=0.25)
    assert same(again.state(), learner.state()), "the same share every time"
    for share in (0, 1, 1.0, 0.01, 0.99, -0.5, float("nan")):
        with refused(f"validation {share} of 12 samples leaves none to learn from or none to test on"):
            learner_of().update(X, Y, validation=share)


def test_other_data_can_be_tested_on_with_classes_never_met_counted_as_wrong():
    told = []
    learner = learner_of(epochs=3)
    keep = lambda learner, record: told.append((record["validation"], learner.score(X, Y + 1)))
    learner.update(X, Y, validation=TensorDataset(X, Y + 1), on_epoch=keep)
    assert all(one == other for one, other in told) and learner.classes == 3
    assert same(learner.state(), taught(epochs=3).state()), "and nothing is learned from them"
    with refused("there is no sample among the"):
        learner.update(X, Y, validation=(X[:0], Y[:0]))
    with refused("a learner takes one kind"):
        learner.update(X, Y, validation=(X[:, :2], Y))


def test_what_was_hardly_meant_is_said_once():
    pixels = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    images = torch.rand(12, 1, 8, 8)
    for own, x, words in (
        (nn.Sequential(network(3), nn.Softmax(1)), X, "the network answers with probabilities"),
        (pixels, images * 255, "images are floats up to 25"),
    ):
        learner = learner_of(own=own, classes=range(3))
        with pytest.warns(everlearn.errors.Notice, match=words):
            learner.update(x, Y)
        with warnings.catch_warnings(action="error"):
            learner.update(x, Y)
    with warnings.catch_warnings(action="error"):
        learner_of(own=pixels).update(images, Y)
        learner_of().update(X, Y)


def test_what_can_be_mended_is_said_with_the_mistake():
    images = torch.zeros(12, 8, 8, 3, dtype=torch.uint8)
    with refused("channels first: give x.permute(0, 3, 1, 2)"):
        learner_of(own=nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(72, 3))).update(images, Y)
    with refused("a sample alone is a batch of one: x[None]"):
        taught().predict(X[0])
    with refused("unknown setting of a Learner 'learning_rate'; did you mean 'lr'?"):
        learner_of(learning_rate=0.1)


def test_patience_ends_a_task_when_it_gets_no_better():
    told, ended = [], []
    learner = learner_of(epochs=50)
    learner.update(
        X,
        Y,
        validation=(X, Y + 7),  # never right
        patience=3,
        on_epoch=lambda learner, record: told.append(record["validation"]),
        on_task=lambda learner, record: ended.append(record),
    )
    assert told == [0.0] * 4 and learner.tasks == 1, "the first is the best so far"
    assert ended == [{"event": "task", "task": 0, "classes": [0, 1, 2], "epochs": 4, "validation": 0.0}]
    told.clear()
    learner.update(X, Y, validation=(X, Y), patience=50, on_epoch=lambda learner, record: told.append(record))
    assert len(told) == 50
    with refused("patience needs data to test on"):
        learner.update(X, Y, patience=3)
    for wrong in (0, -1, 1.5):
        with refused("patience "):
            learner.update(X, Y, validation=0.5, patience=wrong)


@pytest.mark.parametrize("average", [0.0, 0.5])
@pytest.mark.parametrize("ends", ["by patience", "by itself", "by stop"])
def test_patience_keeps_the_network_of_the_best_epoch(ends, average):
    """The learning rate is far too large: the accuracy goes up and down, the best epoch is not the last."""
    told, networks, patience = [], [], 3 if ends == "by patience" else 50

    def note(learner, record):
        told.append(record["validation"])
        networks.append((learner.net.theta.detach().clone(), learner.net.floats()))
        if ends == "by stop" and record["epoch"] == 6:
            learner.stop()

    learner = learner_of(epochs=20, lr=3.0, momentum=0.9, average=average)
    learner.update(X, Y, validation=(X, Y), patience=patience, on_epoch=note)
    best = told.index(max(told))
    assert best < len(told) - 1, "or nothing is shown"
    torch.testing.assert_close((learner.net.theta.detach(), learner.net.floats()), networks[best], rtol=0, atol=0)
    assert learner.score(X, Y) == max(told)


def test_patience_says_that_it_does_not_see_old_classes():
    learner = learner_of(epochs=1, memory=6).update(X, Y, validation=(X, Y), patience=1)
    with pytest.warns(everlearn.errors.Notice, match="lack some classes of the memory"):
        learner.update(X, ["new"] * len(X), validation=0.5, patience=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.update(X, ["newer"] * len(X), validation=0.5)
        both = torch.cat([X, X, X]), [*Y.tolist(), *["new"] * len(X), *["newer"] * len(X)]
        learner.update(X, ["newer"] * len(X), validation=both, patience=1)


class Interrupted(nn.Module):
    """Ctrl-C in the middle of a step."""

    at = None

    def forward(self, x):
        if self.training and self.at is not None:
            self.at -= 1
            if self.at < 0:
                raise KeyboardInterrupt
        return x


@pytest.mark.parametrize("teach", ["update", "observe"])
def test_what_was_interrupted_says_so_and_goes_on_from_a_state(teach):
    own = nn.Sequential(nn.Linear(6, 8), Interrupted(), nn.Linear(8, 2))
    learner = learner_of(own=own).update(X, Y)
    before = learner.state()
    own[1].at = 3 if teach == "update" else 0
    with pytest.raises(KeyboardInterrupt):
        getattr(learner, teach)(X, Y + 1)
    own[1].at = None
    assert all(isinstance(weight, nn.Parameter) for weight in own.parameters()) and len(learner.predict(X)) == 12
    calls = [lambda: learner.update(X, Y), lambda: learner.observe(X, Y), lambda: learner.forget(lambda x, label: True)]
    for call in calls:
        with refused("the last task was broken off in the middle of a step; restore a state from before it, load what"):
            call()
    if teach == "update":
        with refused("such as by update(…, on_epoch=lambda learner, record: learner.save(folder))"):
            learner.save("nowhere")
    learner.restore(before)
    assert same(before, learner.state())
    getattr(learner, teach)(X, Y + 1)
    whole = learner_of(own=nn.Sequential(nn.Linear(6, 8), Interrupted(), nn.Linear(8, 2)))
    whole.restore(before)
    getattr(whole, teach)(X, Y + 1)
    assert same(whole.state(), learner.state())


def test_interrupted_in_a_step_it_goes_on_from_what_a_callback_saved(tmp_path):
    make = lambda: nn.Sequential(nn.Linear(6, 8), Interrupted(), nn.Linear(8, 2))
    own, whole = make(), make()
    whole.load_state_dict(own.state_dict())
    own[1].at = 13
    with pytest.raises(KeyboardInterrupt):
        learner_of(own=own, epochs=4).update(X, Y, on_epoch=lambda learner, record: learner.save(tmp_path))
    again = Learner.load(tmp_path, make())
    assert 0 < again.epoch < 4
    assert same(again.update(X, Y).state(), learner_of(own=whole, epochs=4).update(X, Y).state())


def test_interrupted_between_two_epochs_it_can_be_saved_and_gone_on_with(tmp_path):
    def stop(learner, record):
        if record["epoch"] == 1:
            raise KeyboardInterrupt

    learner = learner_of(epochs=4)
    with pytest.raises(KeyboardInterrupt):
        learner.update(X, Y, on_epoch=stop)
    learner.save(tmp_path)
    whole = taught(epochs=4).state()
    for again in (learner, Learner.load(tmp_path, network())):
        with refused("2 of 4 epochs into another task; give it that one first, exactly as it was (what is shuffled"):
            again.update(X, Y + 1)
        assert again.classes_.tolist() == [0, 1, 2]
        assert same(again.update(X, Y).state(), whole)


@pytest.mark.parametrize("steps", [0, 2, 5])
def test_interrupted_between_two_steps_it_can_be_saved_and_gone_on_with(steps, tmp_path, monkeypatch):
    left = [steps]

    def step(display):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    learner = learner_of(epochs=4)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as held:  # the traceback, as at a prompt
        patch.setattr("everlearn.learner.watching.Display.step", step)
        learner.update(X, Y)
    assert held.tb and learner.classes_.tolist() == [0, 1, 2]
    learner.save(tmp_path)
    whole = taught(epochs=4).state()
    for again in (learner, Learner.load(tmp_path, network())):
        assert same(again.update(X, Y).state(), whole)


def test_interrupted_before_its_first_step_nothing_has_come(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    learner = learner_of(epochs=4)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("everlearn.weightings.Fixed.begin_epoch", interrupted)
        learner.update(X[:5], ["other"] * 5)
    assert not learner.classes and same(learner.update(X, Y).state(), taught(epochs=4).state())


def test_a_mini_batch_too_small_for_the_network_is_refused_and_the_next_one_may_come():
    make = lambda: learner_of(own=nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))
    torch.manual_seed(1)
    learner = make()
    learner.observe(X[:4], Y[:4])
    before = learner.state()
    with refused("a batch of one is too small for this network"):
        learner.observe(X[:1], Y[:1] + 5)
    assert same(before, learner.state())
    assert learner.observe(X[4:8], Y[4:8]) >= 0 and learner.prequential.samples == 8


def test_a_progress_bar_is_shown_if_it_is_wanted(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if it were a terminal
    learner_of().update(X, Y, progress=True)
    shown = capsys.readouterr()
    assert "task 1" in shown.err and not shown.out
    learner_of().update(X, Y, progress=False)
    assert not capsys.readouterr().err


def test_a_state_is_plain_tensors_and_words(tmp_path):
    learner = taught("rder")
    learner.save(tmp_path)
    tensors, about, _ = saved.read(tmp_path / saved.LEARNER)
    assert same(tensors, learner.state()) and json.dumps(about)
    assert about["method"]["name"] == "der++" and about["weighting"]["name"] == "relation"


def test_without_a_terminal_progress_is_a_line_per_epoch(capsys):
    learner_of().update(X, Y, progress=True, validation=0.2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == learner_of().epochs
    assert all(re.match(r"task 1, epoch \d, loss .*, validation ", line) for line in lines)


def test_a_task_is_scored_by_its_test_half():
    x, y = torch.as_tensor(X), torch.arange(len(X)) % 2
    learner = learner_of()
    learner.update(everlearn.Task((x, y), classes=(0, 1)))
    tested = everlearn.Task((x, y), (x, 1 - y), (0, 1))
    assert learner.score(tested) == pytest.approx(1 - learner.score(x, y))


@pytest.mark.parametrize("patience", [None, 1])
def test_validation_data_of_classes_never_met_are_said_to_be_that(patience):
    with pytest.warns(everlearn.errors.Notice, match="met none of the classes of the validation data"):
        learner_of(epochs=1).update(X, Y, validation=(X, Y + 100), patience=patience)


# Measured -------------------------------------------------------------------------------------------------------------
def test_what_was_forgotten_is_measured_on_data_with_words_for_labels():
    words = [f"class {label}" for label in Y.tolist()]
    weeks = [(X[Y.eq(c)], [words[c]] * 4) for c in range(3)]
    numbers = [everlearn.Task((X[Y.eq(c)], Y[Y.eq(c)]), (X[Y.eq(c)], Y[Y.eq(c)]), (c,)) for c in range(3)]
    learner, plain = learner_of(epochs=20), learner_of(epochs=20)
    for week, task in zip(weeks[:2], numbers):
        learner.update(*week)
        plain.update(task)
    assert learner.evaluate(weeks[:2]) == plain.evaluate(numbers[:2])
    accuracies, taken = learner.examine(weeks)
    assert accuracies.class_il[2] == accuracies.task_il[2] == 0, "of a class it never met"
    assert [100 * learner.score(*week) for week in weeks] == accuracies.class_il and taken.sum() == 8
    assert torch.equal(taken, plain.examine(numbers)[1]) and plain.examine(numbers)[0] == accuracies
    with refused("has a Tensor, and no (samples, labels)"):
        learner.evaluate((X, Y))
    with refused("12 samples"):
        learner.evaluate([(X, words[:-1])])
    with refused("teach it first"):
        learner_of().evaluate(weeks)


# Forgotten on request -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda sample: "yes", "not with 'yes'"),
        (lambda sample: None, "not with None"),
        (lambda sample: 1, "not with 1"),
        (lambda sample: sample == X[0], "not with a Tensor of shape [6]; .all() makes one of many"),
        (lambda sample: sample.sum(), "the predicate must answer with True or False"),
    ],
)
def test_a_predicate_that_says_neither_yes_nor_no_takes_nothing_away(answer, words):
    learner = taught()
    before = learner.state()
    with refused(words):
        learner.forget(lambda sample, label: answer(sample))
    assert same(before, learner.state())


def test_given_rows_are_forgotten():
    rows = X[Y == 1]
    for match in (lambda sample: (sample == rows).all(1).any(), lambda sample: (sample == rows).all(1).any().numpy()):
        learner = taught()
        held = learner.kept()
        assert learner.forget(lambda sample, label, match=match: match(sample)) == {1: held[1]} and held[1]
        assert learner.kept() == held | {1: 0}


# A network's own words ------------------------------------------------------------------------------------------------
class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.EmbeddingBag(9, 4), nn.Linear(4, 2)

    def forward(self, ids):
        return self.head(self.embed(ids))


class Two(Bag):
    def forward(self, ids, offsets):
        return super().forward(ids)


class Looked(Bag):
    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(24, 4))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.LSTM(6, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x)[0])


IDS = (X * 10).abs().long() % 9
FLOATS = "give floats: x.float(), of an array or a table x.astype(float)"


@pytest.mark.parametrize(
    ("own", "x", "remedy"),
    [
        (network, IDS, FLOATS),
        (network, IDS.byte(), FLOATS),
        (Recurrent, IDS, FLOATS),
        (lambda: nn.Sequential(nn.LayerNorm(6), network()), IDS, FLOATS),
        (Bag, IDS.float(), "inputs=lambda x: x.long()"),
        (Looked, IDS.float(), "inputs=lambda x: x.long()"),
        (Bag, IDS + 9, "go from 9 to 17"),
        (Looked, IDS + 9, "go from 9 to 17"),
        (Two, IDS, "its forward is called with a batch of samples, and with nothing else"),
        (network, X[:, :5], "cannot be multiplied (1x5 and 6x16))"),
    ],
)
def test_a_remedy_is_proposed_where_it_helps(own, x, remedy):
    with refused("the network cannot take") as told:
        learner_of(own=own()).update(x, Y)
    assert str(told.value).endswith(remedy)
    if remedy == FLOATS:
        learner_of(own=own()).update(x.float(), Y).update(x.long(), Y)  # and whole numbers after floats are floats
    elif ".long()" in remedy:
        learner_of(own=own(), inputs=eval(remedy.removeprefix("inputs="))).update(x, Y)


def short(batch):
    return batch[:-1]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (Inputs(augment=short), "augment (short) makes a tensor of shape [3, 6] of 4 samples"),
        (Inputs(short), "prepare (short) makes a tensor of shape"),
        (Inputs(augment=lambda batch: None), "augment (<lambda>) answers with None"),
        (Inputs(augment=lambda batch: batch.float()), "cannot take float32 samples from augment (<lambda>) of shape"),
        (Inputs(augment=lambda batch: batch + 9), "cannot take int64 samples from augment (<lambda>) of shape (6,)"),
    ],
)
def test_a_function_of_ones_own_that_makes_something_else_of_a_batch_is_named(inputs, words):
    learner = learner_of(own=Bag(), inputs=inputs)
    before = learner.state()
    for teach in (learner.update, learner.observe):
        with refused(words):
            teach(IDS[:4], Y[:4])
        assert same(before, learner.state())


class Shifts(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        x -= 5
        return self.out(x)


def shifted(batch):
    batch -= 5
    return batch


@pytest.mark.parametrize(
    ("own", "inputs", "words"),
    [
        (network(2), shifted, "`inputs` writes to the samples it is given; let it take a copy first, x = x.clone()"),
        (network(2), Inputs(shifted), "`inputs` writes to the samples"),
        (Shifts(), None, "the network's forward writes to the samples it is given; let it take a copy first"),
        (nn.Sequential(nn.Flatten(), nn.ReLU(inplace=True), nn.Linear(6, 2)), None, "the network's forward writes"),
    ],
    ids=["inputs", "prepare", "forward", "first layer"],
)
@pytest.mark.parametrize("method", ["er", "finetune"])
def test_whoever_writes_to_samples_is_refused_and_they_stay_as_they_were(own, inputs, words, method):
    """Each question, such as that of a validation, moved the samples of its caller once more."""
    x, learner = X.clone(), learner_of(method, copy.deepcopy(own), inputs=inputs)
    for teach in (learner.update, learner.observe):
        with refused(words):
            teach(x, Y)
    assert torch.equal(x, X) and not learner.classes


def test_an_augmentation_that_is_tried_draws_nothing_of_the_callers():
    drawn = lambda batch: torch.where(torch.rand(batch.shape) < 0.5, 0, batch)
    learner = learner_of(own=Bag(), inputs=Inputs(augment=drawn))
    torch.manual_seed(3)
    learner.update(IDS, Y)
    after = torch.rand(1)
    torch.manual_seed(3)
    assert after == torch.rand(1)


def test_a_layer_with_sparse_gradients_is_named():
    with refused("the network's layer '0' has sparse gradients; make it with sparse=False"):
        Learner(nn.Sequential(nn.EmbeddingBag(9, 4, sparse=True), nn.Linear(4, 2)))


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_a_layer_that_changes_its_weights_as_it_answers_is_named(layer):
    """Its weights are a part of one vector, and the first step ended in torch's words on views."""
    with refused("the network's layer '0' changes its weights as it answers; make it without max_norm"):
        Learner(nn.Sequential(layer(9, 4, max_norm=1.0), nn.Flatten(), nn.Linear(4, 2)))


class Turned(nn.Module):
    """Pairs of numbers turned by angles that are kept as complex numbers, as rotary positions are."""

    def __init__(self, trained=False):
        super().__init__()
        turns = torch.polar(torch.ones(3), torch.arange(3.0))
        self.turns = nn.Parameter(turns, requires_grad=trained)
        self.register_buffer("more", turns.conj().clone())
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        turned = torch.view_as_complex(x.view(-1, 3, 2)) * self.turns
        return self.out(torch.view_as_real(turned * self.more * self.turns).flatten(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_complex_numbers_that_are_not_trained_stay_what_they_are(dtype, tmp_path):
    torch.manual_seed(0)
    own = Turned()
    before = copy.deepcopy(own)(X).softmax(1)
    learner = Learner(own, "der++", classes=[0, 1], memory=8, epochs=2, batch=4, dtype=dtype)
    assert torch.allclose(learner.predict_proba(X).float(), before, atol=1e-6) and own.turns.is_complex()
    learner.update(X, Y.clamp(max=1)).save(tmp_path)
    assert same(Learner.load(tmp_path, Turned()).state(), learner.state())
    assert torch.equal(learner.net.module.more, Turned().more)


def test_complex_numbers_that_would_be_trained_are_refused():
    with refused("the network's turns is complex, and real numbers alone are trained; keep torch.view_as_real of it"):
        Learner(Turned(trained=True))


def test_complex_numbers_that_no_file_holds_are_refused_before_anything_is_learned():
    with refused("the network's more is complex128, which cannot be saved; make it complex64"):
        own = Turned()
        own.more = own.more.to(torch.complex128)
        Learner(own)
    own.register_buffer("more", own.more, persistent=False)  # it is made anew
    Learner(own, classes=[0, 1], memory=8, epochs=1, batch=4, dtype=torch.float64).update(X, Y.clamp(max=1)).state()


def test_classes_without_an_order_are_refused():
    """Output 0 of a trained network was `cat` in one process, and `dog` in the next."""
    for classes in ({"cat", "dog"}, frozenset({"cat", "dog"})):
        with refused(f"classes a {type(classes).__name__}: give how many there will be, or a list of their labels"):
            learner_of(classes=classes)
    assert learner_of(classes={"dog": 1, "cat": 2}.keys()).classes_.tolist() == ["dog", "cat"]


# What users came upon -------------------------------------------------------------------------------------------------
def test_classes_that_come_with_a_mini_batch_were_not_right_beforehand():
    """Their new output is 0, and would have been the highest where all others are negative."""
    learner = Learner(nn.Linear(6, 3), memory=20, batch=4, lr=0.1, seed=1)
    rights = []
    for label in range(4):
        x, y = X + label, [label] * len(X)
        before = learner.predict(x).tolist() if learner.classes else []
        rights.append((learner.observe(x, y), sum(guess == label for guess in before) / len(X)))
        learner.observe(x, y)
    assert all(said == found for said, found in rights), rights


def test_a_transformer_encoder_with_padded_rows_is_welcome():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(9, 16)
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.encoder, self.out = nn.TransformerEncoder(layer, 1), nn.Linear(16, 2)

        def forward(self, x):
            return self.out(self.encoder(self.embed(x), src_key_padding_mask=x == 0).mean(1))

    x = torch.randint(1, 9, (12, 5))
    x[::2, 3:] = 0
    learner = Learner(Words(), epochs=1, batch=4).update(x, [0, 1] * 6).update(x, [2, 1] * 6)
    assert learner.classes_.tolist() == [0, 1, 2]


def test_a_number_without_an_embedding_is_refused_before_anything_is_learned():
    x = torch.randint(0, 10, (40, 5))
    learner = Learner(nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(40, 2)), memory=20, epochs=1, batch=8)
    learner.update(x, [0, 1] * 20)
    for wrong, words in ((10, "these samples go from 0 to 10"), (-1, "these samples go from -1 to 9")):
        strange = x.clone()
        strange[[0, 7], 0] = wrong
        for ask in (learner.update, learner.observe, lambda x, y: learner.predict(x)):
            with refused(words):
                ask(strange, [0, 1] * 20)
        with pytest.raises(BadInput, match=r"^the network cannot take int64 samples"):  # not: that many outputs
            learner.update(strange, [0, "new"] * 20)
    learner.update(x, [0, 1] * 20)


def test_a_network_that_answers_each_part_of_a_sample_is_told_that_there_should_be_one_answer():
    """And not that it cannot have so many outputs, and to name the classes, which would not help."""
    with refused("answers a sample with a tensor of shape (2, 2); it should be a vector of logits, one per class"):
        Learner(nn.Linear(3, 2)).update(X.view(12, 2, 3), Y)


def test_a_layer_without_a_size_is_refused():
    for layer in (nn.LazyLinear(3), nn.LazyBatchNorm1d(affine=False)):
        with refused("the network's layer '0' has no size yet; call the network once, with a batch"):
            Learner(nn.Sequential(layer, nn.Linear(3, 2)))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_network_of_torchscript_learns():
    own = torch.jit.trace(network(3), X[:2])
    assert set(taught(own=own, classes=[0, 1, 2]).predict(X).tolist()) <= {0, 1, 2}


def test_what_is_held_out_leaves_a_sample_of_every_class_to_learn():
    y = torch.tensor([0, 1, 2, *[3] * 9])
    for seed in range(20):
        learner = Learner(nn.Linear(6, 2), memory=20, epochs=1, batch=4, seed=seed).update(X, y, validation=0.3)
        assert set(learner.memory.held()[1].tolist()) == {0, 1, 2, 3} and len(learner.memory) >= 12 - 4
    with refused("validation 0.1 of 10 samples is the only one of its class; hold out more"):
        Learner(nn.Linear(6, 2), memory=20, epochs=1, batch=4).update(X[:10], torch.arange(10), validation=0.1)


def test_samples_to_be_predicted_may_come_without_labels_in_any_form():
    learner = taught()
    expected = learner.predict(X).tolist()
    for data in (
        DataLoader(X, batch_size=5),
        TensorDataset(X),
        DataLoader(TensorDataset(X), batch_size=5),
        DataLoader(TensorDataset(X, Y), batch_size=5),
    ):
        assert learner.predict(data).tolist() == expected
    with refused("there is no sample among the data"):
        learner.predict(DataLoader(X[:0]))


def test_a_mistyped_folder_is_said_not_to_be_there():
    for ask in (taught().update, taught().predict, lambda name: taught().update(X, Y, validation=name)):
        with refused("there is no folder phtos"):
            ask("phtos")


def test_epochs_and_the_learning_rate_may_be_assigned_between_tasks_and_are_saved(tmp_path):
    learner = taught()
    learner.epochs, learner.sgd.lr = 3, 0.01
    learner.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved", network())
    assert (again.epochs, again.sgd.lr) == (3, 0.01)
    for of in (learner, again):
        of.update(X, Y)
    assert torch.equal(learner.net.theta, again.net.theta)
    with pytest.warns(
        everlearn.errors.Notice, match="what this one had learned is gone; learner.epochs and learner.sgd.lr may be"
    ):
        learner.set_params(epochs=1)


@pytest.mark.parametrize("how", ["loss", "error"])
def test_what_was_broken_off_in_a_mini_batch_is_not_saved_over_what_was_sound(tmp_path, how):
    learner = taught()
    learner.save(tmp_path / "sound")
    before = (tmp_path / "sound" / "learner.safetensors").read_bytes()
    if how == "loss":
        learner.sgd.lr = 1e30
    else:
        learner.method.rehearse = lambda memory: 1 / 0
    with pytest.raises((EverlearnError, ZeroDivisionError), match=r"no longer a finite number|by zero"):
        for _ in range(5):
            learner.observe(X[:4], Y[:4])
    with refused("the last task was broken off in the middle of a step"):
        learner.observe(X[:4], Y[:4])
    with refused("the last task was broken off in the middle of a step"):
        learner.save(tmp_path / "sound")
    assert (tmp_path / "sound" / "learner.safetensors").read_bytes() == before


def test_a_schedule_that_ends_at_0_can_be_saved_and_loaded(tmp_path):
    learner = learner_of(epochs=4, lr=0.1)

    def falling(learner, record):
        learner.sgd.lr = 0.1 * (3 - record["epoch"]) / 4

    learner.update(X, Y, on_epoch=falling)
    learner.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved", network())
    assert learner.sgd.lr == again.sgd.lr == 0 and again.training.lr == 0.1
    for of in (learner, again):
        of.sgd.lr = 0.05
        of.update(X, Y)
    assert torch.equal(learner.net.theta, again.net.theta)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "20", None])
def test_epochs_that_cannot_be_are_refused_when_they_are_assigned(wrong):
    learner = taught()
    with refused("epochs"):
        learner.epochs = wrong
    assert learner.epochs == 2


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "0.1", None])
def test_a_learning_rate_that_cannot_be_is_refused_before_the_next_epoch(wrong, tmp_path):
    learner, before = taught(), taught()
    learner.sgd.lr = wrong
    for teach in (learner.update, learner.observe, lambda *_: learner.save(tmp_path / "saved")):
        with refused("lr"):
            teach(X, Y)
    learner.sgd.lr = 0.05
    for of in (learner, before):
        of.update(X, Y)
    assert same(learner.state(), before.state()), "nothing was learned with it"


def test_numbers_of_numpys_are_numbers(tmp_path):
    learner = learner_of(epochs=np.int64(3), batch=np.int32(4), lr=np.float32(0.05)).update(X, Y)
    learner.epochs, learner.sgd.lr = np.int64(2), np.float32(0.01)
    learner.update(X, Y)
    learner.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved", network())
    assert (again.epochs, again.batch) == (2, 4) and again.sgd.lr == pytest.approx(0.01)


@pytest.mark.parametrize("given", ["photos", {"x": X}, DataLoader(X), object(), lambda: 1, np.array("a")])
def test_what_is_no_array_of_samples_is_refused_in_a_sentence_beside_labels_too(given):
    learner = taught()
    for ask in (learner.update, learner.score, learner.observe):
        with refused("is not an array of samples; give an array, a tensor or a list of them"):
            ask(given, Y)


def test_rows_of_numbers_may_be_tuples_with_labels_beside_them_and_without():
    rows = [tuple(row) for row in X.tolist()]
    learner = learner_of().update(rows, Y)
    assert np.array_equal(learner.predict(rows), learner.predict(X.numpy()))
    assert np.array_equal(learner.predict(list(zip(rows, Y.tolist()))), learner.predict(rows)), "or with them"


def test_labels_may_be_of_any_type_of_numbers_and_tuples_of_numpys(tmp_path):
    assert taught().kept() == learner_of().update(X, Y.to(torch.bfloat16)).kept()
    learner = learner_of().update(X, [("a", np.int64(n)) for n in Y.tolist()])
    learner.save(tmp_path / "saved")
    assert Learner.load(tmp_path / "saved", network()).kept() == learner.kept()
    assert list(learner.kept()) == [("a", 0), ("a", 1), ("a", 2)]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([("a", float("nan"))] * 12, "a label with nan in it is not a label"),
        ([("a", ("b", None))] * 12, "a label with None in it is not a label"),
        (set(range(12)), "labels must be a list, not "),
        (dict.fromkeys(range(12)), "labels must be a list, not "),
    ],
)
def test_labels_that_name_nothing_or_have_no_order_are_refused(labels, words):
    with refused(words):
        learner_of().update(X, labels)


def stopped(learner: Learner, *data, after: int = 1, **more) -> None:
    """Ctrl-C when so many epochs are done."""

    def stop(_, record):
        if record["epoch"] + 1 == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.update(*data, on_epoch=stop, **more)


@pytest.mark.parametrize("more", [{}, {"validation": 0.25}])
def test_after_an_interruption_the_same_loader_goes_on_though_it_shuffles(more):
    loader = DataLoader(TensorDataset(X, torch.as_tensor(Y)), batch_size=16, shuffle=True)
    learner = learner_of(epochs=4)
    stopped(learner, loader, **more)
    with refused("what is shuffled is another, unless it is the same object"):
        learner.update(DataLoader(loader.dataset, batch_size=16, shuffle=True))
    pickle.dumps(learner)
    learner.update(loader)
    assert learner.tasks == 1 and learner.epoch == 0 and learner._left is None
    learner.update(X + 4, Y)


def test_a_task_is_known_again_by_all_of_its_samples():
    learner, other = learner_of(epochs=4), X.clone()
    stopped(learner, X, Y)
    other[-1] += 1
    with refused("1 of 4 epochs into another task"):
        learner.update(other, Y)


def test_the_number_of_epochs_stays_what_it_is_within_a_task():
    learner = learner_of(epochs=4)
    stopped(learner, X, Y)
    with refused("1 of 4 epochs into a task their number cannot change"):
        learner.epochs = 2
    learner.update(X, Y)
    learner.epochs = 2
    assert learner.epochs == learner.get_params()["training"].epochs == 2


def test_a_learner_is_not_saved_into_a_runs_folder(tmp_path):
    (tmp_path / "experiment.json").write_text("{}")
    with refused(f"{tmp_path} is a run's folder, which stays as it is"):
        taught().save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["experiment.json"]


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "score", "evaluate", "export"])
def test_a_network_that_has_diverged_says_so_whatever_it_is_asked(ask, tmp_path):
    learner = learner_of(epochs=3, lr=1e30)
    with pytest.raises(everlearn.EverlearnError, match="no longer a finite number"):
        learner.update(X * 1e3, Y)
    asked = {"score": (X, Y), "evaluate": ([(X, Y)],), "export": (tmp_path / "it.pt",)}.get(ask, (X,))
    with pytest.raises(everlearn.EverlearnError, match="parameters that are no longer finite numbers"):
        getattr(learner, ask)(*asked)
    assert not any(tmp_path.iterdir())


def test_a_pull_that_diverges_while_every_loss_is_finite_is_said_to_be_the_learning_rates_perhaps():
    """OEWC's is no part of the loss, and nothing in it is divided by 0."""
    torch.manual_seed(0)
    learner = Learner(nn.Linear(6, 3), everlearn.OEWC(strength=1e30), epochs=3, batch=12, lr=0.1).update(X, Y)
    with pytest.raises(EverlearnError, match=r"though every loss is.* so may a learning rate as large as 0\.1$"):
        learner.update(X + 1, Y)


def test_masked_values_are_not_learned_as_what_lies_under_the_mask():
    x = np.ma.masked_array(X.numpy(), mask=np.zeros(X.shape, bool))
    y = np.ma.masked_array(np.asarray(Y), mask=np.zeros(len(Y), bool))
    assert same(learner_of().update(x, y).state(), taught().state()), "nothing is masked"
    x.mask[3, 1] = True
    with refused("samples with masked values cannot be learned from; fill them"):
        learner_of().update(x, Y)
    y.mask[3] = True
    with refused("some labels are masked"):
        learner_of().update(X, y)


def test_labels_of_another_kind_are_said_to_be_other_classes():
    learner = learner_of().update(X, Y)
    words = [str(label) for label in np.asarray(Y)]
    with pytest.warns(Notice, match=r"met none of these labels, such as '0'"):
        assert learner.score(X, words) == 0
    with pytest.warns(Notice, match=r"the label '0' \(str\) is another than 0 \(int\), so it is a class of its own"):
        learner.update(X, words)


@pytest.mark.parametrize("suffix", [".pt", ".pt2", ".safetensors"])
def test_a_disk_that_is_full_is_named_and_nothing_is_left(suffix, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    learner = taught()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(everlearn.EverlearnError, match=r"cannot be written: No space left on device"):
        learner.export(tmp_path / f"it{suffix}")
    assert not any(tmp_path.iterdir())


def test_pictures_beside_the_class_folders_are_said_to_be_left_out(tmp_path):
    for name in ("dog/1.png", "dog/2.png", "fox/1.png", "fox/2.png", "a b.png", "dog/3.heic"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / name, "png")
    with pytest.warns(Notice) as told:
        Learner(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), epochs=1).update(tmp_path)
    words = [str(one.message) for one in told]
    assert any("1 picture in" in of and "beside the class folders, such as a b.png" in of for of in words)
    assert any("of a kind that is not read, such as 3.heic" in of for of in words)


def normalised(**settings) -> Learner:
    torch.manual_seed(0)
    own = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    return learner_of(own=own, **settings)


@pytest.mark.parametrize(("x", "y", "words"), [(X, Y * 0 + 3, "one class"), (X[:3], Y[:3], "3 samples")])
def test_of_a_lesson_batchnorm_may_not_survive_its_teacher_is_told(x, y, words):
    with pytest.warns(Notice, match=f"a lesson of {words} and a network with BatchNorm.*forward='joint'"):
        normalised().update(X, Y).update(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        normalised().update(x, y).update(X + 4, Y)  # nothing is lost yet; then a large one
        normalised(forward="joint").update(X, Y).update(x, y)
        normalised(method="finetune").update(X, Y).update(x, y)
        taught().update(x, y)
        still = normalised()
        still.net.module[1].eval().requires_grad_(False)
        Learner(still.net.module, epochs=1).update(X, Y).update(x, y)


def test_with_patience_the_best_epochs_network_has_its_own_batches_counted():
    learner, seen = normalised(epochs=6, lr=0.5), []

    def look(learner, record):
        seen.append((record["validation"], int(learner.net.state()["1.num_batches_tracked"])))

    learner.update(X, Y, validation=(X, Y), patience=2, on_epoch=look)
    best = max(range(len(seen)), key=lambda n: seen[n][0])
    assert best < len(seen) - 1 and int(learner.net.state()["1.num_batches_tracked"]) == seen[best][1]

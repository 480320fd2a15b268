"""A learner with a network and images of one's own: what the owner did to them counts, what cannot be is said first."""

import contextlib
import copy
import re
import signal
import threading
from dataclasses import replace

import pytest
import torch
from conftest import learner_of, toy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import everlearn
from everlearn import ER, Consolidate, DERpp, Fixed, Learner, Pixels, Relation, Task, Training, Weighting
from everlearn.core.state import as_bytes
from everlearn.learner import endings
from everlearn.networks import CNN


def refused(words: str):
    return pytest.raises(everlearn.BadInput, match=re.escape(words))


def linear(classes: int = 4) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


def bright(count: int = 12) -> Task:
    """Float images, 0 to 255, of classes 0 and 1."""
    x, y = torch.rand(count, 1, 8, 8) * 255, torch.arange(count) % 2
    return Task((x, y), (x, y), (0, 1))


# What the owner has done to the network -----------------------------------------------------------------------------
class Counting(nn.Module):
    """A buffer assigned anew in every pass, and not written to."""

    def __init__(self, pixels: int = 64):
        super().__init__()
        self.out = nn.Linear(pixels, 4)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        answer = self.out(x.flatten(1)) * (1 + self.seen * 1e-3)  # read by the graph, and then assigned
        if self.training:
            self.seen = self.seen + 1
        return answer


def test_a_buffer_keeps_its_shape():
    class Growing(Counting):
        def forward(self, x):
            self.seen = torch.zeros(3)
            return self.out(x.flatten(1))

    stream = toy()
    with refused("seen was of shape [] and is of shape [3] now"):
        learner_of("er", stream, network=Growing()).update(stream.tasks[0])


@pytest.mark.parametrize("name", ["er", "rer", "der+++vanilla", "agem", "si"])
def test_a_buffer_that_is_assigned_counts_the_real_passes_and_no_virtual_ones(name):
    stream, network, told = toy(), Counting(), []
    learner = learner_of(name, stream, network=network)
    for task in stream:
        learner.update(task)
        told.append(int(network.seen))
    # From task 2 on vanilla's outer loss is a real pass, a batch a draw, and A-GEM's constraint another.
    extra = {"der+++vanilla": 2, "agem": 1}.get(name, 0)
    passes, steps = 1 + learner.method.draws, 6
    first = learner.method.draws  # those of a memory that is still empty change nothing
    assert told == [steps * passes - first, steps * (2 * passes + extra) - first]


@pytest.mark.parametrize("name", ["rer", "oewc", "gss", "icarl"])
@pytest.mark.parametrize("loaded", [False, True])  # a network just loaded is often in evaluation mode as a whole
def test_layers_in_evaluation_mode_stay_so_if_frozen_or_in_a_network_that_is_not(name, loaded):
    backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten()).requires_grad_(False)
    network, stream = nn.Sequential(backbone.eval(), nn.Linear(144, 4)).train(), toy()
    backbone.eval()
    if loaded:
        network.eval()
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    learner = learner_of(name, stream, network=network)
    for task in stream:
        learner.update(task)
        learner.evaluate(stream)
    assert all(torch.equal(before[name], tensor) for name, tensor in backbone.state_dict().items())
    assert network.training and not any(module.training for module in backbone.modules())
    whole = nn.Sequential(nn.BatchNorm2d(1), linear()).eval()
    learner_of("er", stream, network=whole).update(stream.tasks[0])
    assert whole[0].num_batches_tracked > 0


def test_the_networks_parameters_are_the_owners_objects():
    network, stream = linear(), toy()
    held = list(network.parameters())
    learner = learner_of("rer", stream, network=network)
    for task in stream:
        learner.update(task)
    assert all(one is other for one, other in zip(held, network.parameters()))
    assert torch.equal(held[0].flatten(), learner.net.theta[: held[0].numel()])


def test_what_is_trainable_is_settled_when_the_learner_is_made():
    network, stream = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, 4)), toy()
    network[1].requires_grad_(False)
    learner = learner_of("er", stream, network=network)
    learner.update(stream.tasks[0])
    network[1].requires_grad_(True)
    with refused("frozen or unfrozen"):
        learner.update(stream.tasks[1])


def test_features_are_what_the_last_linear_layer_in_use_reads():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.body = nn.Linear(5, 4), nn.Linear(64, 5)

        def forward(self, x):
            return self.head(self.body(x.flatten(1)))

    stream = toy()
    learner = learner_of("icarl", stream, network=Odd())
    assert learner.features(stream.tasks[0].test[0]).shape[1] == 5
    with refused("uses no linear layer"):
        learner_of("icarl", stream, network=nn.Sequential(nn.Conv2d(1, 4, 8), nn.Flatten())).update(stream.tasks[0])


def test_a_network_that_forward_mode_cannot_do_is_refused_in_the_first_step():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.out = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 4)

        def forward(self, x):
            return self.out(self.rnn(x[:, 0])[0][:, -1])

    stream = toy()
    with refused("set hypergradient=double-backward"):
        next(learner_of("rer", stream, network=Recurrent()).updating(stream.tasks[0]))
    learner = learner_of("rer", stream, network=Recurrent(), options={"hypergradient": "double-backward"})
    for task in stream:
        learner.update(task)


def test_trying_the_network_out_leaves_dropout_the_masks_it_would_have_had():
    stream, ends = toy(), []
    for tried in (False, True):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, 4))
        learner = learner_of("rer", stream, network=network)
        learner.method.weighting.tried = tried
        learner.update(stream.tasks[0])
        ends.append(learner.net.theta.detach().clone())
    assert torch.equal(*ends)


def test_batches_share_no_pass_where_a_norm_layer_is_to_stay_still():
    stream, ends = toy(), []
    for compiled in (False, True):
        torch.manual_seed(0)
        network = CNN(stream.shape, 4)
        network.body[:4].requires_grad_(False).eval()
        learner = learner_of("er", stream, network=network, compile=compiled)
        for task in stream:
            learner.update(task)
        ends.append(learner.net.theta.detach().clone())
        assert int(network.body[1].num_batches_tracked) == 0 < int(network.body[5].num_batches_tracked)
    assert torch.equal(*ends)


# State ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda stream: learner_of("er", stream, memory=9), "a memory of 9, and the learner one of 8"),
        (lambda stream: learner_of("der++", stream), "another method"),
        (lambda stream: learner_of("der", stream), "another method"),
        (lambda stream: learner_of("er-ace", stream), "another method"),
        (lambda stream: learner_of("agem", stream), "another method"),
        (lambda stream: learner_of("er", stream, network=linear()), "another network"),
        (lambda stream: None, "not a learner's state"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(other, words):
    stream = toy()
    learner = learner_of("er", stream)
    learner.update(stream.tasks[0])
    before, held = learner.state(), learner.memory
    if other := other(stream):
        other.update(stream.tasks[0])
    with refused(words):
        learner.restore(other.state() if other else {})
    assert learner.memory is held and all(torch.equal(before[key], tensor) for key, tensor in learner.state().items())


def test_a_state_with_words_that_cannot_be_read_is_refused_and_changes_nothing():
    stream = toy()
    learner, other = learner_of("er", stream), learner_of("er", stream)
    for one, task in zip((learner, other), stream.tasks):
        one.update(task)
    before, held = learner.state(), learner.memory
    with refused("words on how its task began cannot be read"):
        learner.restore(other.state() | {"learner.begun": as_bytes("{[[(")})
    assert learner.memory is held and all(torch.equal(before[key], tensor) for key, tensor in learner.state().items())


def test_a_state_from_the_middle_of_a_task_goes_on_with_that_task_alone():
    stream, states = toy(), []
    learner = learner_of("er", stream, epochs=2)
    learner.update(stream.tasks[0], report=lambda record: states.append(learner.state()))
    for state, epoch in zip(states, (1, 2)):
        other = learner_of("er", stream, epochs=2)
        other.restore(state)
        with refused(f"{epoch} of 2 epochs into another task"):
            other.update(stream.tasks[1])
        other.update(stream.tasks[0])
        assert other.tasks == 1 and torch.equal(other.net.theta, learner.net.theta)
    with refused("2 epochs into a task, and the learner has 1"):
        learner_of("er", stream, epochs=1).restore(states[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_images_may_be_floats_of_any_size(dtype):
    x, y = toy().tasks[0].train
    learner = Learner(linear(), ER(), classes=range(4), inputs=Pixels(top=1), batch=4, memory=8)
    learner.update(Task(((x / 255).to(dtype), y), None, (0, 1)))
    assert learner.tasks == 1


def test_an_epoch_broken_off_leaves_no_state_to_go_on_from():
    class Impatient(ER):
        def remember(self, step, terms):
            super().remember(step, terms)
            if step.number == 1:
                raise KeyboardInterrupt

    stream = toy()
    learner = Learner(linear(), Impatient(), classes=range(4), inputs=stream.pixels, batch=4, memory=8)
    before = learner.state()
    with pytest.raises(KeyboardInterrupt):
        learner.update(stream.tasks[0])
    with refused("broken off in the middle"):
        learner.state()
    learner.restore(before)
    assert learner.state().keys() == before.keys()


@pytest.fixture
def ctrl_c():
    """Ctrl-C does what it does in Python, wherever these tests are started from; that is the handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


class Interrupted(ER):
    """Somebody presses Ctrl-C in the middle of the third step."""

    steps = 0
    derived = ("steps",)

    def remember(self, step, terms):
        self.steps += 1
        if self.steps == 3:
            signal.raise_signal(signal.SIGINT)
        super().remember(step, terms)


def interrupted(**more) -> Learner:
    torch.manual_seed(0)
    return Learner(linear(), Interrupted(), classes=range(4), batch=4, memory=8, **more)


def test_ctrl_c_waits_for_the_end_of_a_step_and_the_same_update_goes_on_to_the_same_bits(ctrl_c):
    stream = toy()
    learner, undisturbed = interrupted(inputs=stream.pixels), interrupted(inputs=stream.pixels)
    undisturbed.method.steps = 3
    with pytest.raises(KeyboardInterrupt):
        learner.update(stream.tasks[0])
    assert (learner.method.steps, learner.step, learner.tasks) == (3, 3, 0) and learner.state()
    assert signal.getsignal(signal.SIGINT) is ctrl_c
    for task in stream:
        learner.update(task)
        undisturbed.update(task)
    assert torch.equal(learner.net.theta, undisturbed.net.theta) and learner.tasks == len(stream.tasks)


def test_ctrl_c_in_a_callback_is_heard_at_once_and_the_epoch_is_kept(ctrl_c):
    stream, heard = toy(), []

    def callback(learner, record):
        signal.raise_signal(signal.SIGINT)
        heard.append("too late")

    learner = Learner(linear(), ER(), classes=range(4), inputs=stream.pixels, batch=4, memory=8, epochs=2)
    with pytest.raises(KeyboardInterrupt):
        learner.update(stream.tasks[0], on_epoch=callback)
    assert not heard and (learner.epoch, learner.step) == (1, 0)
    learner.update(stream.tasks[0])
    assert learner.tasks == 1


def test_in_the_middle_of_a_step_it_says_that_it_is_learning():
    class Asking(ER):
        def remember(self, step, terms):
            with refused("a task is under way; wait for its end"):
                self.learner.state()
            super().remember(step, terms)

    stream = toy()
    learner = Learner(linear(), Asking(), classes=range(4), inputs=stream.pixels, batch=4, memory=8)
    assert learner.update(stream.tasks[0]).tasks == 1


def test_a_second_ctrl_c_does_not_wait(ctrl_c):
    class Twice(ER):
        def remember(self, step, terms):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    stream = toy()
    learner = Learner(linear(), Twice(), classes=range(4), inputs=stream.pixels, batch=4, memory=8)
    with pytest.raises(KeyboardInterrupt):
        learner.update(stream.tasks[0])
    with refused("broken off in the middle"):
        learner.state()


def test_ctrl_c_in_a_mini_batch_is_heard_when_it_is_learned(ctrl_c):
    x, y = toy().tasks[0].train
    learner, undisturbed = (interrupted(inputs=toy().pixels) for _ in range(2))
    undisturbed.method.steps = 3
    for number in range(5):
        part = slice(4 * number % 8, 4 * number % 8 + 4)
        undisturbed.observe(x[part], y[part])
        with pytest.raises(KeyboardInterrupt) if number == 2 else contextlib.nullcontext():
            learner.observe(x[part], y[part])
    assert torch.equal(learner.net.theta, undisturbed.net.theta)
    assert repr(learner.prequential) == repr(undisturbed.prequential)


def test_ctrl_c_at_the_end_of_a_task_is_heard_when_it_is_learned_and_the_same_update_learns_it_no_more(ctrl_c):
    class AtTheEnd(ER):
        def end_task(self, learner, task):
            signal.raise_signal(signal.SIGINT)

    stream, told = toy(), []
    learner = Learner(linear(), AtTheEnd(), classes=range(4), inputs=stream.pixels, batch=4, memory=8, epochs=2)
    update = lambda task: learner.update(task, on_task=lambda learner, record: told.append(record))
    for number, task in enumerate(stream):
        with pytest.raises(KeyboardInterrupt):
            update(task)
        theta = learner.net.theta.detach().clone()
        assert (learner.tasks, len(told)) == (number + 1, number)
        update(task)
        assert torch.equal(learner.net.theta, theta) and (learner.tasks, len(told)) == (number + 1, number + 1)
        assert (told[-1]["task"], told[-1]["epochs"]) == (number, 2)


def test_a_task_that_ctrl_c_ended_is_not_learned_again_by_who_was_loaded(ctrl_c):
    class AtTheEnd(ER):
        ends = True

        def end_task(self, learner, task):
            if self.ends:
                signal.raise_signal(signal.SIGINT)

    make = lambda: Learner(linear(), AtTheEnd(), classes=range(4), inputs=toy().pixels, batch=4, memory=8, epochs=2)
    (first, second), learner = toy().tasks, make()
    with pytest.raises(KeyboardInterrupt):
        learner.update(first)
    other, third = make(), make()
    for of in (other, third):
        of.restore(learner.state())
        of.method.ends = False
    other.update(first)
    assert other.tasks == 1 and torch.equal(other.net.theta, learner.net.theta)
    other.update(first)
    assert other.tasks == 2, "once it has been answered, the same data are another task"
    third.update(second)
    third.update(first)
    assert third.tasks == 3, "and so they are after other data"


def test_a_task_that_ctrl_c_ended_is_not_learned_again_from_a_loader_that_shuffles(ctrl_c):
    class AtTheEnd(ER):
        def end_task(self, learner, task):
            if not learner.tasks:
                signal.raise_signal(signal.SIGINT)

    x, y = toy().tasks[0].train
    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    learner = Learner(linear(), AtTheEnd(), inputs=toy().pixels, batch=4, memory=8, epochs=2)
    with pytest.raises(KeyboardInterrupt):
        learner.update(loader)
    theta = learner.net.theta.detach().clone()
    learner.update(loader)
    assert learner.tasks == 1 and torch.equal(learner.net.theta, theta)


class Teaching(ER):
    """A method that teaches another learner in the middle of its third step."""

    def __init__(self, other: Learner):
        super().__init__()
        self.others, self.steps = [other], 0

    def remember(self, step, terms):
        self.steps += 1
        if self.steps == 3:
            self.others[0].update(toy().tasks[0])
            self.others[0].update(toy().tasks[1])
        super().remember(step, terms)


def test_ctrl_c_in_a_learner_within_anothers_step_waits_for_the_end_of_that_step(ctrl_c):
    stream = toy()
    other = interrupted(inputs=stream.pixels)
    learner = Learner(linear(), Teaching(other), classes=range(4), inputs=stream.pixels, batch=4, memory=8)
    with pytest.raises(KeyboardInterrupt):
        learner.update(stream.tasks[0])
    assert learner.step == 3 and learner.state() and other.tasks == 2


def test_ctrl_c_in_a_learner_within_anothers_callback_leaves_both_where_they_go_on(ctrl_c):
    stream = toy()
    other = interrupted(inputs=stream.pixels)
    learner = Learner(linear(), ER(), classes=range(4), inputs=stream.pixels, batch=4, memory=8, epochs=2)
    with pytest.raises(KeyboardInterrupt):
        learner.update(stream.tasks[0], on_epoch=lambda learner, record: other.update(stream.tasks[0]))
    assert (learner.epoch, other.step) == (1, 3) and learner.state() and other.state()
    for one in (other, learner):
        one.update(stream.tasks[0])
        assert one.tasks == 1


@pytest.mark.parametrize("at", [4, 8, 12, 16, 20, 23, "last"])
def test_early_stopping_goes_on_after_ctrl_c_to_the_same_bits(ctrl_c, at):
    stream, ends = toy(), []
    (x, y), test = stream.tasks[0].train, stream.tasks[0].test
    for stopped in (None, at):
        learner = interrupted(inputs=stream.pixels, epochs=12, lr=0.002)
        learner.method.steps = -stopped + 3 if isinstance(stopped, int) else 3
        told = []

        def callback(learner, record, stopped=stopped, told=told):
            told.append(record["epoch"])
            if stopped == "last" and record["epoch"] == 7:
                signal.raise_signal(signal.SIGINT)

        count = lambda learner, record, told=told: told.append(record["epochs"])
        how = dict(validation=test, patience=3, on_epoch=callback, on_task=count)
        with pytest.raises(KeyboardInterrupt) if stopped else contextlib.nullcontext():
            learner.update(x, y, **how)
        if stopped:
            learner.update(x, y, **how)
        ends.append((learner.net.theta.detach().clone(), told))
    (one, told), (other, again) = ends
    assert torch.equal(one, other) and told == again == [*range(8), 8], "of 12 epochs, the best being the fifth"


def test_early_stopping_goes_on_when_it_was_stopped_twice_and_other_data_were_refused_between(ctrl_c):
    stream, ends = toy(), []
    (x, y), test = stream.tasks[0].train, stream.tasks[0].test
    for stops in ((), (2, 20), (1, 12, 23)):
        learner, told = interrupted(inputs=stream.pixels, epochs=12, lr=0.002), []
        count = lambda learner, record, told=told: told.append(record["epochs"])
        update = lambda x, learner=learner, count=count: learner.update(
            x, y, validation=test, patience=3, on_task=count
        )
        before = 0
        for at in stops:
            learner.method.steps = 3 - (at - before)
            with pytest.raises(KeyboardInterrupt):
                update(x)
            with refused("into another task"):
                update(x + 1)
            before = at
        learner.method.steps = 3
        update(x)
        ends.append((learner.net.theta.detach().clone(), told))
    assert all(torch.equal(theta, ends[0][0]) and told == [8] for theta, told in ends)


def test_a_learner_in_another_thread_lets_nothing_through_that_waits_here(ctrl_c):
    stream, done = toy(), []
    other = interrupted(inputs=stream.pixels)
    other.method.steps = 3
    with pytest.raises(KeyboardInterrupt), endings.heard(endings.CTRL_C):
        signal.raise_signal(signal.SIGINT)
        thread = threading.Thread(target=lambda: done.append(other.update(stream.tasks[0])))
        thread.start()
        thread.join()
        assert done and endings.waiting()


def test_a_learner_in_another_thread_leaves_ctrl_c_alone(ctrl_c):
    stream = toy()
    learner, seen = interrupted(inputs=stream.pixels), []
    learner.method.steps = 3
    look = lambda learner, record: seen.append(signal.getsignal(signal.SIGINT))
    thread = threading.Thread(target=lambda: learner.update(stream.tasks[0], on_epoch=look))
    thread.start()
    thread.join()
    assert learner.tasks == 1 and {*seen} == {ctrl_c}


def test_a_question_that_fails_gives_the_network_back():
    class Moody(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.fails = linear(), False

        def forward(self, x):
            if self.fails:
                raise RuntimeError
            return self.body(x)

    stream, network = toy(), Moody()
    learner = Learner(network, ER(), classes=range(4), inputs=stream.pixels, batch=4, memory=8)
    network.fails = True
    with pytest.raises(RuntimeError):
        learner.predict(stream.tasks[0].test[0])
    assert all(isinstance(value, nn.Parameter) for value in network.parameters()) and len(list(network.parameters()))


def test_a_small_network_is_taught_on_one_thread_and_the_owners_threads_are_put_back():
    stream, before, seen = toy(), torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        with torch.no_grad():  # whatever the owner is about
            learner_of("er", stream).update(stream.tasks[0], report=lambda record: seen.append(torch.get_num_threads()))
        assert set(seen) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_relation_refuses_the_state_of_fixed_weights_and_of_another_net():
    stream = toy()
    learner = learner_of("rer", stream)
    others = {"another weighting than Relation": {}, "a Relation with other sizes": {"hidden": 3}}
    for sentence, options in others.items():
        other = learner_of("rer" if options else "er", stream, options=options)
        other.update(stream.tasks[0])
        with refused(sentence):
            learner.restore(other.state())


@pytest.mark.parametrize("name", ["er", "er+consolidate", "rder"])
def test_the_state_before_the_first_task_can_be_taken_back(name):
    stream = toy()
    learner = learner_of(name, stream)
    before = learner.state()
    for task in stream:
        learner.update(task)
    after = learner.state()
    learner.restore(before)
    for task in stream:
        learner.update(task)
    assert all(torch.equal(after[key], tensor) for key, tensor in learner.state().items())


def test_weights_are_settings_and_not_in_the_state():
    stream = toy()
    one, other = (
        Learner(linear(), everlearn.ER(Fixed(w)), classes=range(4), inputs=stream.pixels) for w in ((1, 1), (1, 5))
    )
    other.restore(one.state())
    assert other.method.weighting.row.tolist() == [1, 5]


def test_what_its_owner_assigned_is_in_the_state_and_in_a_copy():
    network, stream = linear(), toy()
    learner = learner_of("er", stream, network=network)
    network.load_state_dict({name: torch.zeros_like(t) for name, t in network.state_dict().items()}, assign=True)
    assert not copy.deepcopy(learner).net.theta.any()
    network[1].weight.data = torch.ones(4, 64)
    assert learner.state()["network.1.weight"].all()


def test_what_a_weighting_of_ones_own_gathers_is_in_the_state():
    class Slow(Weighting):
        def begin(self, method, net, seed):
            self.mean = torch.zeros(len(method.names))

        def loss(self, method, step, terms):
            self.mean.lerp_(terms.losses.detach().mean(dim=0), 0.1)
            return (terms.losses / (1 + self.mean)).sum(dim=1).mean()

    stream = toy()
    make = lambda: Learner(linear(), everlearn.ER(Slow()), classes=range(4), inputs=stream.pixels, memory=8, batch=4)
    whole, again = make(), make()
    whole.update(stream.tasks[0])
    again.restore(whole.state())
    for learner in (whole, again):
        learner.update(stream.tasks[1])
    assert torch.equal(whole.net.theta, again.net.theta) and whole.method.weighting.mean.any()


def test_a_network_that_keeps_more_than_tensors_is_refused_by_state():
    class Talking(nn.Linear):
        def get_extra_state(self):
            return {"words": 1}

    stream = toy()
    with refused("a state holds tensors only"):
        learner_of("er", stream, network=nn.Sequential(nn.Flatten(), Talking(64, 4))).state()


def test_icarl_keeps_the_samples_of_a_class_that_comes_back():
    stream = toy(each=20)
    learner = learner_of("icarl", stream, memory=20)
    learner.update(stream.tasks[0])
    x, y = stream.tasks[0].train
    one = (y == 0).nonzero()[:1, 0]
    learner.update(Task((x[one], y[one]), (x[one], y[one]), (0,)))
    assert torch.bincount(learner.memory.held()[1]).tolist() == [10, 10]
    learner.update(replace(stream.tasks[1], classes=(0, 1, 2, 3)))  # names old classes, and brings none of them
    assert torch.bincount(learner.memory.held()[1]).tolist() == [5, 5, 5, 5]


# Images and labels ---------------------------------------------------------------------------------------------------
def test_dark_images_are_images_too():
    task, learner = bright(), Learner(linear(), everlearn.ER(), classes=range(4), inputs=Pixels())
    task.train[0][0] = 0
    learner.update(task)
    assert len(learner.predict(torch.zeros(2, 1, 8, 8))) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: ((x / 255, y), (0, 1)), "would be divided by 255"),
        (lambda x, y: (((x - 80) / 50, y), (0, 1)), "would be divided by 255"),
        (lambda x, y: ((x.index_fill(0, torch.tensor(3), torch.nan), y), (0, 1)), "NaN or inf"),
        (lambda x, y: ((x.long(), y), (0, 1)), "they must be uint8, or floats"),
        (lambda x, y: ((x > 9, y), (0, 1)), "they must be uint8, or floats"),
        (lambda x, y: (x, (0, 1)), "train must be a tuple (a dense tensor, a dense tensor), not a Tensor"),
        (lambda x, y: ((x, y, y), (0, 1)), "train must be a tuple (a dense tensor, a dense tensor), not a tuple ("),
        (lambda x, y: ((x, y), (0.0, 1.0)), "classes must be a list (each a whole number)"),
        (lambda x, y: ((x, y), ("a", 1)), "classes must be a list (each a whole number)"),
        (lambda x, y: ((x, y[:1]), (0, 1)), "there must be one for each"),
        (lambda x, y: ((x, y + 2), (0, 1)), "not among the task's classes"),
    ],
)
def test_what_is_wrong_with_a_task_is_said_before_anything_is_learned(change, words):
    learner = Learner(linear(), everlearn.ER(), classes=range(4), inputs=Pixels())
    before = learner.net.theta.clone()
    train, classes = change(*bright().train)
    with refused(words):
        learner.update(Task(train, train, classes))
    assert torch.equal(learner.net.theta, before) and learner.tasks == 0


def test_bytes_that_would_stay_as_large_as_they_are_are_refused():
    x, y = bright().train
    with refused("images go up to"):
        Learner(linear(), ER(), classes=range(4), inputs=Pixels(top=1)).update(Task((x.byte(), y), None, (0, 1)))


def test_evaluate_looks_at_the_test_half_too():
    learner, task = Learner(linear(), everlearn.ER(), classes=range(4), inputs=Pixels()), bright()
    x, y = task.test
    for test, words in (
        ((x, y[:1]), "there must be one for each"),
        ((x, y + 2), "not among the task's classes"),
        ((x[:0], y[:0]), "at least one"),
        (None, "a pair (samples, labels)"),
    ):
        with refused(words):
            learner.evaluate([replace(task, test=test)])
    for wrong in (task, []):
        with refused("stream"):
            learner.evaluate(wrong)


@pytest.mark.parametrize(
    "wrong", [dict(mean=0.5), dict(std=(0.0,)), dict(top=0), dict(pad=-1), dict(mean=(0.5,) * 2, std=(1.0,) * 3)]
)
def test_pixels_that_make_no_image_are_refused(wrong):
    with refused("mean"):
        Pixels(**wrong)


def test_as_many_channels_as_the_pixels_say():
    learner = Learner(linear(), everlearn.ER(), classes=range(4), inputs=Pixels((0.5,), (0.5,) * 3))
    with refused("[N, 3, height, width]"):
        learner.update(bright())


@pytest.mark.parametrize(
    "rehearse",
    [
        lambda self, memory: [everlearn.Term(everlearn.cross_entropy(memory).loss.mean(), memory)],
        lambda self, memory: everlearn.cross_entropy(memory),
        lambda self, memory: [everlearn.cross_entropy(memory).loss],
        lambda self, memory: everlearn.cross_entropy(memory).loss.mean(),
        lambda self, memory: None,
    ],
)
def test_a_method_of_ones_own_that_gives_something_else_than_terms_is_told(rehearse):
    stream = toy()
    method = type("Mine", (everlearn.ER,), {"rehearse": rehearse})()
    with refused("Mine.rehearse must give a list of Term(loss, batch)"):
        Learner(linear(), method, classes=range(4), inputs=stream.pixels).update(stream.tasks[0])


N = {"fields": lambda self, learner: everlearn.DERpp.fields(self, learner) | {"n": (1,)}}
more = lambda of: {"kept": lambda self, step, terms: everlearn.DERpp.kept(self, step, terms) | {"n": of(len(step.y))}}


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({}, "Mine.fields gives no shape of 'n'; write super().fields(learner) | {'n': (…)}"),
        ({"fields": lambda self, learner: {"n": (1,)}}, "Mine.fields gives no shape of 'logits'"),
        ({"fields": lambda self, learner: {"n": 1}}, "Mine.fields gives 'n' the shape 1; write a tuple"),
        (N, "Mine.kept gives no 'n'; write super().kept(step, terms) | {'n': …}, a tensor [4, 1]"),
        (N | {"kept": lambda self, step, terms: {"n": torch.ones(len(step.y), 1)}}, "Mine.kept gives no 'logits'"),
        (N | {"kept": lambda self, step, terms: None}, "Mine.kept must give a dictionary of tensors by name; did it"),
        (N | more(torch.ones), "Mine.kept gives a 'n' [4]; by its fields(learner) it is a tensor [4, 1]"),
        (N | more(lambda rows: [1.0] * rows), "Mine.kept gives a 'n' of type list; by its fields(learner)"),
        (N | more(lambda rows: torch.ones(rows, 1)), None),
    ],
)
def test_what_is_wrong_with_fields_of_ones_own_is_told(own, words):
    stream = toy()
    method = type("Mine", (everlearn.DERpp,), {"keeps": ("logits", "n")} | own)()
    learner = Learner(linear(), method, classes=range(4), inputs=stream.pixels, batch=4)
    with contextlib.nullcontext() if words is None else refused(words):
        learner.update(stream.tasks[0])


# How it is made ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (dict(memory=2.5), "memory must be a whole number or a word, not 2.5"),
        (dict(epochs="3"), "epochs must be a whole number, not '3'"),
        (dict(lr="0.1"), "lr must be a number, not '0.1'"),
        (dict(seed=1.5), "seed must be a whole number, not 1.5"),
        (dict(classes=0), "classes 0 must be a number greater than 0"),
        (dict(classes="4"), "classes must be a whole number or a list or None, not '4'"),
        (dict(device="gpu"), "unknown device 'gpu'"),
        (dict(device="meta"), "unknown device 'meta'"),
        (dict(lr=float("inf")), "lr inf must be a number below 1e38"),
        (dict(method=ER(Fixed(0.5))), "weights 0.5: ER has 2 loss terms"),
        (lambda: dict(method=ER(Fixed("ab"))), "weights must be a list (each a number) or a number, not 'ab'"),
        (dict(method=ER(Fixed((1, -1)))), "weight -1 must be a number from 0 up"),
        (dict(training={"epochs": 3}), "training must be a Training or None, not a dict"),
        (dict(training=Training(), lr=0.1), "lr is a part of `training`; give either, not both"),
        (dict(learning_rate=0.1), "unknown setting of a Learner 'learning_rate'"),
        (
            dict(method="retain", refresh_older=False),
            "an option of Retain; make it with that: Learner(network, Retain(",
        ),
        (dict(method="err"), "unknown method 'err'; did you mean"),
        (dict(weighting="relatoin"), "unknown weighting 'relatoin'; did you mean"),
        (dict(inputs=255), "inputs must be a Pixels or an Inputs or a function of 1 argument or None, not 255"),
        (lambda: dict(method=everlearn.ER(Relation)), "weighting must be a Weighting or None, not the class Relation"),
        (lambda: dict(method=everlearn.ER((1, 2))), "weighting must be a Weighting or None, not (1, 2)"),
    ],
)
def test_a_learner_that_cannot_be_made_says_why(wrong, words):
    with refused(words):
        wrong = wrong() if callable(wrong) else wrong
        settings = dict(method=everlearn.ER(), network=linear(), classes=range(4)) | wrong
        Learner(settings.pop("network"), settings.pop("method"), **settings)


@pytest.mark.parametrize(
    ("named", "made"),
    [
        (("er",), lambda: ER(Fixed((1, 1)))),
        (("der++", "fixed"), lambda: DERpp(Fixed((1, 0.2, 0.5)))),
        (("er", "consolidate"), lambda: ER(Consolidate((1, 0.5)))),
        (("rer",), lambda: ER(Relation((1, 0.5)))),
    ],
)
def test_a_name_is_the_object_and_a_training_its_fields(named, made):
    stream, ends = toy(), []
    settings = dict(classes=range(4), inputs=stream.pixels, memory=8)
    for given, more in ((named, dict(training=Training(2, 4, lr=0.05))), ((made(),), dict(epochs=2, batch=4, lr=0.05))):
        torch.manual_seed(0)
        learner = Learner(CNN(stream.shape, 4), *given, **settings, **more)
        for task in stream:
            learner.update(task)
        ends.append(learner.net.theta.detach().clone())
    assert torch.equal(*ends)


def test_a_weighting_that_is_given_takes_the_place_of_the_methods_own():
    learner = Learner(linear(), ER(), Consolidate(), classes=range(4))
    assert isinstance(learner.method.weighting, Consolidate)
    assert isinstance(Learner(linear(), "er", "fixed", classes=range(4)).method.weighting, Fixed)


def test_without_weights_a_method_has_its_own_and_a_learned_weighting_its_preset():
    rows = lambda *given: Learner(linear(), *given, classes=range(4)).method.weighting
    assert rows("er").row.tolist() == [1, 1] and rows("er", "relation").preset.tolist() == [1, 0.5]
    for weights in (rows("der++").row, rows("der++", "relation").preset):
        assert weights.tolist() == pytest.approx([1, 0.2, 0.5])
    assert rows("der").row.tolist() == rows("der", "consolidate").preset.tolist() == pytest.approx([1, 0.3])


def test_a_method_as_an_object_weighs_as_its_name_does_in_a_run():
    settings = dict(classes=["0", "1", "2", "3"], tasks=2, epochs=2, memory=10)
    by_name, by_object = everlearn.run("der++", **settings), everlearn.run(DERpp(), **settings)
    assert by_name["experiment"] == by_object["experiment"] and by_name["class_il"] == by_object["class_il"]
    assert by_name["experiment"]["weighting"]["options"]["weights"] == [1, 0.2, 0.5]
    learner = Learner(linear(), DERpp(), classes=range(4))
    assert learner.method.weighting.row.tolist() == pytest.approx([1, 0.2, 0.5])


@pytest.mark.parametrize("wrong", [dict(interval=2.5), dict(warmup="3"), dict(hidden=0), dict(rrn_lr=1e300)])
def test_a_relation_that_cannot_be_is_refused_when_it_is_made(wrong):
    (name,) = wrong
    with refused(f"{name} "):
        Relation(**wrong)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one here")
def test_a_gpu_that_is_not_there_is_said_not_to_be():
    with refused("torch sees no GPU"):
        Learner(linear(), everlearn.ER(), classes=range(4), device="cuda")


def test_a_method_that_was_refused_can_be_put_right_and_used():
    method = everlearn.ER(Fixed((1,)))
    with refused("ER has 2 loss terms"):
        Learner(linear(), method, classes=range(4))
    method.weighting.weights = (1, 1)
    Learner(linear(), method, classes=range(4))


@pytest.mark.parametrize("name", ["er", "der++", "icarl"])
def test_a_forgotten_sample_is_in_no_row_of_the_memory_the_free_and_the_spare_included(name):
    stream = toy(tasks=2, each=30)
    learner = learner_of(name, stream, memory=10)
    for task in stream:
        learner.update(task)
    assert learner.memory.x[len(learner.memory) :].any()  # turned away last, or left by a memory that was fuller
    learner.forget(lambda sample, label: label in (1, 3))
    state, rows = learner.state(), len(learner.memory)
    gone = {x.numpy().tobytes() for task in stream for x, label in zip(*task.train) if label in (1, 3)}
    assert not gone & {row.numpy().tobytes() for row in state["memory.x"]}
    assert not any(state[key][rows:].any() for key in state if key.startswith(("memory.x", "memory.stored")))


def numbers(count: int, *classes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    y = torch.tensor([classes[n % len(classes)] for n in range(count)])
    return torch.randn(count, 6, generator=random) + y[:, None], y


def plain(outputs: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, outputs))


@pytest.mark.parametrize("steps", [4, 10])
def test_in_the_middle_of_a_task_nothing_is_forgotten(steps):
    learner = Learner(plain(), "der++", classes=range(4), memory=20, epochs=2, batch=10)
    x, y = numbers(100, 0, 1)
    under_way = learner.updating(Task((x, y), None, (0, 1)))
    for _ in range(steps):
        next(under_way)
    under_way.close()
    with refused("of 2 epochs into a task; finish it with update first"):
        learner.forget(lambda x, y: True)
    learner.update(Task((x, y), None, (0, 1)))
    assert sum(learner.forget(lambda x, y: True).values()) == 20


def test_a_method_that_keeps_features_grows_after_it_was_loaded(tmp_path):
    class Featured(ER):
        keeps = ("features",)

    learner = Learner(plain(), Featured(), memory=20, epochs=1, batch=10).update(*numbers(50, 0, 1))
    learner.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved", plain(), method=Featured()).update(*numbers(50, 2, 3))
    assert again.classes == 4 and again.width == 8


def test_an_average_over_half_a_task_is_the_usual_one_without_tasks(tmp_path):
    learner = Learner(plain(), classes=range(4), memory=20, epochs=2, batch=10, average="task")
    learner.update(*numbers(50, 0, 1))
    learner.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved", plain())
    for of in (learner, again):
        for seed in range(120):
            of.observe(*numbers(10, 2, 3, seed=seed))
    assert torch.equal(learner.sgd.average.mean, again.sgd.average.mean)


def test_a_tasks_test_labels_are_among_its_classes():
    x, y = numbers(20, 3, 7)
    learner = Learner(plain(2), classes=[3, 7], memory=10, epochs=1, batch=10)
    with refused("9"):
        learner.update(Task((x, y), (x, torch.full_like(y, 9)), (3, 7)))


def test_in_a_joint_pass_a_trial_of_the_first_step_sees_what_the_step_sees():
    class Tried(ER):
        def direction(self, gradient, step):
            net = step.net
            with torch.no_grad():
                tried.append(self.terms(net.at(net.theta, virtual=True), step.new, step.replay).losses[:, 0])
            return gradient

        def learn(self, new):
            terms = super().learn(new)
            seen.append(terms[0].loss.detach())
            return terms

    tried, seen = [], []
    network = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    settings = dict(epochs=1, batch=10, forward="joint", dtype=torch.float64)
    Learner(network, Tried(), classes=range(4), memory=20, **settings).update(*numbers(40, 0, 1))
    assert len(tried) == 4 and all(map(torch.equal, tried, seen[::2]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64])
def test_numbers_too_coarse_for_what_learns_beside_the_network_are_refused(dtype):
    with pytest.raises(everlearn.BadInput, match=rf"a network of {dtype} .*; give dtype=torch\.float32"):
        everlearn.Learner(torch.nn.Linear(4, 2), dtype=dtype)


@pytest.mark.parametrize("mode", ["forward", "double-backward"])
def test_at_a_learning_rate_of_0_a_relation_learns_nothing_and_nothing_fails(mode):
    learner = everlearn.Learner(
        torch.nn.Linear(4, 2), "er", everlearn.Relation(hypergradient=mode, relation_from_task=1, interval=1), epochs=2
    )
    learner.sgd.lr, before = 0.0, learner.net.theta.detach().clone()
    learner.update(torch.randn(40, 4), torch.arange(40) % 2)
    assert torch.equal(learner.net.theta, before) and learner.net.theta.isfinite().all()


def test_steps_on_mini_batches_keep_the_vector_they_were_made_for():
    """Else another one may have its place, and a recorded step would write where nothing is any more."""
    learner = everlearn.Learner(torch.nn.Linear(4, 2), epochs=1, batch=8)
    x, y = torch.randn(8, 4), torch.arange(8) % 2
    learner.observe(x, y)
    steps = learner._steps
    assert steps.written[0] is learner.net.theta
    learner.observe(x, y + 2)
    assert learner._steps is not steps and learner._steps.written[0] is learner.net.theta

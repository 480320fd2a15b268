"""What a state, a store and a label say is what is run: cases where it would be something else without a word."""

import pytest
import torch
from conftest import toy

import everlearn
from everlearn import BadInput, Experiment, Learner
from everlearn.core.plan import paired
from everlearn.launchers import failure
from everlearn.networks import MLP
from everlearn.weightings.diagnostics import labels


class Odd(everlearn.DER):
    """Keeps every other sample: its memory has empty rows for long."""

    def remember(self, step, terms):
        slots = torch.where(step.slots % 2 == 1, step.slots, step.memory.capacity)
        step.memory.write(slots, step.x, step.y, **self.kept(step, terms))


def test_rows_a_method_leaves_empty_are_masked_in_every_epoch():
    stream, seen = toy(each=12), []

    class Watched(Odd):
        def rehearse(self, dark):
            seen.append((dark.there is None, int(dark.y.min())))
            return super().rehearse(dark)

    network = MLP(stream.shape, 4)
    Learner(network, Watched(), classes=range(4), memory=100, epochs=3, batch=4, inputs=stream.pixels).update(
        stream.tasks[0]
    )
    assert not any(none for none, _ in seen) and all(lowest >= 0 for _, lowest in seen)


def test_a_memory_that_is_whole_is_not_masked():
    stream, seen = toy(each=12), []

    class Watched(everlearn.ER):
        def rehearse(self, memory):
            seen.append(memory.there is None)
            return super().rehearse(memory)

    network = MLP(stream.shape, 4)
    Learner(network, Watched(), classes=range(4), memory=8, epochs=2, batch=4, inputs=stream.pixels).update(
        stream.tasks[0]
    )
    assert seen == [False] * 3 + [True] * 3, "the first epoch begins with none"


def test_partners_of_a_row_lie_side_by_side_so_that_ranks_have_their_own():
    values = torch.arange(8.0)
    assert paired(values, 4).tolist() == [0.5, 2.5, 4.5, 6.5] and paired(values[:2], 4).tolist() == [0, 0, 1, 1]
    halves = [paired(half, 2) for half in values.chunk(2)]
    assert torch.equal(torch.cat(halves), paired(values, 4))


def test_another_name_for_what_is_built_in_is_what_it_names(tmp_path):
    file = tmp_path / "alias.py"
    file.write_text("from everlearn import ER as Mine\n")
    first = Experiment.of(f"{file}:Mine")
    file.write_text("from everlearn import ERACE as Mine\n")
    assert first == Experiment.of("er") and Experiment.of(f"{file}:Mine") == Experiment.of("er-ace")


def test_an_experiment_is_run_as_it_is_or_not_at_all():
    with pytest.raises(everlearn.BadInput, match="has all its settings"):
        everlearn.run(Experiment.of("er", epochs=1), network="cnn")


def test_a_label_says_the_same_to_a_learner_and_to_an_experiment():
    stream = toy()
    make = lambda *words: Learner(MLP(stream.shape, 4), *words, classes=range(4), memory=8, batch=4).method
    assert type(make("er+consolidate").weighting) is everlearn.Consolidate
    with pytest.raises(everlearn.BadInput, match="rer is er weighed by relation"):
        make("rer", "consolidate")
    assert Experiment.of({"name": "rer"}, interval=5) == Experiment.of("er", weighting="relation", interval=5)


class Own(everlearn.Relation):
    """A relation with a tensor of its own."""

    def begin(self, method, net, seed):
        super().begin(method, net, seed)
        self.seen = torch.zeros(())

    def after(self, method, step, terms, direction):
        super().after(method, step, terms, direction)
        self.seen.add_(1)


class Gathering(everlearn.ER):
    """With a part made in __init__ and first written in the second task, and something derived."""

    derived = ("scratch",)

    def __init__(self, weighting=None):
        super().__init__(weighting)
        self.average = everlearn.Average(0.9)

    def begin_task(self, learner, task):
        self.scratch, self.late = torch.ones(3), learner.tasks > 0

    def after_step(self, step, gradient, direction):
        if self.late:
            self.average.update(step.net)


def test_what_a_weighting_and_a_method_of_ones_own_gather_is_found_again():
    stream = toy()
    build = lambda: Learner(
        MLP(stream.shape, 4), Gathering(Own()), classes=range(4), memory=8, batch=4, epochs=2, inputs=stream.pixels
    )
    torch.manual_seed(0)
    learner, states = build(), []
    for task in stream:
        learner.update(task, report=lambda record: states.append(learner.state()))
        states.append(learner.state())
    for state in states:
        again = build()
        again.restore(state)
        for task in stream.tasks[again.tasks :]:
            again.update(task)
        one, other = again.state(), learner.state()
        assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
    assert "method.scratch" not in other and float(other["weighting.seen"]) == 12


class Late(everlearn.ER):
    def end_task(self, learner, task):
        self.mean = everlearn.Average(0.9)
        self.mean.update(learner.net)


def test_a_part_that_could_not_be_found_again_is_refused():
    stream = toy()
    build = lambda: Learner(MLP(stream.shape, 4), Late(), classes=range(4), memory=8, batch=4, inputs=stream.pixels)
    learner = build()
    learner.update(stream.tasks[0])
    with pytest.raises(everlearn.BadInput, match="this state has mean, which Late does not have then"):
        build().restore(learner.state())


class Unsendable(OSError):
    def __init__(self, *, code: int):
        super().__init__(f"code {code}")


def test_an_error_that_cannot_be_sent_between_processes_becomes_a_sentence():
    try:
        raise Unsendable(code=7)
    except OSError as error:
        told = failure(error)
    assert type(told) is everlearn.EverlearnError and "Unsendable: code 7 (test_identity.py" in str(told)


def test_a_training_is_the_same_whether_its_numbers_are_whole_or_not():
    one, other = (Experiment.of("er", lr=lr, momentum=0) for lr in (1, 1.0))
    assert one == other and one.hash == other.hash


def test_labels_of_a_term_of_another_size_are_those_of_its_first_partners():
    from everlearn import Batch, Term, Terms

    new, twice = (Batch(torch.zeros(n, 1), torch.arange(n), torch.zeros(n, 4)) for n in (2, 4))
    terms = Terms([Term(torch.zeros(2), new), Term(torch.arange(4.0), twice)])
    assert labels(terms).tolist() == [[0, 0], [1, 2]] and terms.losses[:, 1].tolist() == [0.5, 2.5]


def test_a_class_in_a_module_is_found_by_its_name():
    assert Experiment.of(Odd()).method.at == "test_identity:Odd"


def test_a_state_of_another_weighting_is_refused_both_ways():
    stream = toy()
    make = lambda weighting: Learner(MLP(stream.shape, 4), "er", weighting, classes=range(4), memory=8, batch=4)
    for one, other in (("relation", "fixed"), ("fixed", "relation"), ("relation", "split")):
        with pytest.raises(everlearn.BadInput, match=r"this state is of (\w+), another weighting than"):
            make(other).restore(make(one).state())


class Forgetful(everlearn.ER):
    def __init__(self, weighting=None, power: float = 2.0):
        super().__init__(weighting)


def test_an_option_that_is_not_kept_would_have_no_effect_and_is_refused():
    with pytest.raises(everlearn.BadInput, match=r"does not keep its option 'power' under that name"):
        Experiment.of(Forgetful, power=7)


def test_what_is_no_experiments_document_is_refused():
    for wrong, words in (
        ({}, "not the document of an experiment"),
        ({"method": 1}, "must be a mapping, not 1"),
        ({"method": {"name": "er"}}, "not the document of an experiment"),
        (Experiment.of("er").document() | {"smoothing": 0.1}, "unknown setting of an experiment 'smoothing'"),
    ):
        with pytest.raises(everlearn.BadInput, match=words):
            Experiment.parse(wrong)


@pytest.mark.parametrize("seed", [-1, 2**63, 10**30])
def test_a_document_has_a_seed_that_a_run_can_have(seed):
    document = Experiment.of("er").document() | {"seed": seed}
    with pytest.raises(BadInput, match=r"seed .* must be a number"):
        Experiment.read(document)

"""What a step is made of, each part by itself: plan, memory, batches, terms, SGD, tape, and a method's say."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import learner_of, toy
from torch import nn
from torch.nn import functional as F

import everlearn
from everlearn import ER, OEWC, SI, Batch, DERpp, Draw, FineTune, LwF, Method, Term
from everlearn.core.feeding import steps_of, viewed
from everlearn.core.memory import Memory
from everlearn.core.part import Part
from everlearn.core.plan import chances, choose, draw, holding, plan_epoch, reservoir, sized
from everlearn.core.rows import rows_of
from everlearn.core.state import Stateful, from_bytes
from everlearn.core.step import SGD, Step, train_step
from everlearn.core.tape import Tape
from everlearn.core.terms import EMPTY, Terms, cross_entropy, distance, seen_by, weighed
from everlearn.core.theta import MainNet
from everlearn.errors import BadInput
from everlearn.methods import oewc
from everlearn.metrics import guesses, right

pytestmark = pytest.mark.usefixtures("stand_ins")
given, st = pytest.importorskip("hypothesis").given, pytest.importorskip("hypothesis.strategies")


# Plans ----------------------------------------------------------------------------------------------------------------
def test_a_plan_of_which_nothing_is_asked_is_an_order_alone():
    (row,) = plan_epoch(0, 0, 0, samples=3, batch=3)
    assert sorted(row.order.tolist()) == [0, 1, 2] and row[1:] == (None, None, None)
    (row,) = plan_epoch(0, 0, 0, samples=3, batch=3, slot_rule=reservoir)
    assert row.slots is None, "without a memory there are none"
    (row,) = plan_epoch(0, 0, 0, samples=3, batch=3, slot_rule=reservoir, capacity=9)
    assert row.slots.tolist() == [0, 1, 2], "nothing was presented before"
    (row,) = plan_epoch(0, 0, 0, samples=3, batch=3, draws=[Draw()])
    assert row.draws.tolist() == [0, 0, 0]


def test_a_memory_that_is_not_written_is_drawn_from_as_it_is():
    for presented, capacity in ((3, 5), (7, 5)):
        plan = plan_epoch(0, 0, 0, samples=40, batch=4, draws=[Draw()], capacity=capacity, presented=presented)
        assert {int(n) for row in plan for n in row.draws} == set(range(min(presented, capacity)))
    assert all(row.slots is None for row in plan)


def test_a_ledgers_places_are_the_plans_slots_and_what_is_drawn_from():
    seen = []

    def place(rng, order):
        seen.append((rng.random(), order.copy()))
        return np.full(order.shape, 7), np.full(len(order), 1)

    plan = plan_epoch(
        3, 1, 2, samples=8, batch=4, draws=[Draw()], capacity=9, presented=9, slot_rule=reservoir, place=place
    )
    assert all(row.slots.tolist() == [7] * 4 and row.draws.tolist() == [0] * 4 for row in plan)
    assert seen[0][0] == np.random.default_rng([3, 1, 2, 3]).random(), "the numbers are the slots'"
    assert seen[0][1].tolist() == [row.order.tolist() for row in plan]


def test_views_are_drawn_for_every_row_of_every_view():
    draws = [Draw(size=2, views=(None, torch.neg)), Draw()]
    assert sized(draws, (None, None), 5) == [5, 5, 2, 2, 5]
    (row,) = plan_epoch(0, 0, 0, samples=5, batch=5, draws=draws, views=(None, None), flip=True)
    assert row.views.shape == (19, 3) and row.draws.shape == (7,)


def test_turns_take_a_fifth_of_the_epochs_number_once_there_are_five_rows():
    rng = lambda: np.random.default_rng(0)
    for epoch in range(7):
        for filled in (4, 5, 14):
            held = draw(rng(), np.array([filled]), [Draw("held")], 40, epoch=epoch)[0]
            turn = epoch % 5 if filled >= 5 else 0
            assert set(held) == set(range(turn, filled, 5))
            others = draw(rng(), np.array([filled]), [Draw("others")], 40, epoch=epoch)[0]
            assert set(others) == set(range(filled)) - set(held)
            assert set(draw(rng(), np.array([filled]), [Draw("outer")], 40, epoch=epoch)[0]) == set(range(0, filled, 5))
    assert set(draw(rng(), np.array([9]), [Draw("held")], 40)[0]) == {0, 5}, "the first epoch's unless it is said"
    both = draw(rng(), np.array([9]), [Draw(size=2), Draw()], 3)
    assert both.shape == (1, 5)


@given(seed=st.integers(0, 2**31), counts=st.lists(st.integers(0, 12), min_size=1, max_size=5), batch=st.integers(1, 6))
def test_a_choice_is_floyds_number_by_number(seed, counts, batch):
    counts = [*counts, batch - 1, batch, batch + 1]
    rng, drawn = np.random.default_rng(seed), choose(np.random.default_rng(seed), np.array(counts), batch)
    sets = [[] for _ in counts]
    for position in range(batch):
        last = np.maximum(np.array(counts)[:, None] - batch + position, 0)
        for own, top, candidate in zip(sets, last[:, 0], rng.integers(0, last + 1)[:, 0]):
            own.append(int(top if candidate in own else candidate))
    rows = rng.permuted(np.array(sets), axis=1)
    for n, count in enumerate(counts):
        if count < batch:
            rows[n] = np.resize(rng.permutation(max(count, 1)), batch)
    assert drawn.tolist() == rows.tolist()


@given(
    seed=st.integers(0, 2**31),
    presented=st.integers(0, 12),
    capacity=st.integers(1, 8),
    steps=st.integers(1, 5),
    batch=st.integers(1, 5),
)
def test_a_reservoir_is_algorithm_r_number_by_number(seed, presented, capacity, steps, batch):
    n = presented + np.arange(steps * batch)
    wishes = np.random.default_rng(seed).integers(0, n + 1)
    expected = np.full((steps, batch), capacity)
    for k, (count, wish) in enumerate(zip(n, wishes)):
        row = count if count < capacity else min(wish, capacity)
        step = expected[k // batch]
        step[step == row] = capacity
        step[k % batch] = row
    assert reservoir(np.random.default_rng(seed), presented, capacity, steps, batch).tolist() == expected.tolist()
    lots = chances(np.random.default_rng(seed), presented, capacity, steps, batch)
    assert lots[..., 0].ravel().tolist() == np.minimum(n, capacity).tolist()
    assert np.array_equal(lots[..., 1:], np.random.default_rng(seed).random((steps, batch, 2)))


def test_labels_foreseen_without_slots_stay_as_they_are():
    labels, arriving = np.array([0, 1, EMPTY]), np.array([[5, 6], [7, 8], [9, 9]])
    assert holding(labels, arriving, None).tolist() == [labels.tolist()] * 3
    slots = np.array([[0, 2], [1, 0], [0, 1]])
    assert holding(labels, arriving, slots).tolist() == [[0, 1, EMPTY], [5, 1, 6], [8, 7, 6]]
    assert labels.tolist() == [0, 1, EMPTY]


# Memory ---------------------------------------------------------------------------------------------------------------
def test_a_memory_knows_how_much_it_holds_and_says_so():
    memory = Memory(4, torch.zeros(1, 2, dtype=torch.uint8), {"logits": (3,)}, dtype=torch.float64)
    assert (memory.x.shape, memory.x.dtype, memory.y.tolist()) == ((5, 2), torch.uint8, [EMPTY] * 5)
    assert memory.stored["logits"].shape == (5, 3) and memory.stored["logits"].dtype == torch.float64
    assert len(memory) == 0 and not memory.whole and repr(memory) == "<Memory: 0 of 4 samples, 0 classes>"
    x = torch.arange(6, dtype=torch.uint8).view(3, 2)
    memory.fill(x, torch.tensor([5, 7, 5]), logits=torch.ones(3, 3))
    assert repr(memory) == "<Memory: 3 of 4 samples, 2 classes>" and memory.ledger.presented == 3
    assert memory.held()[0].tolist() == x.tolist() and memory.y.tolist() == [5, 7, 5, EMPTY, EMPTY]
    memory.fill(x[2:], torch.tensor([1]), logits=torch.zeros(1, 3))
    assert memory.y.tolist() == [1, EMPTY, EMPTY, EMPTY, EMPTY] and len(memory) == 1
    assert memory.stored["logits"].sum(dim=1).tolist() == [0, 3, 3, 0, 0]


def test_draws_of_a_memory_say_who_is_there_until_it_is_whole():
    memory = Memory(3, torch.zeros(1, 1), {"logits": (1,)})
    memory.write(
        torch.tensor([0, 2]), torch.tensor([[1.0], [3.0]]), torch.tensor([4, 0]), logits=torch.tensor([[5.0], [6.0]])
    )
    one, other = memory.draw(torch.tensor([2, 1, 0, 0, 1]), [2, 3])
    assert one.x[:, 0].tolist() == [3, 0] and one.y.tolist() == [0, 0] and one.there.tolist() == [True, False]
    assert other.y.tolist() == [4, 4, 0] and other.there.tolist() == [True, True, False]
    assert other.stored["logits"][:, 0].tolist() == [5, 5, 0]
    memory.whole = True
    (row,) = memory.draw(torch.tensor([2]), [1])
    assert row.there is None and row.y.tolist() == [0]


# Batches and views ----------------------------------------------------------------------------------------------------
def test_all_views_are_augmented_at_once_and_then_transformed():
    asked = []
    inputs = lambda x, crops: asked.append((x.tolist(), crops)) or x * 10
    new, old = Batch(torch.tensor([1.0, 2.0]), torch.tensor([0, 1])), Batch(torch.tensor([3.0]), torch.tensor([2]))
    first, second = viewed([new, old], [(None, torch.neg), (torch.neg,)], inputs, "crops")
    assert asked == [([1, 2, 1, 2, 3], "crops")]
    assert first.x.tolist() == [10, 20] and [view.x.tolist() for view in first.others] == [[-10, -20]]
    assert first.others[0].y is new.y and second.x.tolist() == [-30] and second.others == ()


def test_a_batchs_views_are_answered_in_one_call_with_who_is_there():
    there = torch.tensor([True])
    other = Batch(torch.tensor([2.0]), torch.tensor([0]))
    batches = [
        Batch(torch.tensor([1.0]), torch.tensor([0]), others=(other,)),
        Batch(torch.tensor([3.0]), torch.tensor([1]), there=there),
    ]
    asked = []

    def net(*xs, there):
        asked.append(([float(x) for x in xs], there))
        return [x * 2 for x in xs]

    first, second = seen_by(net, *batches)
    assert asked == [([1, 2, 3], [None, None, there])]
    assert [float(b.z) for b in (first, first.others[0], second)] == [2, 4, 6] and first.features is None
    net.read = [torch.tensor([7.0]), torch.tensor([8.0]), torch.tensor([9.0])]
    first, second = seen_by(net, *batches)
    assert [float(b.features) for b in (first, first.others[0], second)] == [7, 8, 9]


def test_some_rows_of_a_batch_are_all_that_belongs_to_them():
    of = lambda n: torch.arange(3.0) + n
    batch = Batch(of(0), of(10), of(20), of(30), {"a": of(40)}, of(50) > 51, (Batch(of(60), of(70)),))
    some = rows_of(batch, torch.tensor([2, 0]))
    assert [some.x.tolist(), some.y.tolist(), some.z.tolist(), some.features.tolist()] == [
        [2, 0],
        [12, 10],
        [22, 20],
        [32, 30],
    ]
    assert some.stored["a"].tolist() == [42, 40] and some.there.tolist() == [True, False]
    assert some.others[0].x.tolist() == [62, 60] and some.others[0].z is None and some.others[0].there is None


# Terms ----------------------------------------------------------------------------------------------------------------
X, Y, Z = torch.zeros(3, 2), torch.tensor([0, 1, 1]), torch.tensor([[1.0, 2.0], [0.5, 0.0], [3.0, 1.0]])


def test_what_a_loss_cannot_read_is_said_with_what_was_given():
    seen = Batch(X, Y, Z)
    for ask, words in (
        (lambda: cross_entropy(Batch(X, Y, Z[0])), "logits are [B, C] and labels [B], not float32 [2] and int64 [3]"),
        (lambda: cross_entropy(Batch(X, Y[:2], Z)), "not float32 [3, 2] and int64 [2]"),
        (lambda: cross_entropy(seen, classes=torch.ones(2)), "a mask of 2 classes, bool [2], not float32 [2]"),
        (lambda: cross_entropy(seen, classes=torch.ones(3) > 0), "a mask of 2 classes, bool [2], not bool [3]"),
        (lambda: cross_entropy(seen, prior=torch.ones(3)), "for each of 2 classes, [2], not float32 [3]"),
        (lambda: cross_entropy(seen, prior=torch.ones(2).long()), "for each of 2 classes, [2], not int64 [2]"),
        (lambda: distance(seen), "a batch without recorded logits of the network's own shape"),
        (lambda: Terms([]), "a step has at least one loss term, about the new samples"),
    ):
        with pytest.raises(BadInput) as error:
            ask()
        assert words in str(error.value)


def test_losses_are_row_by_row_under_masks_priors_and_records():
    batch = Batch(X, Y, Z, stored={"logits": Z + torch.tensor([[1.0, 2.0]])})
    row = lambda z, y: float(-F.log_softmax(z, dim=0)[y])
    assert cross_entropy(batch).loss.tolist() == pytest.approx([row(z, y) for z, y in zip(Z, Y)])
    prior = torch.tensor([-1.0, -0.5])
    assert cross_entropy(batch, prior=prior).loss.tolist() == pytest.approx([row(z + prior, y) for z, y in zip(Z, Y)])
    only = cross_entropy(batch, classes=torch.tensor([False, True])).loss
    assert only.tolist() == [torch.inf, 0, 0] and distance(batch).loss.tolist() == [2.5] * 3
    assert not cross_entropy(batch).preserves and cross_entropy(batch).batch is batch


def test_terms_lie_side_by_side_and_rows_that_are_not_there_count_0():
    there = torch.tensor([True, False, True])
    new, old = (
        Term(torch.tensor([1.0, 2.0, 3.0]), Batch(X, Y)),
        Term(torch.tensor([4.0, 5.0, 6.0]), Batch(X, Y, there=there), True),
    )
    terms = Terms([new, old])
    assert terms.losses.tolist() == [[1, 4], [2, 0], [3, 6]] and terms.preserves == [False, True]
    assert terms.size == 3 and terms.new is new.batch and old.masked().tolist() == [4, 0, 6]
    assert float(weighed(terms.losses, torch.tensor([1.0, 0.5]))) == pytest.approx((6 + 5) / 3)


# SGD, a step and its tape ---------------------------------------------------------------------------------------------
def test_an_optimiser_nobody_describes_is_plain_and_a_virtual_step_leaves_no_trace():
    plain = SGD(0.1)
    assert (plain.lr, plain.momentum, plain.weight_decay, plain.average.decay) == (0.1, 0, 0, 0)
    theta, g = torch.ones(2), torch.tensor([1.0, 2.0])
    assert plain.direction(theta, g) is g and plain.velocity is None
    heavy = SGD(0.1, momentum=0.5, weight_decay=0.25)
    assert heavy.direction(theta, g, virtual=True).tolist() == [1.25, 2.25] and not heavy.velocity.any()
    assert heavy.direction(theta, g).tolist() == [1.25, 2.25]
    held = heavy.velocity
    assert (
        heavy.direction(theta, g, virtual=True).tolist()
        == [1.875, 3.375]
        == heavy.direction(theta, g, virtual=True).tolist()
    )
    assert heavy.direction(theta, g).tolist() == held.tolist() == [1.875, 3.375] and heavy.velocity is held


def test_a_step_selects_descends_averages_and_remembers_in_this_order():
    told = []

    class Telling(FineTune):
        def select(self, step):
            told.append("select")

        def direction(self, gradient, step):
            told.append("direction")
            return gradient * 2

        def after_step(self, step, gradient, direction):
            told.append(("after", torch.equal(direction, gradient * 2)))

        def remember(self, step, terms):
            told.append(("remember", step.sgd.average.steps.item(), len(step.tape.last())))

    method, net, sgd, tape = Telling(), MainNet(nn.Linear(2, 2)), SGD(0.5, average=0.9), Tape()
    method.weighting.begin(method, net, 0)
    before = net.theta.detach().clone()
    new = Batch(torch.randn(3, 2), Y)
    g = net.gradient(cross_entropy(seen_by(net.at(net.theta), new)[0]).loss.mean())
    train_step(method, Step(0, net, sgd, None, new.x, new.y, None, new, (), (), tape=tape))
    assert told == ["select", "direction", ("after", True), ("remember", 1, 0)]
    assert torch.allclose(net.theta, before - 0.5 * 2 * g, atol=1e-6)
    assert torch.equal(sgd.average.mean, net.theta) and tape.last()["losses"].shape == (3, 1)


def test_a_tape_keeps_one_row_a_step_without_its_graph():
    tape, leaf = Tape(), torch.ones(2, requires_grad=True)
    for n in range(3):
        tape.keep(a=leaf * n, **({"b": torch.zeros(2)} if n else {}))
    assert tape.read()["a"].tolist() == [[0, 0], [1, 1], [2, 2]] and not tape.read()["a"].requires_grad
    assert tape.last()["a"].tolist() == [2, 2] and tape.read()["b"].shape == (2, 2)
    again = Tape()
    again.restore(tape.read())
    again.keep(a=torch.tensor([9.0, 9.0]))
    assert again.read()["a"].tolist() == [[0, 0], [1, 1], [2, 2], [9, 9]]


def test_a_plans_row_becomes_a_steps_batches():
    seen = []

    class Looking(ER):
        references = 1
        draws = (Draw(size=2), Draw())

        def select(self, step):
            seen.append(step)
            raise KeyError

    method = Looking()
    memory = Memory(4, torch.zeros(1, 1))
    memory.fill(torch.tensor([[10.0], [20.0], [30.0], [40.0]]), torch.arange(4))
    data = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([5, 6, 7])
    body = steps_of(method, None, None, memory, lambda x, crops: x * 2, data)
    rows = torch.tensor([0, 1, 3, 2, 1, 0])
    with pytest.raises(KeyError):
        body(4, SimpleNamespace(order=torch.tensor([2, 0]), draws=rows, slots="slots", views=None), Tape())
    (step,) = seen
    assert (step.number, step.slots, step.x.tolist(), step.y.tolist()) == (4, "slots", [[3], [1]], [7, 5])
    assert step.new.x.tolist() == [[6], [2]] and [b.y.tolist() for b in step.replay] == [[0, 1], [3, 2]]
    assert step.extra == () and [b.x.tolist() for b in step.references] == [[[40], [20]]]


# A method's say -------------------------------------------------------------------------------------------------------
def test_weights_are_inherited_with_the_terms_they_are_of():
    class Same(ER):
        pass

    class Three(ER):
        names = ("new", "memory", "mine")

    class Own(ER):
        names, weights = ("new", "memory", "mine"), (1.0, 2.0, 3.0)

    assert (Same.weights, Same.preset) == ((1.0, 1.0), (1.0, 0.5))
    assert (Three.weights, Three.preset) == ((), None) and (Own.weights, Own.preset) == ((1.0, 2.0, 3.0), None)


def test_a_methods_draws_are_so_many_or_each_as_described():
    class Described(ER):
        draws = (Draw(size=3),)
        references = (Draw("outer"), Draw())

    class Counted(ER):
        draws, references = 2, 1

    assert ER().own_draws() == (Draw(),) and FineTune().own_draws() == ()
    assert Described().all_draws() == ((Draw(size=3),), (), (Draw("outer"), Draw()))
    assert Counted(everlearn.Relation()).all_draws() == ((Draw(),) * 2, (Draw(),) * 2, (Draw(),))


def test_what_a_method_gives_is_a_term_for_each_of_its_names():
    class Wrong(ER):
        learned: list = []

        def learn(self, new):
            return type(self).learned(new)

    net = lambda *xs, there: list(xs)
    new, old = Batch(Z, Y), Batch(Z, Y)
    for learned, words in (
        (lambda new: [], r"Wrong has 1 loss terms and names 2 of them \(new, memory\)"),
        (lambda new: [cross_entropy(new)] * 2, "Wrong has 3 loss terms and names 2"),
        (lambda new: [cross_entropy(new).loss], r"learn must give a list of Term\(loss, batch\), a loss per row"),
        (lambda new: [Term(torch.zeros(2), new)], "a loss per row"),
    ):
        Wrong.learned = staticmethod(learned)
        with pytest.raises(BadInput, match=words):
            Wrong().terms(net, new, (old,))
    terms = ER().terms(net, new, (old,))
    assert terms.preserves == [False, True] and torch.equal(terms.losses[:, 0], terms.losses[:, 1])
    assert float(DERpp().outer(net, (old._replace(stored={"logits": Z + 1}), old))) == pytest.approx(
        1 + float(F.cross_entropy(Z, Y))
    )


def test_a_method_keeps_logits_and_features_in_the_slots_that_were_drawn():
    written = []
    memory = SimpleNamespace(stored={}, write=lambda *given, **kept: written.append((given, kept)))
    terms = Terms([Term(torch.zeros(3), Batch(X, Y, Z, features=X))])
    ER().remember(SimpleNamespace(slots=None, memory=memory), terms)
    assert written == []
    ER().remember(SimpleNamespace(slots="slots", x="x", y="y", memory=memory), terms)
    assert written == [(("slots", "x", "y"), {"logits": Z, "features": X})]
    learner = SimpleNamespace(classes=7, width=5)

    class Both(ER):
        keeps = ("features", "logits")

    assert Both().fields(learner) == {"features": (5,), "logits": (7,)} and ER().fields(learner) == {}


def test_parts_are_told_all_that_happens_and_so_are_their_parts():
    told = []

    class Teller(Part):
        def __init__(self, name, *inner):
            self.name, self.other = name, "no part"
            for n, part in enumerate(inner):
                setattr(self, f"part{n}", part)

        def __getattribute__(self, name):
            if name in ("select", "remember", "begin_task", "end_task", "grow", "forget"):
                told.append((vars(self)["name"], name))
            return super().__getattribute__(name)

    whole = Teller("a", Teller("b", Teller("c")), Teller("d"))
    calls = {"select": 1, "remember": 2, "begin_task": 2, "end_task": 2, "grow": 1, "forget": 2}
    for hook, count in calls.items():
        told.clear()
        whole.tell(hook, *[None] * count)
        assert told == [(name, hook) for name in "cbda"], "parts before what they are a part of"


def test_a_state_is_the_tensors_held_and_what_it_does_not_mention_is_gone():
    class Inner(Stateful):
        fleeting = True

        def __init__(self, n):
            self.w = torch.tensor(n)

    class Outer(Stateful):
        derived = ("row",)

        def __init__(self):
            self.row, self.a, self.b, self.inner, self.name = (
                torch.zeros(1),
                torch.ones(1),
                torch.ones(2),
                Inner(3),
                "x",
            )

    of = Outer()
    assert of.state().keys() == {"a", "b", "inner.w"}
    of.restore({"a": torch.tensor([5.0]), "c": torch.tensor([6.0]), "inner.w": torch.tensor(7)})
    assert of.a == 5 and of.c == 6 and of.b is None and of.inner.w == 7 and of.row == 0 and of.name == "x"
    of.restore({"a": torch.tensor([1.0])})
    assert of.inner is None and not Stateful.fleeting and from_bytes(torch.tensor([195, 188])) == "ü"


# Regularisers ---------------------------------------------------------------------------------------------------------
def test_a_fisher_is_the_mean_of_squared_gradients_whatever_the_chunk(monkeypatch):
    assert oewc.CHUNK == 16
    stream = toy(tasks=1, each=6)
    learner = learner_of("oewc", stream, dtype=torch.float64)
    whole = oewc.fisher(learner, stream.tasks[0])
    assert whole.shape == learner.net.theta.shape and (whole >= 0).all() and whole.any()
    monkeypatch.setattr(oewc, "CHUNK", 4)
    assert torch.allclose(oewc.fisher(learner, stream.tasks[0]), whole, atol=1e-12)


def test_a_pull_is_twice_its_strength_times_what_matters_and_how_far_it_is():
    theta = torch.tensor([1.0, 2.0, 3.0])
    learner = SimpleNamespace(tasks=0, net=SimpleNamespace(theta=theta))
    step = SimpleNamespace(net=learner.net, sgd=SimpleNamespace(lr=0.5))
    g = torch.tensor([1.0, 1.0, 1.0])
    for method, matters in ((OEWC(strength=3.0), "fisher"), (SI(strength=3.0, damping=0.5), "importance")):
        method.begin_task(learner, None)
        assert torch.equal(method.direction(g, step), g), "in the first task there is none"
        setattr(method, matters, torch.tensor([0.0, 1.0, 2.0]))
        method.anchor = torch.tensor([0.0, 0.0, 1.0])
        assert method.direction(g, step).tolist() == [1, 1 + 6 * 2, 1 + 6 * 2 * 2]
        before = getattr(method, matters)
        method.begin_task(SimpleNamespace(tasks=1, net=learner.net), None)
        assert getattr(method, matters) is before, "later tasks begin with what is known"
    method.path = torch.zeros(3)
    method.after_step(step, torch.tensor([1.0, -2.0, 3.0]), torch.tensor([2.0, 2.0, 2.0]))
    assert method.path.tolist() == [1, -2, 3]
    method.end_task(learner, None)
    assert method.importance.tolist() == pytest.approx([1 / 1.5, 1, 2 + 3 / 4.5])
    assert torch.equal(method.anchor, theta) and method.anchor is not theta and not method.path.any()


def test_lwfs_heads_and_what_it_distils_before_there_is_a_past():
    learner = SimpleNamespace(classes=4, device="cpu", tasks=0, seen=set(), net=None)
    task = SimpleNamespace(classes=(3, 1))
    for head, mask in (("own", [False, True, False, True]), ("all", None)):
        method = LwF(head=head)
        method.tell("begin_task", learner, task)
        assert (None if method.heads is None else method.heads.tolist()) == mask
        new = Batch(X, Y, Z)
        term = method.distilled(new)
        assert term.preserves and term.loss.tolist() == [0, 0, 0] and term.batch is new
    with pytest.raises(BadInput, match="unknown head 'none'"):
        LwF(head="none")
    assert OEWC(decay=1.0).decay == 1
    with pytest.raises(BadInput, match=r"decay 1.5 must be a number between 0 and 1"):
        OEWC(decay=1.5)


def test_a_methods_help_is_its_own_or_its_files():
    assert ER.__doc__.startswith("The memory is a reservoir") and everlearn.GSS.__doc__.startswith("GSS, greedy")
    assert Method.__doc__.startswith("Fine-tuning") and DERpp.__doc__.startswith("DER++ (Buzzega")


# Accuracies -----------------------------------------------------------------------------------------------------------
def test_accuracies_are_percent_among_all_classes_or_the_tasks_own():
    logits = torch.tensor([[9.0, 1.0, 2.0], [0.0, 5.0, 1.0], [4.0, 0.0, 3.0], [0.0, 1.0, 2.0]])
    labels = torch.tensor([2, 1, 2, 2])
    among_all, among_own = guesses(logits, (2, 1))
    assert among_all.tolist() == [0, 1, 0, 2] and among_own.tolist() == [2, 1, 2, 2]
    assert right(among_all, labels) == 50 and right(among_all, labels).dtype == torch.float64
    assert right(among_own, labels) == 100


@pytest.mark.parametrize(
    "which", [torch.tensor([0.0]), torch.tensor(1), torch.tensor([3]), torch.tensor([-4]), torch.tensor([True])]
)
def test_rows_of_a_batch_are_a_mask_or_numbers_of_rows(which):
    batch = Batch(torch.arange(3.0)[:, None], torch.arange(3), there=torch.tensor([True, False, True]))
    with pytest.raises(everlearn.BadInput, match="a mask bool"):
        batch.rows(which)
    for numbers in (torch.tensor([2, 0]), torch.tensor([-1, 0], dtype=torch.int8)):
        some = batch.rows(numbers)
        assert (some.y.tolist(), some.there.tolist(), some.z) == ([2, 0], [True, True], None)
    assert batch.rows(torch.tensor([False, True, True])).x.tolist() == [[1.0], [2.0]]
    assert not len(batch.rows(torch.tensor([], dtype=torch.long)).y)


def test_a_step_asks_at_parameters_of_its_own_network():
    stream, asked = toy(), []

    class Asking(everlearn.ER):
        def select(self, step):
            here, there = step.ask(step.new), step.ask(step.new, 2 * step.net.theta)
            asked.append(torch.equal(here.z, there.z) or here.z.requires_grad)
            step.ask(step.new, step.net.theta[1:])

    network = everlearn.networks.CNN(stream.shape, 6)
    learner = everlearn.Learner(network, Asking(), classes=range(6), memory=8, batch=4, inputs=stream.pixels)
    with pytest.raises(everlearn.BadInput, match="theta has all parameters in one vector"):
        learner.update(stream.tasks[0])
    assert asked == [False]


def test_asking_changes_nothing_of_what_is_learned():
    stream = toy()

    class Asking(everlearn.ER):
        def select(self, step):
            step.ask(step.new)
            step.ask(step.replay[0], 2 * step.net.theta)

    def learned(method):
        torch.manual_seed(0)
        network = everlearn.networks.ResNet18(stream.shape, 6, width=2)
        learner = everlearn.Learner(network, method, classes=range(6), memory=8, batch=4, inputs=stream.pixels)
        learner.update(stream.tasks[0])
        return learner.logits(stream.tasks[0].test[0])  # by the running statistics of its BatchNorm

    assert torch.equal(learned(Asking()), learned(everlearn.ER()))

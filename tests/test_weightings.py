"""A weighting by itself: its numbers, its phases, its draws, what it refuses, and what is written down of it."""

import copy
import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import learner_of, toy
from torch import nn

import everlearn
from everlearn import ER, Consolidate, DERpp, Draw, Fixed, Relation, Training, Weighting, weightings
from everlearn.core import ranks
from everlearn.core.terms import EMPTY, Batch, Term, Terms, cross_entropy, weighed
from everlearn.core.theta import MainNet
from everlearn.errors import BadInput
from everlearn.networks import CNN
from everlearn.terms import agreement
from everlearn.weightings import Balanced, Split, bilevel, diagnostics, outer
from everlearn.weightings.adam import Adam
from everlearn.weightings.base import Phased, row_of, weights_of
from everlearn.weightings.end_to_end import EndToEnd
from everlearn.weightings.net import RelationReplayNet, norms

pytestmark = pytest.mark.usefixtures("stand_ins")


# Numbers --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name, right, wrong",
    [
        ("hidden", (1, 64), (0, -1, 1.5)),
        ("rrn_lr", (1e-9, 2), (0, -1.0, float("nan"))),
        ("rrn_weight_decay", (0, 0.5), (-0.1, float("nan"), float("inf"))),
        ("interval", (1, 7), (0, -2, 2.5)),
        ("warmup", (0, 3), (-1, 0.5)),
        ("relation_from_task", (1, 4), (0, 1.5)),
    ],
)
def test_a_number_is_taken_from_its_least_on_and_refused_below(name, right, wrong):
    for value in right:
        assert getattr(Relation(**{name: value}), name) == value
    for value in wrong:
        with pytest.raises(BadInput, match=f"^{name} "):
            Relation(**{name: value})


@pytest.mark.parametrize("name", ["order", "hypergradient", "outer_rows", "outer_views"])
def test_a_word_is_one_of_those_known(name):
    for word in (Relation.KNOWN | {"outer_rows": Relation.POOLS})[name]:
        assert getattr(Relation(**{name: word}), name) == word
    with pytest.raises(BadInput, match=f"unknown {name} 'prinned'"):
        Relation(**{name: "prinned"})
    assert dict(Relation.KNOWN) == {
        "order": ("printed", "fresh"),
        "hypergradient": bilevel.HYPERGRADIENTS,
        "outer_views": ("usual", "strong", "mixed"),
    }
    assert Relation.KNOWN | {"outer_views": ("usual", "strong")} == weightings.Labelled.KNOWN
    assert tuple(Relation.POOLS) == tuple(weightings.Labelled.POOLS) == ("all", "turns")
    for kind in (Balanced, Split):
        assert kind.KNOWN == Relation.KNOWN and tuple(kind.POOLS) == ("all",)
        with pytest.raises(BadInput, match="unknown outer_rows 'turns'"):
            kind(outer_rows="turns")


# Weights --------------------------------------------------------------------------------------------------------------
def test_weights_are_those_given_or_the_methods_or_1_and_as_many_as_terms():
    er, derpp = ER(), DERpp()
    assert weights_of(Fixed(), er) == (1, 1) and weights_of(Relation(), er) == (1, 0.5)
    assert weights_of(Fixed(), derpp) == weights_of(Relation(), derpp) == (1, 0.2, 0.5)
    assert weights_of(Fixed((2, 3)), er) == weights_of(Relation(weights=(2, 3)), er) == (2.0, 3.0)
    assert weights_of(Fixed(4), everlearn.FineTune()) == (4.0,) and weights_of(Fixed(), everlearn.LwF()) == (1, 1)
    assert weights_of(Relation(), SimpleNamespace(names=("a", "b"), weights=(5, 6), preset=None)) == (5, 6)
    for kind in (Fixed, Relation, Consolidate):
        for wrong, words in (((1, 2, 3), "weights 1, 2, 3: ER has 2 loss terms, new, memory"), ((1, -2), "weight -2 ")):
            with pytest.raises(BadInput, match=words):
                kind(weights=wrong).check(er)
    row = row_of(Fixed((0.1, 0.2)), er, torch.zeros(1, dtype=torch.float64))
    assert row.dtype == torch.float64 and row.tolist() == [0.1, 0.2]


def test_what_weighs_new_against_old_needs_a_method_that_rehearses():
    for kind in (Consolidate, Relation, EndToEnd, Balanced, weightings.Annealed):
        kind().check(ER())
        with pytest.raises(BadInput, match=f"^{kind.__name__} weighs new .* and FineTune rehearses none"):
            kind().check(everlearn.FineTune())
    with pytest.raises(BadInput, match="Balanced foresees what a reservoir holds, and GSS fills its memory otherwise"):
        Balanced().check(everlearn.GSS())


def test_a_term_whose_weight_is_learned_is_one_of_the_methods():
    for given in ("memory", ("memory",), ("new", "memory"), ()):
        Relation(learned=given).check(ER())
    for given in ("dark", ("new", "dark")):
        with pytest.raises(BadInput, match="unknown term of ER 'dark'"):
            Relation(learned=given).check(ER())


def begun(weighting, method=None, **more) -> MainNet:
    net = MainNet(nn.Linear(3, 2), **more)
    weighting.begin(method or ER(weighting), net, seed=5)
    return net


def losses_and_norms(rows: int = 4) -> Terms:
    random = torch.Generator().manual_seed(0)
    batch = lambda: Batch(
        torch.zeros(rows, 3), torch.zeros(rows, dtype=torch.long), torch.randn(rows, 2, generator=random)
    )
    return Terms([Term(torch.rand(rows, generator=random), batch()) for _ in range(2)])


def test_the_net_has_weights_of_its_own_seed_and_its_size_and_the_main_nets_precision():
    one, other = Relation(hidden=5), Relation(hidden=5)
    nets = [MainNet(nn.Linear(3, 2), dtype=torch.float64) for _ in range(2)]
    state = torch.get_rng_state()
    one.begin(ER(), nets[0], 5), other.begin(ER(), nets[1], 5)
    assert torch.equal(torch.get_rng_state(), state), "the caller's random numbers are left alone"
    assert torch.equal(one.phi, other.phi) and one.phi.dtype == torch.float64 and one.phi is one.rrn.theta
    torch.manual_seed(5)
    assert torch.equal(
        one.rrn.plain(one.phi.detach()).float(), nn.utils.parameters_to_vector(RelationReplayNet(2, 5).parameters())
    )
    assert one.rrn.module.losses.out_features == 5 and (one.adam.lr, one.adam.weight_decay) == (1e-3, 1e-4)
    assert RelationReplayNet(2).losses.out_features == 16
    assert not one.tried and one.learns is None


def test_weights_that_are_not_learned_are_preset():
    terms = losses_and_norms()
    whole, partly = Relation(), Relation(learned="memory", weights=(0.7, 0.4))
    begun(whole), begun(partly)
    weights = whole.weigh(terms)
    assert torch.equal(weights, whole.rrn.module(terms.losses, norms(terms))) and ((weights > 0) & (weights < 1)).all()
    assert torch.equal(partly.weigh(terms)[:, 1], weights[:, 1]) and (partly.weigh(terms)[:, 0] == 0.7).all()
    assert weights.requires_grad and torch.equal(whole.used(weights), weights)


def test_phi_moves_by_adam_against_the_derivative():
    of, terms = Relation(rrn_lr=0.1), losses_and_norms()
    begun(of, dtype=torch.float64)
    terms.losses = terms.losses.double()
    terms.batches = [batch._replace(z=batch.z.double()) for batch in terms.batches]
    by_weight = torch.linspace(-1, 1, 8, dtype=torch.float64).view(4, 2)
    adam = Adam(of.phi.detach(), 0.1, 1e-4)
    for _ in range(3):
        (derivative,) = torch.autograd.grad(of.weigh(terms), of.phi, by_weight)
        expected = of.phi.detach() - 0.1 * adam.direction(of.phi.detach(), derivative)
        of.improve(of.weigh(terms), by_weight)
        assert torch.allclose(of.phi, expected, rtol=0, atol=1e-12)


def test_adam_has_its_papers_numbers():
    adam = Adam(torch.zeros(2), 0.1)
    assert (adam.betas, adam.eps, adam.weight_decay, adam.lr) == ((0.9, 0.999), 1e-8, 0.0, 0.1)
    assert torch.allclose(adam.direction(torch.ones(2), torch.tensor([1e-8, 2.0])), torch.tensor([0.5, 1.0]), atol=1e-4)


# Phases ---------------------------------------------------------------------------------------------------------------
def test_a_phased_weighting_that_says_nothing_more_keeps_its_preset_throughout():
    of, terms = Phased(weights=(2.0, 3.0)), losses_and_norms()
    begun(of)
    for task, epoch in ((0, 0), (1, 0), (1, 9)):
        of.begin_epoch(task, epoch, 10)
        assert torch.equal(of.loss(ER(), None, terms), weighed(terms.losses, torch.tensor([2.0, 3.0])))
    assert not Weighting().notes(Training(), 5, "er") and not Weighting().schedule(Training())
    assert Weighting().draws((Draw(),)) == (Draw(),)


def test_a_consolidation_turns_from_all_terms_to_those_that_preserve():
    of, terms = Consolidate(weights=(2.0, 3.0)), losses_and_norms()
    begun(of)
    terms.preserves = [False, True]
    for task, epoch, weights in ((0, 9, (2, 3)), (1, 4, (2, 3)), (1, 5, (0, 3)), (1, 9, (0, 3))):
        of.begin_epoch(task, epoch, 10)
        assert torch.equal(of.loss(ER(), None, terms), weighed(terms.losses, torch.tensor(weights)))


def test_in_a_stream_the_warm_up_lasts_until_the_memory_is_full():
    of = Relation()
    for filled, phase in ((False, "warm-up"), (True, "relation")):
        of.begin_stream(filled)
        assert (of.phase, of.every, of.share) == (phase, 1, 0.0) and of.due(1) and of.variant(1) is True
    of.phase = "preset"
    assert not of.due(0) and of.variant(0) is False


@pytest.mark.parametrize("outer_new, shares", [(True, [1, 1 / 2, 1 / 3]), (False, [0, 0, 0])])
def test_new_samples_share_of_the_outer_loss_falls_with_the_tasks(outer_new, shares):
    of = Relation(outer_new=outer_new)
    found = []
    for task in range(3):
        of.begin_epoch(task, 0, 10)
        found.append(of.share)
    assert found == shares


# Draws ----------------------------------------------------------------------------------------------------------------
def test_the_outer_loss_has_draws_of_its_own_after_the_steps():
    own = (Draw(size=4), Draw(views=(None, torch.neg)))
    of = lambda **options: Relation(**options).draws(own)
    assert of() == own * 2 and of(order="fresh") == own * 3 and EndToEnd().draws(own) == own * 2
    pools = lambda draws: [draw.pool for draw in draws]
    assert pools(of(outer_rows="turns")) == ["others"] * 2 + ["held"] * 2
    assert pools(of(outer_rows="turns", order="fresh")) == ["others"] * 4 + ["held"] * 2
    assert pools(Split().draws(own)) == ["inner"] * 2 + ["outer"] * 2
    assert pools(Split(order="fresh").draws(own)) == ["inner"] * 4 + ["outer"] * 2
    assert pools(Balanced().draws(own)) == ["all"] * 2 + ["balanced"] * 2
    assert pools(Balanced(order="fresh").draws(own)) == ["all"] * 4 + ["balanced"] * 2
    strong = of(outer_views="strong")
    assert strong[:2] == own and [draw.views for draw in strong[2:]] == [(outer.strong,), (outer.strong,) * 2]
    assert [draw.size for draw in strong] == [4, None] * 2 and of(outer_views="mixed") == own * 2
    for kind in (Balanced, Split):
        views = [draw.views for draw in kind(outer_views="strong").draws(own)]
        assert views == [draw.views for draw in strong], "whichever rows it is on"


def test_a_strong_view_leaves_out_a_square_of_half_the_side_anywhere():
    torch.manual_seed(0)
    seen, x = set(), torch.full((400, 2, 5, 6), 1e3)
    out = outer.strong(x) == 0
    assert torch.equal(out[:, 0], out[:, 1]), "of all channels"
    for rows, columns in zip(out[:, 0].any(dim=2), out[:, 0].any(dim=1)):
        down, right = rows.nonzero()[:, 0].tolist(), columns.nonzero()[:, 0].tolist()
        assert down == list(range(down[0], down[0] + 2)) and right == list(range(right[0], right[0] + 3))
        seen.add((down[0], right[0]))
    assert seen == {(d, r) for d in range(4) for r in range(4)} and (out[:, 0].sum(dim=(1, 2)) == 6).all()
    flat = outer.strong(torch.ones(5000, 3))
    assert (flat != 0).all() and 0.98 < flat.mean() < 1.02
    kept = outer.strong(x.double()) / 1e3
    kept = kept[kept != 0]
    assert kept.dtype == torch.float64 and kept.min() > 0.6 - 1e-3 and kept.max() < 1.4 + 1e-3


def test_a_mixed_batch_is_each_rows_mean_with_the_one_before_and_its_neighbour_the_labels_of_that():
    batch = Batch(
        torch.tensor([[2.0], [4.0], [8.0]]),
        torch.tensor([0, 1, 2]),
        stored={"logits": torch.arange(3.0)},
        there=torch.tensor([True, False, True]),
    )
    assert outer.mixed(batch).x.tolist() == [[5], [3], [6]] and outer.mixed(batch).y is batch.y
    other = outer.neighbour(batch)
    assert other.y.tolist() == [2, 0, 1] and other.stored["logits"].tolist() == [2, 0, 1] and other.x is batch.x
    assert other.there.tolist() == [True, True, False] and outer.neighbour(batch._replace(there=None)).there is None


# Ranks, forks and fused kernels ---------------------------------------------------------------------------------------
def test_over_several_ranks_only_forward_mode_is_left(monkeypatch):
    net = MainNet(nn.Linear(3, 2))
    monkeypatch.setattr(ranks, "distributed", lambda: True)
    monkeypatch.setattr(ranks, "broadcast", lambda *tensors: None)
    Relation().begin(ER(), net, 0)
    with pytest.raises(BadInput, match="hypergradient double-backward cannot run over several ranks"):
        Relation(hypergradient="double-backward").begin(ER(), net, 0)

    def losses(theta):
        raise NotImplementedError("Trying to use forward AD with own_operation that does not support it")

    theta, weights = torch.zeros(3, requires_grad=True), torch.ones(2, 1)
    with pytest.raises(BadInput, match=r"own_operation, which has no forward-mode .*; over several ranks nothing else"):
        bilevel.check("forward", losses, theta, weights, lambda theta: theta.sum())


def test_a_fork_has_a_turn_of_its_own_while_another_thread_has_the_parents():
    taken, done = threading.Event(), threading.Event()

    def hold():
        with bilevel._turn:
            taken.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait(20)
    if not (child := os.fork()):
        os._exit(int(not bilevel._turn.acquire(timeout=5)))
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_slope_of_what_does_not_depend_on_theta_is_0():
    theta = torch.zeros(3)
    assert bilevel.slope(lambda theta: torch.ones(2), theta, torch.ones(3)).tolist() == [0, 0]
    assert bilevel.slope(lambda theta: theta**2 + theta, theta, torch.arange(3.0)).tolist() == [0, 1, 2]


def test_the_first_dual_number_is_made_in_silence_before_any_other(monkeypatch):
    told, silent = [], bilevel._first_dual
    monkeypatch.setattr(bilevel, "_first_dual", lambda: told.append("first") or silent())
    bilevel.slope(lambda theta: told.append("ours") or theta, torch.zeros(1), torch.ones(1))
    assert told == ["first", "ours"]


# What is written down -------------------------------------------------------------------------------------------------
def spread(values: np.ndarray) -> dict:
    digits = lambda value: float(f"{value:.4g}")
    quantiles = np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95))
    return {"mean": digits(values.mean()), "std": digits(values.std()), "quantiles": [*map(digits, quantiles)]}


def test_an_epochs_record_has_every_terms_spread_over_all_and_by_class():
    random = np.random.default_rng(0)
    values = torch.from_numpy(random.normal(size=(3, 4, 2)))
    labels = torch.from_numpy(random.integers(0, 3, (3, 4, 2)))
    labels[0, 0, 1] = EMPTY
    tape = {"weights": values, "weight_labels": labels, "norms": values + 1}
    tape |= {"proposed": values * 2, "G": values * 3, "labels": labels.flip(0)}
    record = diagnostics.epoch(("a", "b"), tape)
    assert record.keys() == {"weights", "proposed", "G", "norms"}
    for key, times, of in (("weights", 1, labels), ("proposed", 2, labels.flip(0)), ("G", 3, labels.flip(0))):
        for j, name in enumerate(("a", "b")):
            own, classes = (times * values)[..., j].flatten().numpy(), of[..., j].flatten().numpy()
            found = record[key][name]
            assert {k: v for k, v in found.items() if k != "classes"} == spread(own)
            assert found["classes"] == {str(c): spread(own[classes == c]) for c in np.unique(classes)}
    assert record["norms"] == pytest.approx(dict(zip("ab", (values + 1).mean(dim=(0, 1)).tolist())))
    assert diagnostics.epoch(("a",), {"losses": values}) == {}


def test_pairs_to_review_are_rows_of_all_old_tasks_one_after_another():
    stream = toy(tasks=3, each=4)
    sizes = [4, 4, 4]
    whole = [torch.cat(part) for part in zip(*(task.test for task in stream.tasks))]
    rows = [0, 3, 4, 11, 7, 8]
    x, y = diagnostics._among(stream.tasks, sizes, rows)
    assert torch.equal(x, whole[0][rows]) and torch.equal(y, whole[1][rows])


@pytest.fixture(scope="module")
def taught():
    """Learners that have learned two tasks of two classes, and their stream."""
    stream = toy(each=10)
    learners = {}
    for name in ("rer", "rder"):
        learners[name] = learner_of(name, stream, epochs=1, dtype=torch.float64, memory=12)
        for task in stream:
            learners[name].update(task, progress=False)
    return stream, learners


@pytest.mark.parametrize("name", ["rer", "rder"])
def test_a_review_is_the_mean_weight_of_512_pairs_and_the_products_of_mean_gradients(taught, name):
    stream, learner = taught[0], taught[1][name]
    old, new = stream.tasks
    seen = []

    def weigh(terms):
        seen.append(terms)
        return terms.losses.new_tensor([range(len(learner.method.names))]).expand(terms.size, -1)

    learner.net.train()
    found = diagnostics.task(weigh, learner, [old], new)
    (terms,) = seen
    assert terms.size == 512 and set(terms.new.y.tolist()) == {2, 3}
    assert {label for batch in terms.batches[1:] for label in batch.y.tolist()} == {0, 1}
    assert found["validation"]["weights"] == {n: float(k) for k, n in enumerate(learner.method.names)}
    assert found["validation"]["old"] == ("memory" if name == "rder" else "validation")
    assert learner.net.module.training and diagnostics.task(None, learner, [old], new)["validation"] is None
    similarity = found["similarity"]
    held_x, held_y = learner.memory.held()
    assert similarity["classes"] == sorted(set(held_y.tolist())) and similarity["new"] == [2, 3]
    network = copy.deepcopy(learner.net).unbind().eval()
    flat = lambda loss: torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(network.parameters()))])
    loss = lambda x, y: nn.functional.cross_entropy(network(learner.inputs(x)), y)
    rows = lambda x, y, c: (x[y == c][:16], y[y == c][:16])
    x, y = new.test
    for c, row in zip(similarity["classes"], similarity["G"], strict=True):
        theirs = flat(loss(*rows(held_x, held_y, c)))
        if name == "rder":
            z = learner.memory.stored["logits"][: len(held_y)][held_y == c][:16]
            theirs = theirs + flat((network(learner.inputs(rows(held_x, held_y, c)[0])) - z).square().mean())
        for k, value in zip(similarity["new"], row, strict=True):
            assert value == pytest.approx(float(theirs @ flat(loss(*rows(x, y, k)))), rel=1e-6, abs=1e-9)


def test_there_is_no_review_without_old_tasks_or_without_test_samples(taught):
    stream, learner = taught[0], taught[1]["rer"]
    old, new = stream.tasks
    blind = lambda task: everlearn.Task(task.train, None, task.classes)
    for before, now in (([], new), ([old], blind(new)), ([blind(old)], new)):
        assert diagnostics.task(None, learner, before, now) == {}
    assert diagnostics.task(None, learner, [old], new)
    other = everlearn.Task(old.train, old.test, (7,))
    weigh = lambda terms: terms.losses
    assert diagnostics.task(weigh, taught[1]["rder"], [other], new)["validation"] is None, "none of its classes is held"


def test_a_review_is_of_what_is_used_and_none_while_the_relation_sleeps(taught, monkeypatch):
    stream, learner = taught[0], taught[1]["rer"]
    given = []
    monkeypatch.setattr(diagnostics, "task", lambda weigh, *more: given.append(weigh))
    of = copy.copy(learner.method.weighting)
    for first, asleep in ((1, False), (2, False), (3, True)):
        of.relation_from_task = first
        of.review(learner, [stream.tasks[0]], stream.tasks[1])
        assert (given[-1] is None) == asleep
    terms = losses_and_norms()
    terms.losses, terms.batches = terms.losses.double(), [b._replace(z=b.z.double()) for b in terms.batches]
    assert torch.equal(given[0](terms), of.used(of.weigh(terms)))


# The relation's step --------------------------------------------------------------------------------------------------
def identity(*batches, there=()):
    """A network whose logits are its input."""
    return list(batches)


def replayed(rows: int = 3) -> Batch:
    random = torch.Generator().manual_seed(1)
    x, z = (torch.randn(rows, 2, generator=random, dtype=torch.float64) for _ in range(2))
    return Batch(x, torch.tensor([0, 1, 1]), stored={"logits": z}, there=torch.tensor([True, True, False]))


def test_a_mixed_outer_loss_is_half_of_each_halfs_terms():
    batch, of, method = replayed(), Relation(outer_views="mixed"), DERpp()
    mixed = (batch.x + batch.x.roll(1, 0)) / 2
    expected = 0
    for roll in (0, 1):
        y, z, there = (t.roll(roll, 0) for t in (batch.y, batch.stored["logits"], batch.there))
        rows = nn.functional.cross_entropy(mixed, y, reduction="none") + (mixed - z).square().mean(dim=1)
        expected = expected + (rows * there).mean() / 2
    assert of.outer(method, identity, (batch, batch)) == pytest.approx(float(expected))
    plain = Relation().outer(method, identity, (batch, batch))
    assert plain == pytest.approx(float(method.outer(identity, (batch, batch)))) and plain != pytest.approx(expected)
    labelled = weightings.Labelled().outer(method, identity, (batch, batch))
    rows = nn.functional.cross_entropy(batch.x, batch.y, reduction="none") * batch.there
    assert labelled == pytest.approx(2 * float(rows.mean())), "the labels of both draws"


class Kept:
    def __init__(self):
        self.kept = {}

    def keep(self, **tensors):
        self.kept |= tensors


@pytest.mark.parametrize("order", ["printed", "fresh"])
@pytest.mark.parametrize("phase", ["preset", "warm-up", "relation"])
@pytest.mark.parametrize("number", [0, 1])
def test_what_a_step_descends_and_learns_from_by_order_phase_and_turn(monkeypatch, order, phase, number):
    of, terms = Relation(order=order, weights=(1.0, 0.5)), losses_and_norms()
    begun(of)
    of.phase, of.every, of.tried = phase, 2, True
    first, aside, learned = [], [], []
    monkeypatch.setattr(of, "_learn_first", lambda *given: first.append(given))
    monkeypatch.setattr(of, "_aside", lambda *given: aside.append(given) or torch.ones(3))
    monkeypatch.setattr(of, "_learn", lambda *given: learned.append(given))
    step = SimpleNamespace(
        number=number,
        tape=Kept(),
        net=SimpleNamespace(theta=torch.zeros(3)),
        sgd=SimpleNamespace(lr=0.5),
        replay="replay",
        extra="extra",
    )
    weigh, weighing = of.weigh, []
    monkeypatch.setattr(of, "weigh", lambda terms: weighing.append(terms) or weigh(terms))
    loss = of.loss("method", step, terms)
    due, in_use = phase != "preset" and number == 0, phase == "relation"
    assert len(weighing) == (in_use or (due and order == "printed")), "no weights are worked out that nobody uses"
    used = of.weigh(terms).detach() if in_use else torch.tensor([1.0, 0.5])
    assert torch.equal(loss, weighed(terms.losses, used))
    assert len(first) == (due and order == "fresh") and len(aside) == (due and order == "printed" and not in_use)
    assert (of.in_hand is not None) == (due and order == "printed")
    assert step.tape.kept.keys() == ({"weights", "weight_labels"} if in_use else set())
    assert not in_use or torch.equal(step.tape.kept["weights"], used)
    of.after("method", step, terms, torch.full((3,), 2.0))
    assert of.in_hand is None and len(learned) == (due and order == "printed")
    if learned:
        *_, inner, held, stepped = learned[0]
        assert (inner, held) == ("replay", "extra") and stepped.tolist() == [-1.0 if in_use else -0.5] * 3


def test_weights_used_otherwise_learn_from_a_step_of_their_own(monkeypatch):
    of, terms = weightings.Normalised(weights=(1.0, 0.5)), losses_and_norms()
    begun(of)
    of.phase, of.every = "relation", 1
    monkeypatch.setattr(of, "_aside", lambda *given: "aside")
    loss = of.loss(None, SimpleNamespace(number=0, tape=Kept()), terms)
    own = of.weigh(terms).detach()
    used = own * 1.5 / own.sum(dim=1, keepdim=True)
    assert torch.allclose(loss, weighed(terms.losses, used)) and of.in_hand[1] == "aside"
    assert torch.equal(of.in_hand[0], own), "what learns is what the net said"


def test_the_network_is_tried_once_and_keeps_its_random_numbers(monkeypatch):
    of, tried = Relation(), []
    begun(of)
    of.in_hand = None
    monkeypatch.setattr(weightings.relation, "check", lambda *given: tried.append(torch.rand(1)))
    step = SimpleNamespace(
        net=SimpleNamespace(theta=None), new=Batch(torch.zeros(2, 3), torch.zeros(2)), sgd=SimpleNamespace(lr=1)
    )
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    for _ in range(2):
        of.after(ER(), step, None, None)
    assert len(tried) == 1 and of.tried and torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_phi_learns_from_minus_the_step_and_the_outer_losss_share(monkeypatch, share):
    of, terms, asked, improved = Relation(), losses_and_norms(), [], []
    net = begun(of)
    of.share, of.every, of.phase = share, 1, "relation"
    G = torch.arange(8.0).view(4, 2)
    hypergradient = lambda losses, theta, weights, buffer, stepped: asked.append(buffer(theta)) or G
    monkeypatch.setitem(bilevel.HYPERGRADIENTS, "forward", hypergradient)
    monkeypatch.setattr(of, "improve", lambda weights, by: improved.append(by))
    monkeypatch.setattr(of, "outer", lambda method, net, held: torch.tensor(8.0) if held == "held" else None)
    new = Batch(torch.ones(2, 3), torch.tensor([0, 1]))
    step = SimpleNamespace(net=net, new=new, sgd=SimpleNamespace(lr=0.5), tape=Kept())
    of._learn(ER(), step, terms, of.weigh(terms), "inner", "held", net.theta)
    own = nn.functional.cross_entropy(net.at(net.theta)(new.x)[0], new.y)
    assert asked[0].item() == pytest.approx(8 * (1 - share) + share * own.item())
    assert torch.equal(improved[0], G * -0.125) and step.tape.kept.keys() == {"proposed", "G", "labels", "norms"}


def test_a_fresh_orders_step_is_taken_from_the_draws_after_the_methods_own(monkeypatch):
    of, given = Relation(order="fresh"), []
    net = begun(of)
    of.phase, of.every, of.share = "relation", 1, 0.0
    batch = lambda k: Batch(torch.full((2, 3), float(k)), torch.tensor([0, 1]), there=None)
    monkeypatch.setattr(of, "_aside", lambda *_: torch.ones_like(net.theta))
    monkeypatch.setattr(of, "_learn", lambda *all: given.append(all))
    step = SimpleNamespace(
        net=net, new=batch(9), replay=(batch(0),), extra=(batch(1), batch(2)), sgd=SimpleNamespace(lr=0.5)
    )
    of._learn_first(ER(), step)
    *_, inner, held, stepped = given[0]
    assert [float(b.x[0, 0]) for b in (*inner, *held)] == [1, 2] and len(inner) == 1
    assert torch.allclose(stepped, net.theta - 0.5)


def test_a_step_aside_leaves_the_graph_and_the_velocity(monkeypatch):
    of = Relation()
    net = begun(of)
    new = Batch(torch.ones(2, 3), torch.tensor([0, 1]))
    terms = ER().terms(net.at(net.theta), new, (new,))
    weights = torch.full((2, 2), 0.5)
    sgd = everlearn.core.step.SGD(0.1, momentum=0.5)
    sgd.velocity = torch.ones_like(net.theta.detach())
    step = SimpleNamespace(net=net, sgd=sgd)
    found = of._aside(ER(), step, terms, weights)
    expected = net.gradient(weighed(terms.losses, weights))
    assert torch.allclose(found, expected + 0.5) and (sgd.velocity == 1).all()


def test_a_review_leaves_the_callers_randomness_alone_and_is_the_same_again():
    class Noisy(ER):
        draws = (Draw(views=(None, lambda x: x + torch.randn_like(x))),)

        def rehearse(self, memory):
            return [cross_entropy(memory), agreement(memory)]

        names = ("new", "memory", "agreement")

    stream = toy()
    learner = everlearn.Learner(CNN(stream.shape, 4), Noisy(Relation()), classes=range(4), memory=8, epochs=2, batch=4)
    for task in stream:
        learner.update(task)
    before = torch.get_rng_state()
    first, second = (learner.method.weighting.review(learner, stream.tasks[:1], stream.tasks[1]) for _ in range(2))
    assert first == second and torch.equal(torch.get_rng_state(), before)

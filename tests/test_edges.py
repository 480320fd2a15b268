"""Where one case ends and the next begins: what the core does at exactly its limits."""

import hashlib
import inspect
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import toy

import everlearn
from everlearn import Consolidate, Learner, Relation, Weighting, registry
from everlearn.core import ranks
from everlearn.core.ledger import Ledger
from everlearn.core.norm import Norm
from everlearn.core.plan import Draw, draw, plan_epoch, reservoir
from everlearn.core.seeding import Randomness
from everlearn.core.terms import EMPTY, Batch, Term, Terms
from everlearn.core.theta import MainNet, check_norms
from everlearn.errors import Notice
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.store import Recording, Store
from everlearn.networks import CNN, MLP
from everlearn.training import Training
from everlearn.weightings import bilevel, diagnostics, outer


def test_of_a_memory_that_owes_the_lots_from_its_free_share_on_make_up_for_what_went():
    """Random pairing: with f rows free and o owed, a sample takes a row with the chance f / (f + o)."""
    takes = {}
    for lot in (0.0, 0.2499, 0.25, 0.99):
        ledger = Ledger(4)
        ledger.held, ledger.owed = 3, 3
        takes[lot] = ledger._row(0, lot, 0.0), ledger.held, ledger.owed
    assert takes == {0.0: (3, 4, 3), 0.2499: (3, 4, 3), 0.25: (None, 3, 2), 0.99: (None, 3, 2)}


def test_a_class_a_row_behind_the_largest_takes_none_from_it_and_one_two_behind_does():
    ledger = Ledger(5, "balanced")
    ledger.enter([bytes([n]) for n in range(5)], [0, 0, 0, 1, 1])
    ledger.held, ledger.offered = 5, Counter({0: 9, 1: 8})
    assert ledger._row(1, 0.25, 0.0) is None and ledger._row(1, 0.24, 0.0) == 3 and ledger._row(1, 0.24, 0.5) == 4
    assert ledger._row(0, 0.34, 0.0) is None and ledger._row(0, 0.33, 0.99) == 2
    assert [ledger._row(2, lot, other) for lot, other in ((0.9, 0.0), (0.1, 0.5), (0.5, 0.99))] == [0, 1, 2]
    ledger.enter([bytes([n]) for n in range(5)], [0, 0, 3, 3, 2])
    assert [ledger._row(4, lot, 0.5) for lot in (0.0, 0.49, 0.5, 0.99)] == [1, 1, 3, 3], "the largest by lot"


def test_a_ledger_counts_each_sample_once_per_task_and_by_class():
    ledger, order = Ledger(3, "balanced"), np.array([[0, 1], [2, 3], [0, 4]])
    ledger.where = Counter()
    for epoch in range(3):
        ledger.place(np.random.default_rng(0), order, [bytes([n]) for n in range(5)], [0, 0, 1, 2, 2], epoch)
        assert ledger.offered == {0: 3, 1: 1, 2: 1} and ledger.presented == 5 and ledger.held == 3
    assert ledger.state().tolist() == [3, 0, 1, 3, 1, 1]


def test_a_rule_that_looks_at_the_samples_is_offered_each_once_and_counts_copies_only_when_it_is_full():
    ledger, keys = Ledger(4), [bytes([n]) for n in range(6)]
    ledger.where = Counter()
    slots, filled = ledger.offer(np.random.default_rng(0), np.array([[0, 1], [0, 2]]), keys)
    assert slots[:, :, 0].tolist() == [[0, 1], [4, 2]] and filled.tolist() == [0, 2]
    assert slots[1, 0, 2] == 1 and (slots[:, :, 1:] < 1).sum() == 7, "a copy's lot never wins"
    assert (ledger.presented, ledger.held, ledger.where) == (3, 3, None)
    ledger.where = Counter(keys[:3])
    slots, filled = ledger.offer(np.random.default_rng(0), np.array([[3, 4], [5, 0]]), keys)
    assert slots[:, :, 0].tolist() == [[3, 4], [4, 4]] and filled.tolist() == [3, 4]
    assert (ledger.presented, ledger.held) == (3 + 4, 4)


def test_a_strong_view_has_a_contrast_from_0_6_to_1_4_and_noise_of_0_1():
    assert float(outer.strong(torch.zeros(4000, 3)).std()) == pytest.approx(0.1, rel=0.03)
    contrast = outer.strong(torch.full((4000, 1), 1e4)).flatten() / 1e4
    assert float(contrast.min()) == pytest.approx(0.6, abs=0.01) and float(contrast.max()) == pytest.approx(
        1.4, abs=0.01
    )
    assert float(contrast.mean()) == pytest.approx(1, abs=0.02)


def test_without_tasks_a_relation_learns_at_every_step_from_the_memory_alone():
    for filled, phase in ((False, "warm-up"), (True, "relation")):
        weighting = Relation(interval=7, outer_new=True)
        weighting.begin_stream(filled)
        assert (weighting.phase, weighting.every, weighting.share) == (phase, 1, 0.0)
        assert weighting.due(1) and weighting.due(2)


def test_the_relations_turn_to_learn_is_what_a_recorded_step_is_told_apart_by():
    weighting = Relation(interval=3, warmup=0)
    weighting.begin_epoch(1, 0, 4)
    assert [weighting.variant(n) for n in range(5)] == [True, False, False, True, False]
    weighting.begin_epoch(0, 0, 4)
    assert not weighting.variant(0), "before there is an old task there is nothing to learn"


def test_a_consolidation_without_a_warm_up_is_noted_and_one_with_a_warm_up_is_not():
    notes = lambda warmup: Consolidate(warmup=warmup).notes(Training(epochs=4), 5, "er")
    assert len(notes(0)) == 1 and "there is no warm-up: er will learn new samples from the memory only" in notes(0)[0]
    assert notes(1) == notes(3) == notes(None) == []
    assert len(notes(4)) == 1 and "lasts for all epochs" in notes(4)[0]
    assert "a task that does not come" in Consolidate(relation_from_task=6).notes(Training(epochs=4), 5, "er")[0]
    assert Consolidate(relation_from_task=5).notes(Training(epochs=4), 5, "er") == []


@pytest.mark.parametrize("method", [everlearn.OEWC, everlearn.SI, everlearn.LwF, everlearn.GEM])
def test_a_number_that_cannot_be_is_refused_by_every_method_that_has_it(method):
    numbers = {name: p.default for name, p in inspect.signature(method).parameters.items() if type(p.default) is float}
    assert numbers
    for name in numbers:
        for wrong in (-0.5, float("nan"), float("inf")):
            with pytest.raises(everlearn.BadInput, match=name):
                method(**{name: wrong})
    assert everlearn.OEWC(strength=0.0, decay=1.0).decay == 1 and everlearn.OEWC(decay=0.0).decay == 0


def test_batches_share_a_pass_where_that_is_asked_for_or_changes_nothing():
    way = lambda network, **more: MainNet(network, **more).forward.__name__
    normed = lambda: CNN((1, 8, 8), 3)
    assert [way(normed(), fuse=fuse) for fuse in (True, False, None)] == ["_grouped", "_separate", "_separate"]
    assert [way(normed(), fuse=fuse, forward="joint") for fuse in (True, False, None)] == ["_joint"] * 3
    assert way(MLP((1, 8, 8), 3)) == "_joint" and way(torch.nn.Linear(4, 3)) == "_separate"


def test_each_kind_of_choice_has_a_random_stream_of_its_own():
    """Written out: stream 0 has the order, 1 the views, 2 the memory's draws, 3 its slots."""
    seed, task, epoch, samples, batch, capacity = 3, 1, 2, 24, 4, 10
    stream = lambda kind: np.random.default_rng([seed, task, epoch, kind])
    rows = plan_epoch(
        seed, task, epoch, samples=samples, batch=batch, draws=[Draw(), Draw("held")], capacity=capacity,
        presented=7, slot_rule=reservoir, pad=1, flip=True,
    )  # fmt: skip
    column = lambda name: np.stack([getattr(row, name).numpy() for row in rows])
    steps = samples // batch
    assert (column("order") == stream(0).permutation(samples).reshape(steps, batch)).all()
    views, shape = stream(1), (steps, 3 * batch)
    assert (column("views") == np.stack([views.integers(0, n, shape) for n in (3, 3, 2)], axis=-1)).all()
    filled = np.minimum(7 + batch * np.arange(steps), capacity)
    assert (column("draws") == draw(stream(2), filled, [Draw(), Draw("held")], batch, None, epoch)).all()
    assert (column("slots") == reservoir(stream(3), 7, capacity, steps, batch)).all()


EXPERIMENT = Experiment.of("er", memory=20, epochs=1)


def test_all_of_a_run_is_on_the_disk_before_it_comes_to_its_place(tmp_path, monkeypatch):
    """What a power cut must not take: every file, the folder, and, once it is moved, the folder it is in."""
    store, synced = Store(tmp_path), []

    def name(descriptor: int) -> str:
        paths = [tmp_path, *tmp_path.rglob("*")]
        return next(path.name for path in paths if os.path.samestat(path.stat(), os.fstat(descriptor)))

    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append((name(descriptor), store.has(EXPERIMENT))))
    with store.recording(EXPERIMENT) as recording:
        recording.line({"event": "epoch", "epoch": 0})
        recording.checkpoint(lambda: {"a": torch.zeros(2)}, now=True)
        (records, _), (draft, _) = synced
        assert (records, draft[:-16], store.has(EXPERIMENT)) == ("metrics.jsonl", ".checkpoint.", False)
        recording.result({"experiment": EXPERIMENT.document()})
    files = {"experiment.json", "metrics.jsonl", "result.json", f"{EXPERIMENT.name}.part"}
    assert {(file, False) for file in files} <= set(synced)
    assert synced[-1] == (tmp_path.name, True)


def test_a_run_leaves_no_file_open(tmp_path):
    def free() -> int:
        os.close(number := os.open(tmp_path, os.O_RDONLY))
        return number

    before = free()
    with Store(tmp_path).recording(EXPERIMENT) as recording:
        recording.checkpoint(lambda: {"a": torch.zeros(2)}, now=True)
        recording.result({"experiment": EXPERIMENT.document()})
    assert free() == before


class Broken(Exception):
    """The run goes no further."""


def left(store: Store, state: dict) -> Path:
    """The folder of a run that was left after a checkpoint."""
    with pytest.raises(Broken), store.recording(EXPERIMENT) as recording:
        recording.line({"event": "epoch", "epoch": 0})
        recording.checkpoint(lambda: state, now=True)
        recording.line({"event": "epoch", "epoch": 1})
        raise Broken
    return store.part(EXPERIMENT)


def test_a_checkpoint_is_gone_on_from_and_the_records_end_where_it_was_written(tmp_path):
    store, state = Store(tmp_path), {"a": torch.arange(3.0), "step": torch.tensor(7)}
    part = left(store, state)
    with pytest.raises(Broken), store.recording(EXPERIMENT, fresh=False) as again:
        assert {name: tensor.tolist() for name, tensor in again.resumed.items()} == {"a": [0, 1, 2], "step": 7}
        assert (part / "metrics.jsonl").read_text().count("\n") == 1
        raise Broken
    with pytest.raises(Broken), store.recording(EXPERIMENT) as fresh:
        assert fresh.resumed is None and (part / "metrics.jsonl").read_text() == ""
        raise Broken


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("checkpoint", lambda content: content[:-1] + bytes([content[-1] ^ 1]), "is damaged"),
        ("checkpoint", lambda content: bytes([content[0] ^ 1]) + content[1:], "is damaged"),
        ("checkpoint", lambda content: content[:20], "is damaged"),
        ("checkpoint", lambda _: hashlib.sha256(b"tensors").digest() + b"tensors", "is of another version"),
        ("metrics.jsonl", lambda content: content.replace(b"0", b"5"), "goes with other records"),
        ("metrics.jsonl", lambda content: content[:5], "goes with other records"),
    ],
)
def test_a_checkpoint_that_is_not_what_was_written_is_not_gone_on_from(tmp_path, file, change, words):
    store = Store(tmp_path)
    path = left(store, {"a": torch.arange(3.0)}) / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.warns(Notice, match=words), pytest.raises(Broken), store.recording(EXPERIMENT, fresh=False) as again:
        assert again.resumed is None and not (path.parent / "checkpoint").exists()
        raise Broken


def test_a_weighting_that_says_nothing_more_weighs_every_term_1():
    stream = toy(tasks=2)
    make = lambda weighting: Learner(
        CNN(stream.shape, 4), everlearn.DERpp(weighting), classes=range(4), inputs=stream.pixels, memory=8, batch=4
    )
    torch.manual_seed(0)
    one = make(Weighting())
    torch.manual_seed(0)
    other = make(everlearn.Fixed((1, 1, 1)))
    for task in stream:
        one.update(task)
        other.update(task)
    assert torch.allclose(one.net.theta, other.net.theta, atol=1e-6)


def test_over_several_ranks_a_batchnorm_of_ones_own_is_refused_and_ours_is_not():
    check_norms([Norm(4), torch.nn.Linear(2, 2)])
    for layer in (torch.nn.BatchNorm1d(4), torch.nn.BatchNorm2d(4)):
        with pytest.raises(everlearn.BadInput, match=f"the network has a {type(layer).__name__} layer"):
            check_norms([Norm(4), layer])


def test_a_row_is_recorded_under_the_label_of_its_first_partner_and_an_empty_one_under_none():
    batch = lambda *y, there=None: Batch(torch.zeros(len(y), 2), torch.tensor(y), there=there)
    new, there = batch(7, 8), torch.tensor([True, True, False, True])
    batches = [new, batch(1, 2, 3, 4), batch(1, 2, 3, 4, there=there), batch(5)]
    terms = Terms([Term(torch.ones(len(b.y)), b) for b in batches])
    assert diagnostics.labels(terms).tolist() == [[7, 1, 1, 5], [8, 3, EMPTY, 5]]


@pytest.mark.parametrize("mode", ["forward", "double-backward"])
def test_a_lack_of_memory_is_no_fault_of_the_networks(mode):
    def losses(theta):
        raise torch.OutOfMemoryError("the GPU is full")

    theta, weights = torch.zeros(3, requires_grad=True), torch.ones(2, 1)
    with pytest.raises(torch.OutOfMemoryError, match="the GPU is full"):
        bilevel.check(mode, losses, theta, weights, lambda theta: theta.sum())


def test_a_review_is_of_so_many_classes_and_samples_evenly_whatever_there_are():
    of = diagnostics
    assert (of.SAMPLES, of.EACH, of.OLD, of.NEW) == (512, 16, 200, 50)
    assert of.QUANTILES == (0.05, 0.25, 0.5, 0.75, 0.95)
    assert of._some(list(range(7)), 7) == list(range(7)) and of._some(list(range(8)), 3) == [0, 2, 5]
    assert of._some(list(range(100)), 50) == list(range(0, 100, 2))


def test_the_spread_of_a_class_with_one_value_or_of_even_steps_is_plain():
    values, labels = np.append(np.arange(101.0), 7.0), np.append(np.zeros(101, dtype=int), 3)
    of = diagnostics._term(values[::-1], labels[::-1])["classes"]
    assert of["0"]["quantiles"] == [5, 25, 50, 75, 95] and of["0"]["mean"] == 50
    assert of["3"] == {"mean": 7, "std": 0, "quantiles": [7] * 5}


@pytest.mark.parametrize("fast", [True, False])
def test_attention_is_as_fast_after_a_hypergradient_as_before(fast):
    before = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(fast)
        with bilevel.differentiable():
            assert not torch.backends.mha.get_fastpath_enabled()
        assert torch.backends.mha.get_fastpath_enabled() == fast
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def test_a_checkpoint_is_due_once_the_last_is_so_many_seconds_old(tmp_path, monkeypatch):
    with open(tmp_path / "metrics.jsonl", "a") as metrics:
        now = [100.0]
        monkeypatch.setattr("everlearn.experiments.store.time.monotonic", lambda: now[0])
        recording = Recording(tmp_path, metrics, every=8)
        for now[0], due in ((100.0, False), (107.5, False), (108.0, True), (200.0, True)):
            assert recording.due() == due


def test_the_first_task_with_two_phases_is_a_whole_number_from_1_on():
    assert Consolidate(relation_from_task=1).relation_from_task == 1
    for wrong in (0, -1, 1.5):
        with pytest.raises(everlearn.BadInput, match="relation_from_task"):
            Consolidate(relation_from_task=wrong)


def test_what_a_method_and_a_weighting_say_of_themselves_unless_they_say_otherwise():
    assert Weighting.streams and not Consolidate.streams and Relation.streams
    assert (everlearn.ER.memory_factor, everlearn.GSS.memory_factor) == (1, 3)
    method, others = everlearn.Method, [registry.find("method", name) for name in registry.METHODS]
    assert (method.captures, method.averages, method.remembers, method.draws, method.references) == (
        True,
        0,
        False,
        0,
        0,
    )
    assert all(of().captures for of in others)
    assert {of.__name__: of.averages for of in others if of.averages} == {"Retain": 0.999}


def test_as_many_processes_as_gpus_may_run_and_no_more(monkeypatch):
    monkeypatch.setattr(ranks, "distributed", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for processes in ("1", "2"):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        ranks.check_gpus()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(everlearn.BadInput, match="3 processes and 2 GPUs on this machine"):
        ranks.check_gpus()


def test_randomness_left_on_a_gpu_goes_on_without_one():
    state = Randomness().start(3, 1).state()
    again = Randomness().start(0)
    again.restore(state | {"gpu": torch.zeros(16, dtype=torch.uint8)})
    assert torch.equal(again.state()["cpu"], state["cpu"]) and again.state().keys() == {"cpu"}

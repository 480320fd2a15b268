"""Which sample is in which row of the memory: fair, without copies, balanced if it is to be, the same every time."""

from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chi2

import everlearn
from everlearn.core.ledger import KEY, Ledger, firsts, keys, policy
from everlearn.core.memory import Memory
from everlearn.core.terms import EMPTY
from everlearn.learner.forgetting import close_up
from everlearn.learner.growth import reshape

given, st = pytest.importorskip("hypothesis").given, pytest.importorskip("hypothesis.strategies")


class Held:
    """A ledger and the memory it speaks of, as plain lists; samples are numbers."""

    def __init__(self, capacity: int, rule: str = "reservoir", seed: int = 0):
        self.ledger, self.rows, self.random = Ledger(capacity, rule), [], np.random.default_rng(seed)
        self.ledger.where = Counter()

    def offer(self, samples: list[int], labels: list[int], batch: int = 4) -> list[int]:
        """Offer them in this order; how many rows were taken before each step."""
        order = np.arange(len(samples)).reshape(-1, batch)
        names = [str(sample).encode() for sample in samples]
        slots, filled = self.ledger.place(self.random, order, names, labels)
        for step, rows in zip(order.tolist(), slots.tolist()):
            wanted = [row for row in rows if row < self.ledger.capacity]
            assert len(set(wanted)) == len(wanted), "no two samples of a step want one row"
            written = {row: samples[n] for n, row in zip(step, rows) if row < self.ledger.capacity}
            self.rows += [None] * (max(written, default=-1) + 1 - len(self.rows))
            for row, sample in written.items():
                self.rows[row] = sample
            assert None not in self.rows, "rows are taken from the first on"
        assert [name for name, _ in self.ledger.of] == [str(sample).encode() for sample in self.rows]
        assert len(self.rows) == self.ledger.held
        return filled.tolist()

    def forget(self, goes, label) -> None:
        dropped = [label(sample) for sample in self.rows if goes(sample)]
        self.rows = [sample for sample in self.rows if not goes(sample)]
        self.ledger.forget(dropped)
        self.look_up(label)

    def look_up(self, label) -> None:
        x = torch.tensor(self.rows, dtype=torch.long)[:, None]
        self.ledger.look_up(x, torch.tensor([label(sample) for sample in self.rows], dtype=torch.long))
        names = {key: str(sample).encode() for (key, _), sample in zip(self.ledger.of, self.rows)}
        self.ledger.of = [(names[key], c) for key, c in self.ledger.of]
        self.ledger.where = Counter(of for of, _ in self.ledger.of)


def fair(counts: np.ndarray, trials: int) -> bool:
    """Could each of these have been kept equally often? χ² of samples without replacement, 999 in 1000 are below."""
    share = counts.sum() / trials / len(counts)
    expected = trials * share
    value = ((counts - expected) ** 2).sum() / (expected * (1 - share)) * (len(counts) - 1) / len(counts)
    return value < chi2.ppf(0.999, len(counts) - 1)


def test_a_reservoir_keeps_every_sample_equally_often():
    kept, rows, trials = np.zeros(40), np.zeros((40, 10)), 2000
    for seed in range(trials):
        held = Held(10, seed=seed)
        held.offer(list(range(40)), [0] * 40)
        assert len(held.rows) == len(set(held.rows)) == 10
        kept[held.rows] += 1
        rows[held.rows, range(10)] += 1
    assert fair(kept, trials)
    assert not fair(kept + np.linspace(-60, 60, 40), trials), "a χ² that would notice a tilt"
    assert fair(rows[20:].sum(axis=0), trials), "and what came late is in every row"


def test_what_is_in_the_memory_is_not_kept_twice_however_often_it_comes():
    held = Held(10)
    for _ in range(5):
        filled = held.offer([3, 1, 4, 1, 5, 9, 2, 6], [0] * 8)
    assert sorted(held.rows) == [1, 2, 3, 4, 5, 6, 9] and filled == [7, 7]
    for start in range(100, 500, 8):
        held.offer([*range(start, start + 4), *held.rows[:4]], [0] * 8)
        assert len(set(held.rows)) == len(held.rows) == 10
    assert held.ledger.presented == 5 * 8 + 400


def test_what_was_forgotten_makes_room_no_faster_than_is_fair_to_the_rest():
    """40 come, those of one class go, 40 more come: each that could be there is so equally often."""
    trials, label = 2000, lambda sample: sample % 4 == 3
    kept, early = np.zeros(80), np.zeros(80)
    for seed in range(trials):
        held = Held(12, seed=seed)
        first, second = list(range(40)), list(range(40, 80))
        held.offer(first, list(map(label, first)))
        held.forget(label, label)
        assert not any(map(label, held.rows)) and held.ledger.held == len(held.rows)
        held.offer(second[:8], list(map(label, second[:8])))
        early[held.rows] += 1
        held.offer(second[8:], list(map(label, second[8:])))
        kept[held.rows] += 1
        assert len(set(held.rows)) == len(held.rows) == 12 and not held.ledger.owed
    stay = np.array([n for n in range(80) if n >= 40 or not label(n)])
    assert fair(kept[stay], trials) and not kept[[n for n in range(40) if label(n)]].any()
    assert fair(early[stay[stay < 48]], trials), "while rows are still free, too"
    greedy = kept.copy()
    greedy[40:48] *= 1.2
    assert not fair(greedy[stay], trials), "a χ² that would notice the first ones in free rows"


@pytest.mark.parametrize("sizes", [(30, 30, 30), (90, 8, 30), (3, 90, 1, 40)])
def test_a_balanced_memory_has_equally_many_of_each_class_as_far_as_there_are(sizes):
    for seed in range(20):
        held, random = Held(20, "balanced", seed), np.random.default_rng(seed)
        labels = np.repeat(np.arange(len(sizes)), sizes)
        order = random.permutation(len(labels)) if seed % 2 else np.arange(len(labels))  # mixed, or one by one
        order = order[: len(order) // 2 * 2].tolist()
        held.offer(order, labels[order].tolist(), batch=2)
        there = Counter(labels[held.rows].tolist())
        most = max(there.values())
        for c, size in Counter(labels[order].tolist()).items():
            assert there[c] >= min(size, most - 1), (there, sizes)
        assert len(set(held.rows)) == len(held.rows) == 20


def test_a_balanced_memory_keeps_every_sample_of_a_class_equally_often():
    trials, label = 2000, [0] * 24 + [1] * 16 + [0] * 8 + [2] * 24
    kept = np.zeros(len(label))
    for seed in range(trials):
        held = Held(12, "balanced", seed=seed)
        held.offer(list(range(len(label))), label)
        kept[held.rows] += 1
    for c in range(3):
        of = kept[np.array(label) == c]
        assert of.sum() == pytest.approx(4 * trials, rel=0.1) and fair(of, trials)


@pytest.mark.parametrize("rule", ["reservoir", "balanced"])
def test_a_copy_and_a_ledger_found_again_go_on_to_the_same_rows(rule):
    label = lambda sample: sample // 20
    for seed in range(10):
        one, again = (Held(9, rule, seed) for _ in range(2))
        for held in (one, again):
            held.offer(list(range(40)), [label(n) for n in range(40)])
            held.forget(lambda sample: sample % 3 == 1, label)
            held.offer(list(range(40, 72)), [label(n) for n in range(40, 72)])
        before = vars(one.ledger.copy())
        copied = one.ledger.copy()
        state, presented = again.ledger.state(), again.ledger.presented
        again.ledger = Ledger(9, rule)
        again.ledger.restore(presented, state)
        assert again.ledger.where is None, "which has to be looked up"
        again.look_up(label)
        more = list(range(72, 112))
        rest = np.arange(40).reshape(-1, 4), [str(n).encode() for n in more], [label(n) for n in more]
        rows = [ledger.place(np.random.default_rng(seed), *rest) for ledger in (copied, one.ledger, again.ledger)]
        assert all((one == other).all() for other in rows for one, other in zip(rows[0], other))
        assert vars(copied) == vars(one.ledger) == vars(again.ledger) != before


def test_a_copy_leaves_the_first_alone():
    held = Held(6, "balanced")
    held.offer(list(range(8)), [0, 1] * 4)
    before, copied = vars(held.ledger.copy()), held.ledger.copy()
    copied.place(np.random.default_rng(0), np.arange(8).reshape(2, 4), [bytes([n]) for n in range(8)], [2] * 8)
    copied.forget([0])
    assert vars(held.ledger) == before


def test_usual_slots_do_where_a_task_is_larger_than_the_memory_and_nothing_was_forgotten():
    ledger = Ledger(10)
    assert ledger.regular(11) and not ledger.regular(10) and not Ledger(10, "balanced").regular(11)
    ledger.passed(40)
    assert (ledger.presented, ledger.held, ledger.where) == (40, 10, None) and ledger.regular(11)
    ledger.look_up(torch.arange(10)[:, None], torch.zeros(10, dtype=torch.long))
    ledger.forget([0] * 3)
    assert (ledger.presented, ledger.held, ledger.owed) == (28, 7, 9) and not ledger.regular(11)
    ledger.look_up(torch.arange(7)[:, None], torch.zeros(7, dtype=torch.long))
    ledger.place(np.random.default_rng(0), np.arange(12).reshape(3, 4), [bytes([n]) for n in range(12)], [0] * 12)
    assert (ledger.presented, ledger.held, ledger.owed) == (40, 10, 0) and ledger.regular(11), "it is made up for"


def test_samples_are_known_again_by_content_and_label():
    x, y = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [2.0, 1.0]]), torch.tensor([0, 0, 1, 0])
    one, two, three, four = keys(x, y)
    assert one == two and len({one, three, four}) == 3
    for kind in (torch.uint8, torch.long, torch.float64, torch.bfloat16):
        assert keys(x.to(kind), y)[0] == keys(x.to(kind), y)[1] != keys(x.to(kind), y)[3]
    assert keys(x[:0], y[:0]) == []
    assert len(set(keys(torch.arange(3), torch.zeros(3, dtype=torch.long)))) == 3, "a sample may be a single number"


def test_a_memory_of_which_rows_went_closes_up():
    memory = Memory(4, torch.zeros(0, 2), {"logits": (3,)})
    memory.write(torch.arange(4), torch.arange(8.0).view(4, 2), torch.arange(4), logits=torch.arange(12.0).view(4, 3))
    memory.ledger.passed(4)
    close_up(memory, torch.tensor([1, 3]))
    assert memory.x.tolist() == [[2, 3], [6, 7], [0, 0], [0, 0], [0, 0]]
    assert memory.y.tolist() == [1, 3, EMPTY, EMPTY, EMPTY]
    assert memory.stored["logits"][:, 0].tolist() == [3, 9, 0, 0, 0]
    reshape(memory, {"logits": (4,)})
    assert memory.stored["logits"][:2].tolist() == [[3, 4, 5, 0], [9, 10, 11, 0]]


def test_a_memorys_size_and_rule_in_words():
    assert [policy(given) for given in (500, "500", "balanced:500", "balanced", " reservoir:7 ")] == [
        ("reservoir", 500),
        ("reservoir", 500),
        ("balanced", 500),
        ("balanced", None),
        ("reservoir", 7),
    ]
    for wrong in ("fair:5", "balanced:", "balanced:x", "", "2.5"):
        with pytest.raises(everlearn.BadInput, match="neither a whole number of rows nor, say, balanced:500"):
            policy(wrong)


def test_what_was_offered_of_a_class_counts_less_as_its_rows_are_forgotten():
    ledger = Ledger(6, "balanced")
    ledger.of = [(bytes([n]), label) for n, label in enumerate((0, 0, 0, 1, 1, 2))]
    ledger.held, ledger.presented, ledger.offered = 6, 30, Counter({0: 12, 1: 10, 2: 8})
    ledger.forget([0, 1, 1])
    assert ledger.offered == {0: 8, 1: 0, 2: 8}, "in proportion to the rows that are left"
    assert (ledger.held, ledger.presented, ledger.owed, ledger.where) == (3, 15, 0, None)
    ledger.forget([])
    assert (ledger.held, ledger.presented) == (3, 15)


def test_a_ledger_that_owes_or_has_gaps_looks_at_its_samples():
    ledger = Ledger(4)
    ledger.passed(10)
    assert (ledger.presented, ledger.held) == (10, 4)
    assert ledger.regular(5) and not ledger.regular(4), "a task that fits into the memory could fill it with copies"
    ledger.owed = 1
    assert not ledger.regular(5)
    ledger.owed, ledger.held = 0, 3
    assert not ledger.regular(5)
    ledger.held, ledger.rule = 4, "balanced"
    assert not ledger.regular(5)


class Plain:
    """The ledger as its docstrings have it, sample by sample, nothing remembered but who is in which row."""

    def __init__(self, capacity: int, rule: str):
        self.capacity, self.rule, self.rows = capacity, rule, []  # a key and a class each
        self.presented, self.owed, self.offered = 0, 0, Counter()

    def row(self, label: int, lot: float, other: float) -> int | None:
        free = self.capacity - len(self.rows)
        if self.owed and lot >= free / (free + self.owed):
            self.owed -= 1
            return None
        if free:
            return len(self.rows)
        if self.rule == "reservoir":
            return next((row for row in [int(lot * self.presented)] if row < self.capacity), None)
        of = {c: [row for row, (_, own) in enumerate(self.rows) if own == c] for c in {c for _, c in self.rows}}
        most, own = max(map(len, of.values())), of.get(label, [])
        if len(own) + 1 < most:
            largest = [c for c in sorted(of) if len(of[c]) == most]
            return of[largest[int(lot * len(largest))]][int(other * most)]
        return own[int(other * len(own))] if lot * self.offered[label] < len(own) else None

    def place(self, rng, order, keys, labels, epoch) -> tuple[list, list]:
        lots, slots, filled, come = rng.random((*order.shape, 2)), np.full(order.shape, self.capacity), [], 0
        for step, samples in enumerate(order):
            filled.append(len(self.rows))
            for n, sample in enumerate(samples):
                come += 1
                if come > len(keys):
                    continue
                row, held = None, [key for key, _ in self.rows]
                if epoch == 0:
                    self.presented += 1
                    self.offered[labels[sample]] += 1
                if keys[sample] in held:
                    row = held.index(keys[sample]) if lots[step, n, 0] < 1 / (epoch + 1) else None
                elif epoch == 0:
                    row = self.row(labels[sample], *lots[step, n])
                if row is not None:
                    slots[step][slots[step] == row] = self.capacity
                    slots[step, n] = row
                    self.rows[row : row + 1] = [(keys[sample], labels[sample])]
        return slots.tolist(), filled

    def forget(self, label: int) -> list[int]:
        gone = [c for _, c in self.rows if c == label]
        share = self.presented / len(self.rows) if len(self.rows) == self.capacity or self.owed else 1
        stood = max(len(gone), round(len(gone) * share))
        self.rows = [pair for pair in self.rows if pair[1] != label]
        if gone:
            self.offered[label], self.presented = 0, self.presented - stood
            self.owed += (stood - len(gone)) * (self.rule == "reservoir")
        return gone


@given(
    seed=st.integers(0, 2**31),
    rule=st.sampled_from(["reservoir", "balanced"]),
    capacity=st.integers(1, 9),
    batch=st.integers(1, 4),
    tasks=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=5),
)
def test_a_ledger_is_its_plain_transcription_through_any_tasks_and_requests_to_forget(
    seed, rule, capacity, batch, tasks
):
    ledger, plain, random = Ledger(capacity, rule), Plain(capacity, rule), np.random.default_rng(seed)
    for steps, goes, epoch in tasks:
        ledger.enter(*([column[n] for column in plain.rows] for n in (0, 1)))
        samples = random.integers(0, 30, (steps, batch))  # some come again
        keys, labels = [bytes([n]) for n in range(30)], [n % 4 for n in range(30)]
        lots = int(random.integers(2**31))
        slots, filled = ledger.place(np.random.default_rng(lots), samples, keys, labels, epoch)
        assert (slots.tolist(), filled.tolist()) == plain.place(
            np.random.default_rng(lots), samples, keys, labels, epoch
        )
        assert ledger.of == plain.rows and ledger.where == Counter(key for key, _ in plain.rows)
        if random.random() < 0.5:
            ledger.forget(plain.forget(goes))
        own = ledger.presented, ledger.held, ledger.owed, +ledger.offered
        assert ledger.singly
        assert own == (plain.presented, len(plain.rows), plain.owed, +plain.offered)
        again = Ledger(capacity, rule)
        again.restore(ledger.presented, ledger.state())
        assert (again.presented, again.held, again.owed, +again.offered) == own


def test_a_copy_in_two_rows_is_known_until_both_are_taken():
    ledger = Ledger(3)
    ledger.enter([b"a", b"a", b"b"], [0, 0, 0])
    ledger._enter(0, b"c", 1)
    assert ledger.where == {b"a": 1, b"b": 1, b"c": 1} and ledger.rows == {0: [1, 2], 1: [0]}
    ledger._enter(1, b"d", 1)
    assert ledger.where == {b"b": 1, b"c": 1, b"d": 1} and ledger.rows == {0: [2], 1: [0, 1]}
    ledger._enter(2, b"d", 1)
    assert ledger.where == {b"c": 1, b"d": 2} and ledger.rows == {1: [0, 1, 2]}


def test_a_state_from_before_there_were_ledgers_is_a_reservoir_of_what_was_presented():
    for presented, held in ((3, 3), (40, 5)):
        ledger = Ledger(5)
        ledger.restore(presented, None)
        assert (ledger.presented, ledger.held, ledger.owed, ledger.offered) == (presented, held, 0, Counter())
    assert Ledger(5).state().tolist() == [0, 0, 0]
    ledger.offered[2], ledger.singly = 7, True
    assert ledger.state().tolist() == [5, 0, 1, 0, 0, 7]


def test_rows_of_a_methods_own_rule_are_free_again_once_forgotten():
    ledger = Ledger(5)
    ledger.passed(40)
    ledger.forget([0, 1], own=True)
    assert (ledger.presented, ledger.held, ledger.owed) == (3, 3, 0)
    ledger.passed(1)
    ledger.enter([b"a"] * 4, [0] * 4)
    ledger.forget([0])
    assert (ledger.presented, ledger.held, ledger.owed) == (3, 3, 0), "while there was room, nobody else was counted"


def test_samples_that_are_no_copies_are_the_first_of_their_kind():
    x, y = torch.tensor([[1], [2], [1], [1], [3]]), torch.tensor([0, 0, 0, 1, 0])
    assert firsts(x, y).tolist() == [True, True, False, True, True]
    assert firsts(x, y, besides=keys(x[4:], y[4:])).tolist() == [True, True, False, True, False]
    assert KEY == 16 and {len(key) for key in keys(x, y)} == {16}
    large = torch.tensor([2**40])
    assert keys(x[:1], large) != keys(x[:1], large + 1)


def kept_of(learner: everlearn.Learner, first: float) -> int:
    """How many of the samples it holds are numbered from `first` on."""
    return int((learner.memory.held()[0][:, 0] >= first).sum())


def taught(seed: int, epochs: int = 3, memory: int = 40) -> everlearn.Learner:
    network = torch.nn.Linear(1, 2)
    return everlearn.Learner(network, memory=memory, epochs=epochs, batch=16, lr=1e-6, classes=range(2), seed=seed)


def numbered(first: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.arange(first, first + count, dtype=torch.float32)[:, None]
    return x, torch.arange(count) % 2


TRIALS = 8
LESSONS = {  # after 200 samples, 3 epochs of each: what comes then, and its share of all
    "few samples at a time": (lambda learner: [learner.update(*numbered(200 + 5 * n, 5)) for n in range(40)], 1 / 2),
    "one sample at a time": (lambda learner: [learner.update(*numbered(200 + n, 1)) for n in range(50)], 1 / 5),
    "mini-batches": (lambda learner: [learner.observe(*numbered(200 + 20 * n, 20)) for n in range(10)], 1 / 2),
    "as many again": (lambda learner: learner.update(*numbered(200, 200)), 1 / 2),
    "fewer than the memory has rows": (lambda learner: learner.update(*numbered(200, 40)), 1 / 6),
}


@pytest.mark.parametrize("name", LESSONS)
def test_a_memory_is_a_fair_sample_however_it_came(name):
    teach, share = LESSONS[name]
    counts = []
    for seed in range(TRIALS):
        learner = taught(seed).update(*numbered(0, 200))
        teach(learner)
        counts.append(kept_of(learner, 200))
    assert np.mean(counts) == pytest.approx(40 * share, abs=4 * np.sqrt(40 * share * (1 - share) / TRIALS))


def test_a_memory_is_a_fair_sample_of_tasks_of_unequal_epochs():
    counts = []
    for seed in range(TRIALS):
        learner = taught(seed).update(*numbered(0, 200))
        learner.epochs = 12
        counts.append(kept_of(learner.update(*numbered(200, 200)), 200))
    assert np.mean(counts) == pytest.approx(20, abs=4 * np.sqrt(10 / TRIALS))


def test_what_is_kept_beside_a_sample_is_of_any_epoch():
    class Dated(everlearn.ER):
        keeps = ("epoch",)

        def fields(self, learner):
            return super().fields(learner) | {"epoch": ()}

        def begin_task(self, learner, task):
            self.learner = learner

        def kept(self, step, terms):
            return super().kept(step, terms) | {"epoch": terms.new.z[:, 0] * 0 + self.learner.epoch}

    counts = np.zeros(4)
    for seed in range(10):
        learner = everlearn.Learner(
            torch.nn.Linear(1, 2), Dated(), memory=60, epochs=4, batch=16, lr=1e-6, classes=range(2), seed=seed
        )
        learner.update(*numbered(0, 50))
        assert len(learner.memory) == 50
        counts += np.bincount(learner.memory.stored["epoch"][:50].long(), minlength=4)
    assert fair(counts, 500)


@pytest.mark.parametrize("patience", [None, 1])
def test_a_memory_is_a_fair_sample_of_tasks_that_ended_early(patience):
    """By `stop`, which nobody knows of before, or by patience, after which samples are offered singly."""
    counts = []
    for seed in range(TRIALS):
        learner = taught(seed, epochs=30)
        how = dict(validation=numbered(0, 10), patience=patience)
        if patience is None:
            how["on_epoch"] = lambda learner, record: record["epoch"] == 1 and learner.stop()
        for first in (0, 200, 400):
            learner.update(*numbered(first, 200), **how)
        counts.append((kept_of(learner, 200), kept_of(learner, 400)))
    assert np.mean(counts, axis=0) == pytest.approx((80 / 3, 40 / 3), abs=4 * np.sqrt(10 / TRIALS))


def test_a_last_batch_that_is_mostly_topped_up_does_not_count_as_if_it_were_full():
    counts = []
    for seed in range(TRIALS):
        learner = everlearn.Learner(torch.nn.Linear(1, 2), memory=40, epochs=3, batch=256, lr=1e-6, seed=seed)
        for first, count in ((0, 40), (40, 60), (100, 40)):
            learner.update(*numbered(first, count))
        counts.append(kept_of(learner, 40) - kept_of(learner, 100))
    assert np.mean(counts) == pytest.approx(40 * 60 / 140, abs=4 * np.sqrt(10 / TRIALS))


def test_of_more_classes_than_rows_every_one_has_the_same_chance_of_a_row():
    counts = Counter()
    for seed in range(200):
        held = Held(5, "balanced", seed)
        for label in range(20):
            held.offer([10 * label + n for n in range(4)], [label] * 4)
        assert sorted(Counter(label for _, label in held.ledger.of).values()) == [1] * 5
        counts.update(label for _, label in held.ledger.of)
    deviation = sum((counts[label] - 50) ** 2 / 50 for label in range(20))
    assert deviation < chi2.ppf(0.999, 19)

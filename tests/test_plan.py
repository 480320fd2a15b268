"""The randomness of an epoch is data, and it is the right randomness."""

import numpy as np
import pytest
import torch

from everlearn.core.memory import EMPTY, Memory
from everlearn.core.plan import POOLS, Draw, balanced, choose, draw, holding, paired, plan_epoch, reservoir
from everlearn.errors import BadInput


def survivors(count: int, capacity: int, batch: int, seed: int) -> list[int]:
    """The samples left in a reservoir after `count` were presented one by one as the plan says."""
    rows = reservoir(np.random.default_rng(seed), 0, capacity, count // batch, batch).ravel()
    held = {}
    for sample, row in enumerate(rows):
        if row < capacity:
            held[row] = sample
    return list(held.values())


def chi_square(counts: np.ndarray, expected: float) -> float:
    """Standardised: near 0 for a fair draw, its standard deviation 1."""
    statistic, freedom = ((counts - expected) ** 2 / expected).sum(), len(counts) - 1
    return (statistic - freedom) / np.sqrt(2 * freedom)


def test_every_presented_sample_is_as_likely_to_be_in_the_reservoir():
    trials, count, capacity = 3000, 120, 12
    counts = np.zeros(count)
    for seed in range(trials):
        kept = survivors(count, capacity, 10, seed)
        assert len(kept) == capacity
        counts[kept] += 1
    # A sample is in or out: its count has variance n p (1 − p), so the statistic is 1 − p times a multinomial's.
    assert (
        abs(
            chi_square(
                (counts - trials * capacity / count) / np.sqrt(1 - capacity / count) + trials * capacity / count,
                trials * capacity / count,
            )
        )
        < 4
    )


def test_a_biased_reservoir_would_be_noticed():
    counts = np.full(120, 300.0)
    counts[:60] += 60
    assert abs(chi_square(counts, 300)) > 4


@pytest.mark.parametrize("seed", range(5))
def test_a_reservoir_planned_an_epoch_at_a_time_is_algorithm_r_one_by_one(seed):
    """The rows two samples of one step compete for go to the last, as if they had come one after the other."""
    capacity, steps, batch, presented = 5, 40, 8, 3
    planned = reservoir(np.random.default_rng(seed), presented, capacity, steps, batch)
    n = presented + np.arange(steps * batch)
    uniform = np.random.default_rng(seed).integers(0, n + 1)
    one_by_one, at_once = {}, {}
    for sample, (count, wish) in enumerate(zip(n, uniform)):
        row = count if count < capacity else wish
        if row < capacity:
            one_by_one[row] = sample
    for step in range(steps):
        kept = [row for row in planned[step] if row < capacity]
        assert len(set(kept)) == len(kept), "a write would have to choose"
        at_once |= {row: step * batch + position for position, row in enumerate(planned[step]) if row < capacity}
    assert at_once == one_by_one


@pytest.mark.parametrize("pool", POOLS)
def test_a_draw_is_without_replacement_from_the_filled_rows_of_its_pool(pool):
    filled = np.array([60, 70, 80])
    rows = draw(np.random.default_rng(0), filled, [Draw(pool)], 10)
    for row, count in zip(rows, filled):
        assert len(set(row)) == 10 and row.min() >= 0 and row.max() < count
        assert all((number % 5 == 0) == (pool == "outer") for number in row) or pool == "all"


def test_inner_and_outer_rows_part_the_memory_four_to_one():
    inner, outer = (set(row_of(np.arange(size(100, 0)), 0)) for size, row_of in (POOLS["inner"], POOLS["outer"]))
    assert not inner & outer and inner | outer == set(range(100)) and len(outer) == 20


def test_every_row_is_as_likely_to_be_drawn_and_as_likely_to_come_first():
    drawn = choose(np.random.default_rng(0), np.full(20_000, 40), 10)
    assert (
        abs(
            chi_square(
                np.bincount(drawn.ravel(), minlength=40) / np.sqrt(1 - 10 / 40), 20_000 * 10 / 40 / np.sqrt(1 - 10 / 40)
            )
        )
        < 4
    )
    assert abs(chi_square(np.bincount(drawn[:, 0], minlength=40), 500)) < 4


def test_a_memory_smaller_than_the_batch_gives_every_row_before_any_again():
    drawn = choose(np.random.default_rng(0), np.array([3, 1, 0]), 8)
    assert sorted(np.bincount(drawn[0], minlength=3)) == [2, 3, 3]
    assert set(drawn[1]) == set(drawn[2]) == {0}


def test_an_epoch_shows_every_sample_and_tops_up_the_last_batch():
    plan = plan_epoch(0, 0, 0, samples=23, batch=5)
    shown = torch.stack([row.order for row in plan])
    assert shown.shape == (5, 5) and set(shown.flatten().tolist()) == set(range(23))
    assert plan_epoch(0, 0, 0, samples=3, batch=5)[0].order.bincount().tolist() in ([2, 2, 1], [2, 1, 2], [1, 2, 2])


def same(a: list, b: list, part: str) -> bool:
    return all(torch.equal(getattr(x, part), getattr(y, part)) for x, y in zip(a, b, strict=True))


def test_a_plan_is_a_function_of_seed_task_and_epoch():
    make = lambda *key, **more: plan_epoch(
        *key, samples=50, batch=5, draws=[Draw()], capacity=20, slot_rule=reservoir, pad=4, flip=True, **more
    )
    plan, again = make(1, 2, 3), make(1, 2, 3)
    for part in ("order", "draws", "slots", "views"):
        assert same(plan, again, part)
    for other in (make(0, 2, 3), make(1, 0, 3), make(1, 2, 0)):
        assert not same(plan, other, "order") and not same(plan, other, "views")


def test_methods_that_draw_differently_see_the_same_order_and_keep_the_same_samples():
    make = lambda draws: plan_epoch(0, 0, 0, samples=50, batch=5, draws=draws, capacity=20, slot_rule=reservoir)
    one, two = make([Draw()]), make([Draw(), Draw()])
    assert same(one, two, "order") and same(one, two, "slots")


def test_a_balanced_draw_takes_every_class_in_turn_and_no_row_twice():
    labels = np.array([0] * 12 + [1] * 5 + [2, EMPTY, EMPTY])
    filled = np.full(2000, 18)
    drawn = balanced(np.random.default_rng(0), filled, np.broadcast_to(labels, (2000, 20)), 10)
    counts = np.stack([(labels[drawn] == label).sum(axis=1) for label in (0, 1, 2)], axis=1)
    assert set(map(tuple, counts)) == {(5, 4, 1), (4, 5, 1)}  # two have more than one row, and take turns
    assert all(len(set(rows)) == 10 for rows in drawn)
    share = np.bincount(drawn.ravel(), minlength=20)[:17] / 2000
    assert (
        abs(share[:12] - 4.5 / 12).max() < 0.05 and abs(share[12:] - 4.5 / 5).max() < 0.05
    )  # within a class all alike
    few = balanced(np.random.default_rng(0), np.array([3, 0]), np.broadcast_to(labels, (2, 20)), 10)
    assert sorted(np.bincount(few[0])) == [3, 3, 4]  # all of them before any comes again
    assert set(few[1]) == {0}


def test_the_plan_knows_which_labels_the_memory_holds_at_every_step():
    """What `holding` foresees is what a memory written step by step holds."""
    random = np.random.default_rng(0)
    memory, labels = Memory(12, torch.zeros(1, 1, 2, 2, dtype=torch.uint8)), random.integers(0, 3, 50)
    for epoch in range(2):
        now = memory.y.numpy().copy()
        settings = dict(samples=50, batch=5, draws=[Draw("balanced")], capacity=12, slot_rule=reservoir)
        plan = plan_epoch(0, 0, epoch, presented=50 * epoch, labels=(now, labels), **settings)
        held = holding(now, labels[np.stack([row.order for row in plan])], np.stack([row.slots for row in plan]))
        for row, foreseen in zip(plan, held):
            assert memory.y[:12].tolist() == foreseen[:12].tolist()
            if (memory.y[:12] != EMPTY).sum() >= 5:
                taken = memory.y[row.draws].bincount(minlength=3)
                there = memory.y[:12][memory.y[:12] != EMPTY].bincount(minlength=3)
                assert all(
                    a == n or a >= taken.max() - 1 for a, n in zip(taken, there)
                )  # none is behind but for want of rows
            y = torch.from_numpy(labels)[row.order]
            memory.write(row.slots, torch.zeros(5, 1, 2, 2, dtype=torch.uint8), y)


def test_the_spare_row_swallows_the_rejected_and_empty_rows_are_labelled_so():
    memory = Memory(2, torch.zeros(1, 1, 2, 2, dtype=torch.uint8), {"logits": (3,)})
    x, y, z = torch.ones(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 2, 1]), torch.randn(4, 3)
    memory.write(torch.tensor([2, 0, 2, 2]), x, y, logits=z)
    assert (
        memory.y[:2].tolist() == [1, EMPTY] and torch.equal(memory.stored["logits"][0], z[1]) and memory.x[1].sum() == 0
    )


def test_a_term_of_another_number_of_rows_is_averaged_or_repeated_side_by_side():
    values = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    assert paired(values, 6) is values
    assert paired(values, 3).tolist() == [1.5, 6.0, 24.0] and paired(values, 1).tolist() == [10.5]
    assert paired(values[:3], 6).tolist() == [1, 1, 2, 2, 4, 4]
    with pytest.raises(BadInput, match="a term of 6 rows and new batches of 4; one must be a multiple of the other"):
        paired(values, 4)


def test_crops_are_within_the_padding_and_a_flip_is_yes_or_no():
    views = lambda **more: torch.cat([row.views for row in plan_epoch(0, 0, 0, samples=400, batch=4, **more)])
    both = views(pad=2, flip=True)
    assert [sorted(set(column.tolist())) for column in both.T] == [[*range(5)], [*range(5)], [0, 1]]
    assert sorted(set(views(pad=2)[:, 2].tolist())) == [0], "none is flipped unless it is asked for"
    assert views(flip=True)[:, :2].eq(0).all() and set(views(flip=True)[:, 2].tolist()) == {0, 1}
    assert plan_epoch(0, 0, 0, samples=4, batch=4)[0].views is None


def test_the_same_seed_draws_the_same_rows_as_ever():
    """Runs are repeated from their seeds, so what a seed draws is for ever: change it, and every record is void."""
    filled, labels = np.array([9, 12]), np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 1, 0])
    rows = lambda *pools: draw(
        np.random.default_rng(5), filled, [Draw(pool) for pool in pools], 4, np.stack([labels, labels]), epoch=7
    ).tolist()
    drawn = {pool: rows(pool) for pool in ("all", "inner", "outer", "held", "others", "balanced")}
    assert drawn == {
        "all": [[4, 5, 3, 0], [3, 5, 7, 8]],
        "inner": [[3, 6, 7, 1], [3, 9, 6, 7]],
        "outer": [[5, 0, 5, 0], [10, 0, 5, 10]],
        "held": [[2, 7, 2, 7], [7, 2, 7, 2]],
        "others": [[3, 5, 6, 0], [3, 5, 6, 8]],
        "balanced": [[4, 1, 7, 2], [4, 2, 9, 7]],
    }


@pytest.mark.parametrize("turn", range(5))
def test_a_memory_of_any_size_is_parted_by_every_fifth_row_from_the_turns_own_on(turn):
    for rows in range(24):
        outer = [row for row in range(rows) if row % 5 == turn]
        inner = [row for row in range(rows) if row not in outer]
        for pool, expected in (("outer", outer), ("inner", inner), ("all", list(range(rows)))):
            size, row_of = POOLS[pool]
            assert row_of(np.arange(size(rows, turn)), turn).tolist() == expected

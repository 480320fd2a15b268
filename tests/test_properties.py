"""Plans, memories, stores and file formats, for any sizes and contents."""

import json
import string
import struct

import numpy as np
import pytest
import torch

from everlearn import Draw, Experiment
from everlearn.core.layout import Layout, write_back
from everlearn.core.memory import Memory
from everlearn.core.plan import choose, paired, plan_epoch, reservoir
from everlearn.core.state import as_bytes, from_bytes, joined, part
from everlearn.data.formats import idx
from everlearn.errors import EverlearnError, printable
from everlearn.learner.labels import Labels, coded
from everlearn.spec import frozen

hypothesis = pytest.importorskip("hypothesis")
given, st = hypothesis.given, pytest.importorskip("hypothesis.strategies")
SIZES = dict(
    samples=st.integers(1, 40), batch=st.integers(1, 9), capacity=st.integers(1, 12), presented=st.integers(0, 30)
)


@given(seed=st.integers(0, 2**31), task=st.integers(0, 9), epoch=st.integers(0, 9), **SIZES)
def test_a_plan_is_a_function_of_its_seed_and_sees_every_sample(seed, task, epoch, samples, batch, capacity, presented):
    settings = dict(samples=samples, batch=batch, capacity=capacity, presented=presented, slot_rule=reservoir, pad=1)
    made = lambda: plan_epoch(seed, task, epoch, draws=(Draw(), Draw("all", batch)), flip=True, **settings)
    rows, same = made(), made()
    assert len(rows) == -(-samples // batch)
    for row, again in zip(rows, same):
        assert all(torch.equal(a, b) for a, b in zip(row, again))
    order = torch.cat([row.order for row in rows])
    assert order[:samples].sort().values.tolist() == list(range(samples))
    assert torch.equal(order[samples:], order[: len(order) - samples]) or samples < batch
    for n, row in enumerate(rows):
        held = min(presented + n * batch, capacity)
        assert row.draws.shape == (2 * batch,) and int(row.draws.min()) >= 0
        assert int(row.draws.max()) < max(held, 1), "only rows that are written are drawn"
        for drawn in row.draws.split(batch):
            assert len(set(drawn.tolist())) == min(batch, max(held, 1)), "all before any again"
        kept = [slot for slot in row.slots.tolist() if slot < capacity]
        assert len(set(kept)) == len(kept) and max(row.slots.tolist()) <= capacity, "no row is written twice"
        assert (
            row.views.shape == (3 * batch, 3) and int(row.views[:, :2].max()) <= 2 and int(row.views[:, 2].max()) <= 1
        )


@given(seed=st.integers(0, 2**31), **SIZES)
def test_a_reservoir_takes_the_first_samples_in_order(seed, samples, batch, capacity, presented):
    slots = reservoir(np.random.default_rng(seed), presented, capacity, samples * batch, 1).ravel()
    first = max(0, capacity - presented)
    assert slots[:first].tolist() == list(range(presented, presented + min(first, len(slots))))


@given(seed=st.integers(0, 2**31), counts=st.lists(st.integers(0, 20), min_size=1, max_size=6), batch=st.integers(1, 8))
def test_a_choice_is_of_different_numbers_below_each_count(seed, counts, batch):
    for count, row in zip(counts, choose(np.random.default_rng(seed), np.array(counts), batch)):
        assert set(row) <= set(range(max(count, 1))) and len(set(row)) == min(batch, max(count, 1))


@given(
    capacity=st.integers(1, 8),
    writes=st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True), max_size=6),
)
def test_a_memory_holds_what_was_written_last(capacity, writes):
    memory = Memory(capacity, torch.zeros(1, 2), {"logits": (3,)})
    held: dict[int, int] = {}
    for n, rows in enumerate(writes):
        rows = [min(row, capacity) for row in rows]
        rows = list(dict.fromkeys(rows))
        x = torch.full((len(rows), 2), float(n))
        memory.write(torch.tensor(rows), x, torch.tensor(rows), logits=torch.full((len(rows), 3), float(n)))
        held |= dict.fromkeys((row for row in rows if row < capacity), n)
    (drawn,) = memory.draw(torch.arange(capacity), [capacity])
    assert drawn.there.tolist() == [row in held for row in range(capacity)]
    for row, n in held.items():
        assert (
            drawn.x[row].tolist() == [n, n] and drawn.y[row] == row and drawn.stored["logits"][row].tolist() == [n] * 3
        )
    state = memory.state()
    again = Memory(capacity, torch.zeros(1, 2), {"logits": (3,)})
    again.restore(state)
    assert all(torch.equal(state[name], tensor) for name, tensor in again.state().items())


@given(st.text())
def test_words_in_a_state_come_back(words):
    words = words.encode(errors="replace").decode()
    assert from_bytes(as_bytes(words)) == words


@given(
    st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.sampled_from(["x", "y.z", "b.x"]), st.integers(0, 9)))
)
def test_parts_of_a_state_are_found_again(parts):
    tensors = {of: {name: torch.tensor(n) for name, n in inner.items()} for of, inner in parts.items()}
    flat = joined(tensors)
    assert all(part(flat, of) == inner for of, inner in tensors.items())


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@given(PLAIN)
def test_plain_data_can_be_hashed_and_written_down(value):
    kept = frozen(value)
    assert hash(kept) == hash(frozen(json.loads(json.dumps(kept))))


@given(
    lr=st.floats(1e-6, 10),
    batch=st.integers(1, 512),
    seed=st.integers(0, 2**40),
    memory=st.one_of(st.integers(1, 9999), st.integers(1, 999).map("balanced:{}".format)),
)
def test_an_experiment_is_found_again_from_its_document_under_the_same_name(lr, batch, seed, memory):
    made = Experiment.of("rer", "digits", lr=lr, batch=batch, seed=seed, memory=memory, device="cpu")
    again = Experiment.parse(json.loads(json.dumps(made.document())))
    assert again == made and again.hash == made.hash and again.name == made.name
    other = Experiment.of("rer", "digits", lr=lr, batch=batch, seed=seed + 1, memory=memory, device="cpu")
    assert other.hash != made.hash
    assert set(made.name) <= {*string.ascii_letters, *string.digits, *"._-+"}, "a folder any system takes"


@given(st.lists(st.one_of(st.integers(), st.text(max_size=4), st.booleans()), min_size=1, max_size=20))
def test_labels_are_numbered_and_found_again(labels):
    names, codes = coded(labels)
    assert [names[code] for code in codes] == labels and len(set(names)) == len(names)
    known = Labels(None)
    known.add(known.new(names))
    assert sorted(known.numbers(names)) == list(range(len(names)))
    assert Labels.parse(json.loads(json.dumps(known.document()))).names == known.names


@given(st.text())
def test_what_is_shown_has_visible_characters_alone(text):
    shown = printable(text)
    assert len(shown) == len(text) and shown.isprintable()
    assert all(a == b for a, b in zip(text, shown) if a.isprintable())


@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    cut=st.integers(1, 40),
    magic=st.binary(min_size=3, max_size=3),
)
def test_an_idx_file_is_read_or_refused(shape, cut, magic, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / "some.idx"
    pixels = np.arange(int(np.prod(shape)), dtype=np.uint8).reshape(shape)
    content = struct.pack(f">I{len(shape)}I", 0x800 + len(shape), *shape) + pixels.tobytes()
    file.write_bytes(content)
    assert np.array_equal(idx(file, len(shape)), pixels)
    damages = [content[: max(0, len(content) - cut)], content + b"\0"]
    damages += [magic + content[3:]] if magic != content[:3] else []
    for damaged in damages:
        file.write_bytes(damaged)
        with pytest.raises(EverlearnError, match="idx"):
            idx(file, len(shape))


@given(
    shapes=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple), min_size=1, max_size=5),
    channels_last=st.booleans(),
    cut=st.integers(0, 5),
)
def test_a_layout_gives_its_tensors_back_from_one_vector_or_from_two(shapes, channels_last, cut):
    home = {str(n): torch.arange(float(np.prod(shape))).view(shape) + 100 * n for n, shape in enumerate(shapes)}
    own = dict(home) | {"tied": home["0"]}
    layout = Layout([(own, name) for name in own], torch.device("cpu"), torch.float64, channels_last)
    assert layout.vector.numel() == sum(tensor.numel() for tensor in home.values()), "a tied tensor is stored once"
    first, others = layout.vector.split([sum(layout.sizes[:cut]), sum(layout.sizes[cut:])])
    parts = [*first.split(layout.sizes[:cut]), *others.split(layout.sizes[cut:])]
    for found in (layout.unflatten(layout.vector), layout.shaped(parts)):
        assert all(torch.equal(mine, one.double()) for mine, one in zip(found, home.values(), strict=True))
        last = [one.permute(0, 2, 3, 1).is_contiguous() for one in found if one.ndim == 4]
        assert not channels_last or all(last), "as a GPU's kernels want them"
    assert torch.equal(layout.overlaid(found), layout.vector)
    layout.bind(found)
    assert own["tied"] is own["0"] and not layout.replaced(found)
    own["0"] = torch.full_like(found[0], 7.0)
    ((name, mine, there),) = layout.replaced(found)
    write_back([(name, mine, there)])
    assert name == "0" and found[0].unique().tolist() == [7.0]
    for wrong in (None, torch.zeros(9, 9)):
        with pytest.raises(EverlearnError, match="it must keep it"):
            write_back([(name, mine, wrong)])


def test_a_layout_laid_over_another_keeps_the_first_rows_and_fills_up_with_0():
    own = {"a": torch.zeros(3, 2), "b": torch.zeros(2)}
    layout = Layout([(own, "a"), (own, "b")], torch.device("cpu"), torch.float32)
    a, b = layout.unflatten(layout.overlaid([torch.ones(2, 2), torch.ones(4)]))
    assert a.tolist() == [[1, 1], [1, 1], [0, 0]] and b.tolist() == [1, 1]


def test_values_of_a_batch_of_another_size_keep_their_mean():
    values = torch.tensor([1.0, 3.0, 5.0, 9.0])
    assert paired(values, 2).tolist() == [2, 7] and paired(values, 4) is values
    assert paired(values, 8).tolist() == [1, 1, 3, 3, 5, 5, 9, 9]
    with pytest.raises(EverlearnError, match="a multiple of the other"):
        paired(values, 3)

"""What two ranks exchange: this process is the first, a fork of it the second."""

import contextlib
import os
import pickle
import signal
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from conftest import learner_of, toy

import everlearn
from everlearn.core import ranks
from everlearn.core.filling import any_there
from everlearn.core.memory import Memory
from everlearn.core.norm import Norm
from everlearn.core.plan import Draw, plan_epoch, reservoir, sharded
from everlearn.core.tape import Tape
from everlearn.core.theta import MainNet
from everlearn.errors import BadInput, Stopped
from everlearn.weightings.bilevel import slope

pytestmark = [
    pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="torch has no gloo here"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no forking here"),
]


@pytest.fixture
def on_two(tmp_path):
    """Call a function on both ranks: what it gives on each."""

    def called(work) -> list:
        name = f"file://{tmp_path}/group{len(list(tmp_path.iterdir()))}"
        group = lambda rank: dist.init_process_group(
            "gloo", init_method=name, rank=rank, world_size=2, timeout=timedelta(seconds=30)
        )
        (read, write), (wait, end) = os.pipe(), os.pipe()
        if not (child := os.fork()):
            try:
                os.close(end)
                group(1)
                with os.fdopen(write, "wb") as pipe:
                    pipe.write(pickle.dumps(work()))
                os.read(wait, 1)  # until the other has closed its end: it may still be connecting
            finally:
                os._exit(0)
        os.close(write)
        os.close(wait)
        try:
            group(0)
            own = work()
            with os.fdopen(read, "rb") as pipe:
                return [own, pickle.loads(pipe.read())]
        finally:
            os.close(end)
            if dist.is_initialized():
                dist.destroy_process_group()
            os.waitpid(child, 0)

    return called


def test_ranks_are_numbered_while_there_is_a_group(on_two):
    known = lambda: (ranks.distributed(), ranks.world_size(), ranks.rank())
    assert known() == (False, 1, 0)
    assert on_two(known) == [(True, 2, 0), (True, 2, 1)]
    assert known() == (False, 1, 0)


def test_a_group_of_one_process_exchanges_nothing():
    assert not ranks.distributed() and (ranks.world_size(), ranks.rank()) == (1, 0)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        rows = torch.arange(4.0)
        assert not ranks.distributed() and ranks.world_size() == 1
        assert ranks.all_gather(rows) is rows and ranks.all_reduce(rows)[0] is rows
        assert ranks.shard(rows, [4]) is rows
    finally:
        dist.destroy_process_group()


def test_each_has_its_rows_of_every_batch_in_order(on_two):
    rows = torch.arange(10)
    one, other = on_two(lambda: ranks.shard(rows, [4, 6]))
    assert one.tolist() == [0, 1, 4, 5, 6] and other.tolist() == [2, 3, 7, 8, 9]
    assert on_two(lambda: ranks.shard(None, [4])) == [None, None]


def test_rows_are_gathered_in_the_order_of_ranks(on_two):
    own = lambda: torch.arange(6.0).view(3, 2).T + 10 * ranks.rank()  # not contiguous
    for dim in (0, 1):
        given = lambda dim=dim: (ranks.all_gather(own()) if dim == 0 else ranks.all_gather(own(), dim)).clone()
        one, other = on_two(given)
        whole = torch.arange(6.0).view(3, 2).T
        assert torch.equal(one, torch.cat([whole, whole + 10], dim)) and torch.equal(one, other)


def test_means_are_over_ranks_each_in_its_shape(on_two):
    of = lambda: (torch.full((2, 3), 1.0 + 2 * ranks.rank()), torch.tensor(5.0 - 2 * ranks.rank()))
    for a, b in on_two(lambda: ranks.all_reduce(*of())):
        assert torch.equal(a, torch.full((2, 3), 2.0)) and b.shape == () and b == 4


def test_all_have_what_the_first_has(on_two):
    def work():
        held = (torch.arange(6.0).view(3, 2) + 10 * ranks.rank()).T  # not contiguous
        flag = torch.tensor(ranks.rank() == 0)
        ranks.broadcast(held, flag)
        return held.tolist(), bool(flag), ranks.broadcast_object({"rank": ranks.rank()})

    expected = (torch.arange(6.0).view(3, 2).T.tolist(), True, {"rank": 0})
    assert on_two(work) == [expected, expected]
    assert ranks.broadcast_object("mine") == "mine"


def test_inside_no_sync_each_is_alone_and_afterwards_it_is_not(on_two):
    def work():
        seen = []
        with contextlib.suppress(KeyError), ranks.no_sync():
            seen.append(ranks.world_size())
            with ranks.no_sync():
                seen.append(ranks.distributed())
            seen.append(ranks.distributed())
            raise KeyError
        return [*seen, ranks.world_size()]

    assert on_two(work) == [[1, False, False, 2]] * 2


def test_a_rank_that_has_ended_ends_the_others_in_one_sentence(on_two):
    def work():
        if ranks.rank():
            dist.destroy_process_group()  # closes its connections, as the end of its process does
            return None
        with pytest.raises(Stopped, match=r"^another rank has ended, so rank 0 cannot go on \(.+\)"):
            ranks.all_gather(torch.zeros(1))
        return "said"

    assert on_two(work) == ["said", None]


def test_a_plan_is_dealt_out_and_its_slots_are_not(on_two):
    draws = (Draw(), Draw(size=4))
    plan = plan_epoch(0, 0, 0, samples=16, batch=8, draws=draws, capacity=6, slot_rule=reservoir, pad=1, presented=9)
    one, other = on_two(lambda: (sharded(plan, 8, draws), [draw.rows(4) for draw in draws]))
    assert one[1] == other[1] == [4, 2], "a size that is given is all ranks' together"
    for row, mine, theirs in zip(plan, one[0], other[0], strict=True):
        both = list(zip(mine, theirs, strict=True))
        assert torch.equal(torch.cat(both[0]), row.order)
        parts = lambda tensor, sizes: [part.chunk(2) for part in tensor.split(sizes)]
        for n in (0, 1):
            assert torch.equal((mine, theirs)[n].draws, torch.cat([part[n] for part in parts(row.draws, [8, 4])]))
            assert torch.equal((mine, theirs)[n].views, torch.cat([part[n] for part in parts(row.views, [8, 8, 4])]))
            assert torch.equal((mine, theirs)[n].slots, row.slots)
    assert sharded(plan, 8, draws) is plan, "alone it is all of it"


def test_every_rank_writes_all_samples(on_two):
    def work():
        memory = Memory(4, torch.zeros(1, 2), {"logits": (1,)})
        own = torch.full((2, 2), float(ranks.rank()))
        memory.write(torch.tensor([0, 1, 2, 4]), own, torch.tensor([3, 4]) + 2 * ranks.rank(), logits=own[:, :1])
        return memory.x[:3, 0].tolist(), memory.y[:3].tolist(), memory.stored["logits"][:3, 0].tolist()

    assert on_two(work) == [([0, 0, 1], [3, 4, 5], [0, 0, 1])] * 2


def test_a_tape_is_of_all_rows_and_goes_on_with_ones_own(on_two):
    def work():
        tape = Tape()
        for step in range(3):
            tape.keep(losses=torch.tensor([10.0 * ranks.rank() + step, 5]))
        read = tape.read()["losses"]
        again = Tape()
        again.restore({"losses": read})
        return read.tolist(), again.last()["losses"].tolist(), torch.equal(again.read()["losses"], read)

    whole = [[step, 5, 10 + step, 5] for step in range(3)]
    assert on_two(work) == [(whole, [2, 5], True), (whole, [12, 5], True)]


def test_a_batch_moves_statistics_if_any_rank_has_a_sample_of_it(on_two):
    batches = [torch.zeros(2, 1)] * 3
    of = lambda: [None, torch.tensor([False, ranks.rank() == 1]), torch.tensor([False, False])]
    moved = lambda: [None if some is None else bool(some) for some in any_there(batches, of())]
    assert on_two(moved) == [[None, True, False]] * 2


@pytest.mark.parametrize("relu", [False, True])
def test_a_norm_of_two_ranks_is_the_norm_of_all_their_rows(on_two, relu):
    random = torch.Generator().manual_seed(0)
    x, residual, up, dx = (torch.randn(6, 3, 2, 2, dtype=torch.float64, generator=random) for _ in range(4))

    def work():
        layer = Norm(3).double()
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([0.5, 1, 2])), layer.bias.copy_(torch.tensor([0.1, 0, -0.2]))
        own = lambda tensor: ranks.shard(tensor, [6])
        leaf = own(x).clone().requires_grad_()
        y = layer(leaf, residual=own(residual), relu=relu)
        moved = layer.running_mean.clone(), layer.running_var.clone(), layer.num_batches_tracked.clone()
        loss = (y * own(up)).sum(dim=(1, 2, 3)).mean()
        gradients = torch.autograd.grad(loss, [leaf, layer.weight, layer.bias])
        back = gradients[0] / ranks.world_size(), *ranks.all_reduce(*gradients[1:])
        forward = slope(lambda z: layer(z, residual=own(residual), relu=relu), own(x), own(dx))
        return [ranks.all_gather(tensor.detach()) for tensor in (y, back[0], forward)], [*moved, *back[1:]]

    rows, shared = work()
    for of in on_two(work):
        for ours, whole in zip((*of[0], *of[1]), (*rows, *shared), strict=True):
            assert torch.allclose(ours.double(), whole.double(), rtol=0, atol=1e-12)


def test_a_network_is_the_firsts_and_its_gradient_that_of_all_rows(on_two):
    x = torch.arange(8.0).view(4, 2) / 8

    def work():
        torch.manual_seed(ranks.rank())
        net = MainNet(torch.nn.Linear(2, 2))
        loss = net.at(net.theta)(ranks.shard(x, [4]))[0].square().mean()
        return net.theta.detach().clone(), net.gradient(loss)

    theta, gradient = work()
    for of in on_two(work):
        assert torch.equal(of[0], theta) and torch.allclose(of[1], gradient, atol=1e-6)


def test_an_ordinary_batchnorm_would_see_one_ranks_rows_and_is_refused(on_two):
    def work():
        with pytest.raises(BadInput, match=r"has a BatchNorm1d layer, which sees the rows of one rank alone"):
            MainNet(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)))
        return type(MainNet(torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), Norm(2)))).__name__

    assert on_two(work) == ["MainNet"] * 2


@pytest.mark.parametrize("name", ["rder", "er-ace+averaged", "gss", "gem", "agem"])
def test_two_ranks_learn_what_one_would(on_two, name):
    stream = toy(each=8, pixels=everlearn.Pixels((0.5,), (0.25,), pad=1, flip=True))

    def work():
        torch.manual_seed(ranks.rank())
        options = {"warmup": 1} if "+" in name or name == "rder" else {}
        learner = learner_of(name, stream, options=options, dtype=torch.float64)
        for task in stream:
            learner.update(task, progress=False)
        return {key: tensor.clone() for key, tensor in learner.state().items() if tensor.is_floating_point()}

    alone = work()
    for of in on_two(work):
        assert all(torch.allclose(of[key], tensor, rtol=0, atol=1e-10) for key, tensor in alone.items())


# What torchrun says -------------------------------------------------------------------------------------------------
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "here", "MASTER_PORT": "1"}


@pytest.fixture
def torchrun(monkeypatch):
    """Its environment, and a group that does nothing; what was done, in order."""
    done, before = [], signal.getsignal(signal.SIGTERM)
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(dist, "init_process_group", lambda: done.append("begun"))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: done.append("ended"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: done.append(device))
    yield done
    signal.signal(signal.SIGTERM, before)


def test_a_group_is_there_inside_and_each_rank_has_a_gpu_of_its_own(torchrun, monkeypatch):
    with ranks.process_group():
        torchrun.append("inside")
    assert torchrun == [1, "begun", "inside", "ended"]
    with pytest.raises(SystemExit) as ended:
        signal.getsignal(signal.SIGTERM)(signal.SIGTERM, None)
    assert ended.value.code == 1
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with contextlib.suppress(KeyError), ranks.process_group():
        raise KeyError
    assert torchrun[4:] == ["begun"], "a rank beyond the GPUs takes none, and after an error nobody is waited for"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with ranks.process_group():
        pass
    assert torchrun[5:] == ["begun", "ended"]


@pytest.mark.parametrize("rank", [0, 1])
def test_only_the_first_rank_speaks(torchrun, monkeypatch, capsys, rank):
    monkeypatch.setattr(ranks, "rank", lambda: rank)
    with ranks.process_group():
        print("a line")
    assert capsys.readouterr().out == ("" if rank else "a line\n")


@pytest.mark.parametrize("alone", [{"WORLD_SIZE": "1"}, {"WORLD_SIZE": None}, {"RANK": None}])
def test_nobody_who_is_alone_begins_a_group(torchrun, monkeypatch, alone):
    for name, value in alone.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    with ranks.process_group():
        torchrun.append("inside")
    assert torchrun == ["inside"]


def test_half_an_environment_is_refused(torchrun, monkeypatch):
    monkeypatch.delenv("MASTER_ADDR")
    monkeypatch.delenv("LOCAL_RANK")
    with pytest.raises(BadInput, match=r"^WORLD_SIZE is 2, and MASTER_ADDR, LOCAL_RANK are not set; use torchrun"):
        ranks.process_group().__enter__()
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(BadInput, match=r"^WORLD_SIZE is 'two', which is not a number of processes"):
        ranks.process_group().__enter__()
    assert torchrun == []


def test_more_ranks_than_gpus_are_refused(torchrun, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    ranks.check_gpus()  # of one process nothing is asked
    monkeypatch.setattr(ranks, "distributed", lambda: True)
    with pytest.raises(BadInput, match=r"^3 processes and 2 GPUs on this machine; .* --nproc-per-node 2"):
        ranks.check_gpus()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    ranks.check_gpus()
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    ranks.check_gpus()

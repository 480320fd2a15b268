"""A continual learner: a method, a network and a memory, taught one task after another."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType

import torch
from torch import Tensor, nn

from recollect import ranks
from recollect.capture import Graphs, on_own_stream, train_epoch
from recollect.descent import SGD
from recollect.engine import steps_of
from recollect.errors import BadInput, RecollectError, unknown
from recollect.mainnet import PRECISIONS, MainNet
from recollect.memory import Memory
from recollect.methods.base import Method
from recollect.metrics import Accuracies, accuracy
from recollect.plan import Plan, dealt, plan_epoch
from recollect.seeding import seeded
from recollect.state import joined, part
from recollect.streams import Pixels, Stream, Task
from recollect.terms import Weighting

EVALUATION_BATCH = 500
REAL = ("lr", "momentum", "weight_decay")


def check_numbers(**settings: float) -> None:
    """Refuse a number no training can start from."""
    for name, value in settings.items():
        positive, whole = name in ("epochs", "batch", "lr", "memory", "classes"), name not in REAL
        if not isinstance(value, int if whole else (int, float)):
            raise BadInput(f"{name} {value!r} must be a {'whole ' if whole else ''}number")
        if not (math.isfinite(value) and value >= 0 and (value or not positive) and (value < 2**63 or name != "seed")):
            raise BadInput(f"{name} {value} must be a number {'greater than 0' if positive else 'from 0 up'}")


def _device(name: str | torch.device) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadInput(f"unknown device '{name}'; known: cpu, cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"device '{name}' asked for, but torch sees no GPU here")
    return device


class Learner:
    """Teach it with `update(task)`, ask it with `predict(images)`.

    `network` is any nn.Module from images to `classes` logits, as many as there will ever be; it is trained in place and
    can be used as it is afterwards. What is frozen in it stays so, and so do layers in evaluation mode if the network
    itself is not. `pixels` says how stored images become its input (`stream.pixels`). On a GPU steps are recorded and
    replayed (`capture`), and BatchNorm's kernels are compiled, all batches sharing a pass (`compile`). In a process group
    of torch.distributed the learners of all ranks are one, which takes the whole `batch` a step, and are taught alike.
    """

    def __init__(
        self,
        method: Method,
        network: nn.Module,
        *,
        classes: int,
        pixels: Pixels | None = None,
        memory: int = 200,
        epochs: int = 1,
        batch: int = 32,
        lr: float = 0.03,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        forward: str = "separate",
        precision: str = "float32",
        capture: bool = True,
        compile: bool | None = None,
        seed: int = 0,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        if precision not in PRECISIONS:
            raise unknown("precision", precision, PRECISIONS)
        if not isinstance(method, Method):
            raise BadInput(f"the method must be an object, such as recollect.ER(), not {method!r}")
        if not isinstance(method.weighting, Weighting):
            raise BadInput(
                f"the weighting must be an object, such as recollect.Fixed((1, 1)), not {method.weighting!r}"
            )
        if not isinstance(network, nn.Module):
            raise BadInput(f"the network must be an nn.Module object, not {network!r}")
        if not isinstance(pixels, (Pixels, NoneType)):
            raise BadInput(f"pixels must be a recollect.Pixels(…), not {pixels!r}")
        check_numbers(epochs=epochs, batch=batch, lr=lr, momentum=momentum, weight_decay=weight_decay, seed=seed)
        check_numbers(classes=classes, **({"memory": memory} if method.remembers else {}))
        if "inner" in method.weighting.pools(method.draws) and memory < 5:
            raise BadInput(f"memory {memory} is too small to be split five ways; take at least 5")
        if (method.draws or method.references) and not method.remembers:
            raise BadInput(f"{type(method).__name__} draws from a memory; it should say `remembers = True`")
        if batch % ranks.world():
            raise BadInput(
                f"a batch of {batch} cannot be dealt to {ranks.world()} ranks in equal parts; take a multiple of {ranks.world()}"
            )
        self.method, self.classes, self.epochs, self.batch, self.seed = method, classes, epochs, batch, seed
        self.device, self.capacity = _device(device), memory if method.remembers else 0
        self.net = MainNet(network, self.device, dtype, forward, precision, compile)
        self.capture = capture and method.captures and self.device.type == "cuda" and not ranks.several()
        self.pixels, self._told_pixels = (pixels or Pixels()).to(self.device, dtype), pixels is not None
        self.sgd = SGD(lr, momentum, weight_decay)
        self.memory: Memory | None = None  # made when the first images show their shape
        self.tasks = 0  # learned so far
        self.epoch = 0  # epochs of the task in hand
        self._resumed: dict[str, Tensor] | None = None  # the method's state, of a task left in the middle
        self.met: set[int] = set()  # classes of the tasks learned so far
        self._broken_off = False  # in the middle of a task
        method.weighting.check(method)
        for of in (method, method.weighting):  # they keep state of their own: masks, anchors, the RRN
            if vars(of).setdefault("learner", self) is not self:
                raise BadInput(f"this {type(of).__name__} object teaches another learner already; make a new one")
        method.weighting.begin(method, self.net, seed)

    def update(self, task: Task, report: Callable[[dict], None] = lambda record: None) -> None:
        """Learn one more task. `report` gets a record of every epoch."""
        with on_own_stream():
            for _ in self.updating(task, report):
                pass

    def updating(self, task: Task, report: Callable[[dict], None] = lambda record: None) -> Iterator[None]:
        """The same, a step at a time, so that several learners can share a GPU. What a network draws itself (dropout) comes from
        torch's generator, which they share too."""
        if self._broken_off:
            raise BadInput(
                "the last task was broken off in the middle; restore a state from before it, or make a new learner"
            )
        self._check(task)
        self._broken_off = True
        try:
            yield from self._learn(task, report)
        finally:
            self.net.rest()  # the network is its owner's again, whatever happened
        self._broken_off = False

    def _learn(self, task: Task, report: Callable[[dict], None]) -> Iterator[None]:
        method, weighting, names = self.method, self.method.weighting, self.method.names
        if self.memory is None:
            like = task.train[0][:0].to(self.device)
            self.memory = Memory(self.capacity, like, self.classes if method.records else 0, self.net.theta.dtype)
        x, y = (tensor.to(self.device) for tensor in method.training_set(self, task))
        method.begin_task(self, task)
        if self._resumed is not None:
            method.restore(self._resumed)
            self._resumed = None
        body = steps_of(method, self.net, self.sgd, self.memory, self.pixels, (x, y))
        graphs = Graphs(body) if self.capture else None
        plan = self._plan(self.epoch, y)
        for epoch in range(self.epoch, self.epochs):
            start = time.perf_counter()
            weighting.begin_epoch(self.tasks, epoch, self.epochs)
            self.net.train()
            # For dropout and the like in the network: each rank's rows have masks of their own.
            key = (self.seed, self.tasks, epoch, *([ranks.rank()] if ranks.several() else []))
            with seeded(*key, device=self.device):
                tape = yield from train_epoch(body, plan, weighting.variant, graphs)
            if method.slot_rule:
                self.memory.presented += len(plan) * self.batch
            if epoch + 1 < self.epochs:
                plan = self._plan(epoch + 1, y)  # while a GPU is still at work on this one
            kept = tape.read()
            losses = kept["losses"].mean(dim=(0, 1)).tolist()
            if not (all(map(math.isfinite, losses)) and torch.isfinite(self.net.theta).all()):
                raise RecollectError(
                    f"the loss is no longer a finite number in epoch {epoch + 1} of task {self.tasks + 1}; "
                    f"a smaller learning rate than {self.sgd.lr} may help (--set lr={self.sgd.lr / 10:g})"
                )
            self.epoch = epoch + 1
            report(
                {
                    "event": "epoch",
                    "task": self.tasks,
                    "epoch": epoch,
                    "loss": dict(zip(names, losses)),
                    "seconds": time.perf_counter() - start,
                    **weighting.report(names, kept),
                }
            )
        method.end_task(self, task)
        self.met |= set(task.classes)
        self.tasks, self.epoch = self.tasks + 1, 0

    def _plan(self, epoch: int, labels: Tensor) -> Plan:
        pools = self.method.weighting.pools(self.method.draws) + ("all",) * self.method.references
        known = tuple(of.cpu().numpy() for of in (self.memory.y, labels)) if "balanced" in pools else None
        plan = plan_epoch(
            self.seed,
            self.tasks,
            epoch,
            samples=len(labels),
            batch=self.batch,
            pools=pools,
            labels=known,
            capacity=self.capacity,
            presented=self.memory.presented,
            slot_rule=self.method.slot_rule,
            pad=self.pixels.pad,
            flip=self.pixels.flip,
            device=self.device,
        )
        return dealt(plan, self.batch)

    def state(self) -> dict[str, Tensor]:
        """All it has learned, between two epochs (`report` is called there) or two tasks; `restore` goes on from it."""
        method, memory = self.method, self.memory
        parts = {
            "network": self.net.state(),
            "method": method.state(),
            "weighting": method.weighting.state(),
            "sgd": self.sgd.state(),
            "memory": {} if memory is None else memory.state(),
            "learner": {
                "progress": torch.tensor([self.tasks, self.epoch, memory.presented if memory else 0]),
                "met": torch.tensor(sorted(self.met), dtype=torch.long),
            },
        }
        return {name: tensor.detach().clone() for name, tensor in joined(parts).items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Be where a learner made with the same settings was. The next `update` takes the task it was in the middle of."""
        self._check_state(state)
        state = {name: tensor.detach().to(self.device, copy=True) for name, tensor in state.items()}
        self.net.rest().load_state_dict(part(state, "network"))
        self.tasks, self.epoch, presented = state["learner.progress"].tolist()
        self.met = set(state["learner.met"].tolist())
        self.memory, self._broken_off = None, False
        if memory := part(state, "memory"):
            self.memory = Memory(self.capacity, memory["x"])
            self.memory.restore(memory)
            self.memory.presented = presented
        self.sgd.restore(part(state, "sgd"))
        self.method.restore(part(state, "method"))
        self.method.weighting.restore(part(state, "weighting"))
        self._resumed = part(state, "method") if self.epoch else None

    @torch.no_grad()
    def logits(self, x: Tensor) -> Tensor:
        """The network's answer to images as stored, [N, classes]."""
        answer = self._asked(lambda part: self.net.at(self.net.theta)(part)[0], x)
        if answer.shape != (len(x), self.classes):
            raise BadInput(
                f"the network answers an image with a tensor of shape {tuple(answer.shape[1:])}; it should be {self.classes} logits, one a class"
            )
        return answer

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """What the network's last linear layer reads of images as stored, [N, d]."""
        return self._asked(self.net.features, x)

    def _asked(self, question: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        self._check_images(x)
        self.net.regain()
        self.net.module.eval()
        answers = [question(self.pixels(part.to(self.device))) for part in x.split(EVALUATION_BATCH)]
        self.net.rest()
        return torch.cat(answers)

    def predict(self, x: Tensor) -> Tensor:
        """The most likely class of each image."""
        return self.method.predict(self, x).argmax(dim=1)

    def evaluate(self, stream: Stream) -> Accuracies:
        """Accuracy on the test images of every task of a stream, learned or not."""
        if isinstance(stream, Task) or not (stream := list(stream)):
            raise BadInput("evaluate takes a stream, or a list with at least one task")
        for task in stream:
            self._check_samples("test", task)
        score = lambda task: self.method.predict(self, task.test[0])
        rows = [accuracy(score(task), task.test[1].to(self.device), task.classes) for task in stream]
        return Accuracies(*torch.tensor(rows).T.tolist())

    def _check_state(self, state: dict[str, Tensor]) -> None:
        """Refuse a state that is not of a learner like this one, before anything is changed."""
        if not isinstance(state, Mapping) or "learner.progress" not in state:
            raise BadInput("this is not a learner's state; learner.state() gives one")
        shapes = lambda tensors: {name: tensor.shape for name, tensor in tensors.items()}
        network, known, memory = part(state, "network"), self.method.weighting.state(), part(state, "memory")
        if shapes(network) != shapes(self.net.state()):
            raise BadInput("this state is of another network")
        if not shapes(known).items() <= shapes(part(state, "weighting")).items():
            raise BadInput(f"this state is of another weighting than {type(self.method.weighting).__name__}")
        if memory and len(memory["y"]) != self.capacity + 1:
            raise BadInput(f"this state has a memory of {len(memory['y']) - 1}, and the learner one of {self.capacity}")
        if memory and ("recorded" in memory) != self.method.records:
            raise BadInput(f"this state is of another method than {type(self.method).__name__}")

    def _check_images(self, x: Tensor) -> None:
        if not isinstance(x, Tensor):
            raise BadInput("images must be a tensor; torch.from_numpy makes one of an array")
        if x.ndim != 4 or self.pixels.channels not in (1, x.shape[1]):
            channels = "channels" if self.pixels.channels == 1 else self.pixels.channels
            raise BadInput(f"images of shape {list(x.shape)}; they must be [N, {channels}, height, width]")
        if x.dtype != torch.uint8 and not x.is_floating_point():
            raise BadInput(f"images are {x.dtype}; they must be uint8, or floats")
        if x.is_floating_point() and not self._told_pixels:
            raise BadInput(self._divided())
        if x.is_floating_point() and not x.isfinite().all():
            raise BadInput("images have a value that is not a finite number")
        held = None if self.memory is None else self.memory.x
        if held is not None and (x.shape[1:], x.dtype) != (held.shape[1:], held.dtype):
            told = lambda of: f"{of.dtype} images of shape {tuple(of.shape[1:])}"
            raise BadInput(f"{told(x)} after {told(held)}; a learner takes one kind")

    def _check(self, task: Task) -> None:
        if not isinstance(task, Task):
            raise BadInput(
                f"update takes a recollect.Task(train=(images, labels), test=(images, labels), classes=…), not a {type(task).__name__}"
            )
        if self.method.merges and self.tasks:
            raise BadInput(
                f"{type(self.method).__name__} learns all tasks at once; give it one, such as stream.merged()"
            )
        self._check_samples("train", task)
        x, _ = task.train
        if x.is_floating_point() and self.pixels.top > 1 and float(x.max()) <= 1:
            raise BadInput(self._divided())
        if self.net.refrozen:
            raise BadInput(
                "parameters were frozen or unfrozen after the learner was made; settle that first, then make it"
            )
        self.logits(x[:1])  # a network that answers otherwise is refused now

    def _check_samples(self, half: str, task: Task) -> None:
        """Images and labels of a task, to learn from or to be tested on."""
        classes, samples = task.classes, getattr(task, half)
        if not isinstance(classes, Sequence) or not all(isinstance(c, int) for c in classes):
            raise BadInput(f"a task's classes are a list of whole numbers, such as (0, 1), not {classes!r}")
        if strange := set(classes) - set(range(self.classes)):
            raise BadInput(
                f"the task has classes {sorted(strange)}; the network has {self.classes} classes, so they must be 0 to {self.classes - 1}"
            )
        if not isinstance(samples, Sequence) or len(samples) != 2:
            raise BadInput(f"a task's {half} is a pair (images, labels), not a {type(samples).__name__}")
        x, y = samples
        if not isinstance(y, Tensor):
            raise BadInput("labels must be a tensor; torch.from_numpy makes one of an array")
        self._check_images(x)
        if y.shape != x.shape[:1] or not len(x):
            raise BadInput(
                f"labels of shape {list(y.shape)} for images of shape {list(x.shape)}; there must be one an image, and at least one"
            )
        if y.dtype != torch.long:
            raise BadInput(f"labels are {y.dtype}; they must be torch.long (labels.long())")
        if strange := set(y.unique().tolist()) - set(classes):
            raise BadInput(f"labels {sorted(strange)} are not among the task's classes {list(classes)}")

    def _divided(self) -> str:
        return f"images are floats, and would be divided by {self.pixels.top}; give pixels=Pixels(top=1), or images as uint8"

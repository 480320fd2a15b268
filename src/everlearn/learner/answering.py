"""What a learner can be asked: its network's answers, and how right they are."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from everlearn import checks
from everlearn.arguments import Checked
from everlearn.core.memory import Memory
from everlearn.core.step import SGD
from everlearn.core.theta import MainNet
from everlearn.data import Stream, Task
from everlearn.data.arrays import called
from everlearn.data.samples import Like, gathered, samples
from everlearn.data.tables import agree, columns
from everlearn.errors import BadInput, Notice, shown, unwritten
from everlearn.learner.labels import Labels, coded
from everlearn.methods.base import Method
from everlearn.metrics import Accuracies, confusion, guesses, right

EVALUATION_BATCH = 500


class Answering(Checked):
    """The part of a learner that answers; what it needs of the rest is named here."""

    net: MainNet
    memory: Memory | None
    method: Method
    labels: Labels
    inputs: Any
    sgd: SGD
    device: torch.device
    classes: int
    columns: list[str] | None  # of the table it was taught with, by name

    if TYPE_CHECKING:

        def _receive(self, x: Tensor) -> None: ...

        def _stored(self, x: Tensor) -> Tensor: ...

    @property
    def _like(self) -> Like | None:
        return Like.of(None if self.memory is None else self.memory.x, self.inputs)

    def _read(self, data: Any, labels: Any = None, like: Like | None = None) -> tuple[Tensor, Any]:
        """Samples and labels; those of a file by the names the classes have."""
        agree(self.columns, data)
        x, y = gathered(data, labels, like or self._like)
        if isinstance(data, Task):
            return x, self.labels.called(data, y)
        return x, called(y, self.labels.names) if isinstance(data, (str, PathLike)) else y

    def _taught(self, data: Any, labels: Any = None) -> tuple[Tensor, Any]:
        """The same, to be learned from: the first table says how the columns of all that follow are called."""
        found = self._read(data, labels)
        self.columns = self.columns or columns(data)
        return found

    @torch.no_grad()
    def logits(self, x: Tensor) -> Tensor:
        """The network's answer to samples as stored, [N, classes]."""
        with self.net.turn:
            checks.answer(self, answer := self._answer(x), len(x))
            return answer

    @torch.no_grad()
    def _answer(self, x: Tensor) -> Tensor:
        """The same, whatever its shape."""
        return self._asked(lambda part: self.net.at(self.net.theta)(part)[0], x)

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """What the network's head, or its last linear layer, reads of samples as stored, [N, d]."""
        return self._asked(self.net.features, x)

    def _asked(self, question: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        with self.net.turn:
            self._receive(x)
            checks.samples(self, x)
            self.net.sync()
            try:
                with self.net.evaluating(), self.sgd.average.applied(self.net):
                    return torch.cat([self._put(question, part.to(self.device)) for part in x.split(EVALUATION_BATCH)])
            except IndexError as error:  # a number that it has no embedding for, say
                raise checks.untaken(error, x) from error
            finally:
                self.net.unbind()

    def _put(self, question: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """A question about samples, which are somebody's: whoever writes to them is refused."""
        with unwritten(x, "`inputs`"):
            made = self.inputs(x)
        with unwritten(made, "the network's forward"):
            return question(made)

    def _scores(self, data: Any) -> Tensor:
        """A score per class for each sample, [N, classes]."""
        with self.net.turn:
            checks.taught(self)
            agree(self.columns, data)
            x = self._stored(samples(data, self._like))
            scores = self._judged(x)
            missing = self.classes - scores.shape[1]  # a method may not have met the newest classes yet
        return nn.functional.pad(scores, (0, missing), value=-torch.inf) if missing else scores

    def _judged(self: Any, x: Tensor) -> Tensor:
        """The method's scores."""
        return self.method.predict(self, x)

    def predict(self, data: Any) -> Any:
        """The most likely class of each sample, by its label: a tensor if they are whole numbers and you give one, else
        an array."""
        return self.labels.of(self._scores(data).argmax(dim=1), data)

    def predict_proba(self, data: Any) -> Any:
        """The softmax of the scores, [N, classes] in the order of `classes_`: a tensor if you give one, or an array."""
        chances = self._scores(data).softmax(dim=1)
        return chances if isinstance(data, Tensor) else chances.cpu().numpy()

    def score(self, data: Any, y: Any = None) -> float:
        """The share of samples classified rightly among all classes met; a label never met cannot be.

        Of a task it is the test half, if there is one.
        """
        if isinstance(data, Task) and data.test:
            data = replace(data, train=data.test)
        x, y = self._read(data, y)
        names, codes = coded(y)
        if not len(codes):
            raise BadInput("there is no sample among the data")
        right = torch.tensor(self.labels.numbers(names))[codes]
        if self.classes and (right < 0).all():
            words = f"this learner has met none of these labels, such as {shown(names[0])}, so none can be right"
            warnings.warn(words, Notice, stacklevel=2)
        return float((self._scores(x).argmax(dim=1).cpu() == right).double().mean())

    def evaluate(self, stream: Stream | Iterable[Any]) -> Accuracies:
        """Accuracy on the test samples of every task of a stream, learned or not; a task may also be data with labels,
        such as (samples, labels)."""
        return self.examine(stream)[0]

    def examine(self, stream: Stream | Iterable[Any]) -> tuple[Accuracies, Tensor]:
        """The same, and which class was taken for which among all, [classes, classes]: row for the true one."""
        rows, seen = [], []
        for task in checks.stream(self, stream):
            x, y, own = self._tested(task)
            scores = self._judged(self._stored(x))
            known = [c for c in own if 0 <= c < scores.shape[1]]
            y, (guess, within) = y.to(self.device), guesses(scores, known or [0])  # of classes never met none is right
            rows.append((right(guess, y), right(within, y)))
            seen.append(torch.stack([y, guess]))
        labels, guess = torch.cat(seen, dim=1)
        taken = confusion(labels, guess, self.classes)
        return Accuracies(*torch.tensor(rows).T.tolist()), taken

    def _tested(self, task: Any) -> tuple[Tensor, Tensor, list[int]]:
        """Samples to be tested on, the outputs of their labels, and of all classes of their task."""
        whole = isinstance(task, Task)
        x, y = task.test if whole and task.test else self._read(task)
        if whole and self.labels.numbered:
            return x, y.where(y < self.classes, -1), self.labels.numbers([int(c) for c in task.classes])
        names, codes = coded(self.labels.called(task, y) if whole else y)
        numbers = self.labels.numbers(names)
        own = self.labels.numbers(self.labels.called(task, [*map(int, task.classes)])) if whole else numbers
        return x, torch.tensor(numbers)[codes], own

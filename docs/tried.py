"""`retain` and what was tried about it: docs/candidates.py runs it."""

import torch

from everlearn import Average, Learner, Retain, Task, Weighting

REACHES = {"quarter": 0.25, "half": 0.5, "whole": 1.0}  # of a task, that an average reaches back over


class Tried(Retain):
    """Retain, with several averages beside the one that is tested.

    `by_heart` is the constant h of its rule, s = min(1, h/(tR)). `restart`: a task begins as the average over half of
    the one before. `refresh`: at the end of a task that average's logits are stored, of all classes met with the task's
    own samples, and of the task's classes with older ones.
    """

    later = ()
    derived = ("others",)

    def __init__(
        self, weighting: Weighting | None = None, by_heart: float = 300.0, restart: bool = False, refresh: bool = False
    ):
        super().__init__(weighting, by_heart=by_heart)
        self.restart, self.refresh = restart, refresh
        self.others = {name: Average(0.5) for name in REACHES}

    def begin_task(self, learner: Learner, task: Task) -> None:
        super().begin_task(learner, task)
        steps = learner.epochs * -(-len(task.train[1]) // learner.batch)
        for name, reach in REACHES.items():
            self.others[name].decay = reach * steps / (1 + reach * steps)

    def remember(self, step, terms) -> None:
        super().remember(step, terms)
        for average in self.others.values():
            average.update(step.net)

    @torch.no_grad()
    def end_task(self, learner: Learner, task: Task) -> None:
        super().end_task(learner, task)
        average, own = self.others["half"], learner.sgd.average
        if self.refresh and learner.memory is not None:
            learner.sgd.average = average
            x, y = learner.memory.held()
            now, stored = learner.logits(x), learner.memory.stored["logits"][: len(x)]
            met = torch.zeros_like(stored, dtype=torch.bool)
            met[:, [*task.classes]] = True
            met[:, sorted(learner.seen)] |= torch.isin(y, y.new_tensor(task.classes))[:, None]
            stored.copy_(torch.where(met, now, stored))
            learner.sgd.average = own
        if self.restart and average.mean is not None and average.statistics is not None:
            learner.net.assign(average.mean, average.statistics)

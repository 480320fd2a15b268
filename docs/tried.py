"""`retain` and what was tried about it: docs/candidates.py runs it."""

import torch

from everlearn import Average, Learner, Retain, Task, Weighting

REACHES = {"quarter": 0.25, "whole": 1.0}  # of a task, that an average reaches back over; half is the one tested


class Tried(Retain):
    """Retain, with other averages beside the one that is tested. `restart`: a task begins as that average."""

    later = {"refresh_older": True, "averaged_teacher": False}
    derived = ("others",)

    def __init__(
        self,
        weighting: Weighting | None = None,
        by_heart: float = 300.0,
        refresh: bool = False,
        restart: bool = False,
        refresh_older: bool = True,
        averaged_teacher: bool = False,
    ):
        super().__init__(
            weighting,
            by_heart=by_heart,
            refresh=refresh,
            refresh_older=refresh_older,
            averaged_teacher=averaged_teacher,
        )
        self.restart = restart
        self.others = {name: Average(0.5) for name in REACHES} | {"0.999": Average(0.999)}

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
        average = learner.sgd.average
        if self.restart and average.mean is not None and average.statistics is not None:
            learner.net.assign(average.mean, average.statistics)

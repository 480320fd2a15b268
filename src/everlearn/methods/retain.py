"""Retain: DER++ that learns new classes among themselves and gently against old ones, and keeps its old answers.

L = CE(new; new and unseen classes) + s CE(new; new against old) + KD(new; old classes, the network before this task)
    + γ KD(memory draw 1) + λ CE(memory draw 2)

The first two terms are a decoupled cross-entropy (Liang and Li, 2023), the third is LwF's (Li and Hoiem, 2016), the
last two are DER++'s (Buzzega et al., 2020).

With `refresh` stored logits are refreshed at the end of each task, after X-DER (Boschini et al., 2022): for the task's
own samples all of them and, unless `refresh_older` is false, for older samples those of the task's classes. If it is
`centred`, the mean of the latter stays the same. See `everlearn.terms.Refreshed`.

A moving average of the network is tested, as in CLS-ER (Arani et al., 2022); `average=0` tests the network itself. With
`averaged_teacher` the network before this task is that average, too.

`balance` says how s is found, t being the number of tasks before this one. `rule`: min(1, h/(tR)), h being `by_heart`
and R how often a stored sample is rehearsed in a task. `rho`: ρ/t. `plain`: 1, for a weighting to learn. `prior`: 1,
with the log of the classes' frequencies added to all logits (balanced softmax, Ren et al., 2020). `both`: the rule and
the prior. See `everlearn.terms.Decoupled`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from everlearn.core.terms import Batch, Term, distance
from everlearn.methods.derpp import DERpp
from everlearn.terms import Decoupled, Distilled, Refreshed
from everlearn.terms.decoupled import BY_HEART
from everlearn.weightings.base import Weighting


class Retain(DERpp):
    names = ("new", "apart", "old heads", "dark", "memory")
    weights = preset = (1.0, 1.0, 1.0, 0.1, 0.5)
    averages = 0.999
    later: ClassVar[dict[str, Any]] = {  # options that came after some records, and what those were made with
        "by_heart": BY_HEART,
        "refresh": False,
        "refresh_older": True,
        "averaged_teacher": False,
    }

    def __init__(
        self,
        weighting: Weighting | None = None,
        balance: str = "rule",
        rho: float = 0.1,
        temperature: float = 2.0,
        by_heart: float = BY_HEART,
        refresh: bool = True,
        refresh_older: bool | Literal["centred"] = "centred",
        averaged_teacher: bool = True,
    ):
        super().__init__(weighting)
        self.decoupled, self.distilled = Decoupled(balance, rho, by_heart), Distilled(temperature, averaged_teacher)
        self.refreshed = Refreshed(refresh_older) if refresh else None
        self.balance, self.rho, self.temperature = balance, rho, temperature
        self.by_heart, self.refresh, self.refresh_older = by_heart, refresh, refresh_older
        self.averaged_teacher = averaged_teacher

    def learn(self, new: Batch) -> list[Term]:
        return [*self.decoupled(new), self.distilled(new)]

    def rehearse(self, dark: Batch, labelled: Batch) -> list[Term]:
        return [distance(dark), self.decoupled.labelled(labelled)]

"""Retain: DER++ that learns new classes mainly among themselves, gently against old ones, and holds old answers.

L = CE(new; new and unseen classes) + s CE(new; new against old) + KD(new; old classes, the network before this task)
    + γ KD(memory draw 1) + λ CE(memory draw 2)

The first two are a decoupled cross-entropy (Liang and Li, 2023), the third is LwF's (Li and Hoiem, 2016), the last two
are DER++'s (Buzzega et al., 2020). With `refresh` stored logits are brought up to date at the end of each task, after
X-DER (Boschini et al., 2022): those of its own samples and, unless `refresh_older` is false, what older samples have of
its classes; if it is `centred`, their mean stays what it was. See `everlearn.terms.Refreshed`.

What is tested is a moving average of the network, as CLS-ER has it (Arani et al., 2022): `average=0` tests the network
itself. With `averaged_teacher` the network before this task is the one that was tested then. `balance` says how s is
found: by a `rule`, by a `prior` (balanced softmax, Ren et al., 2020), by `both`, as ρ/t of a `rho` that is given, t the
tasks before this one, or `plain`, which is 1 and for a weighting to learn. The prior is added to the memory's logits,
too. See `everlearn.terms.Decoupled`.
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

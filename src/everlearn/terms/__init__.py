"""Loss terms that have to know the task, as parts of a method: each is called with a batch. One file each."""

from everlearn.terms.adjusted import Adjusted
from everlearn.terms.agreement import agreement
from everlearn.terms.decoupled import Decoupled
from everlearn.terms.distilled import Distilled
from everlearn.terms.projected import Projected
from everlearn.terms.refreshed import Refreshed

__all__ = ["Adjusted", "Decoupled", "Distilled", "Projected", "Refreshed", "agreement"]

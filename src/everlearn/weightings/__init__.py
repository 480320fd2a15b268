"""How much each term of each row counts: fixed weights, rules, and what a Relation Replay Net learns. One file each."""

from everlearn.weightings.annealed import Annealed
from everlearn.weightings.averaged import Averaged
from everlearn.weightings.balanced import Balanced
from everlearn.weightings.base import Weighting
from everlearn.weightings.consolidate import Consolidate
from everlearn.weightings.end_to_end import EndToEnd
from everlearn.weightings.fixed import Fixed
from everlearn.weightings.labelled import Labelled
from everlearn.weightings.net import RelationReplayNet
from everlearn.weightings.normalised import Normalised
from everlearn.weightings.relation import Relation
from everlearn.weightings.split import Split

__all__ = [
    "Annealed",
    "Averaged",
    "Balanced",
    "Consolidate",
    "EndToEnd",
    "Fixed",
    "Labelled",
    "Normalised",
    "Relation",
    "RelationReplayNet",
    "Split",
    "Weighting",
]

"""Relational weighting: the Relation Replay Net, how it learns, and what it found."""

from recollect.relation.net import RelationReplayNet
from recollect.relation.weighting import Consolidate, EndToEnd, Relation, Split

__all__ = ["Consolidate", "EndToEnd", "Relation", "RelationReplayNet", "Split"]

"""Relational weighting: the Relation Replay Net, how it learns, and what it found."""

from recollect.relation.net import RelationReplayNet
from recollect.relation.weighting import (
    Annealed,
    Averaged,
    Balanced,
    Consolidate,
    EndToEnd,
    Labelled,
    Normalised,
    Relation,
    Split,
)

__all__ = [
    "Annealed",
    "Averaged",
    "Balanced",
    "Consolidate",
    "EndToEnd",
    "Labelled",
    "Normalised",
    "Relation",
    "RelationReplayNet",
    "Split",
]

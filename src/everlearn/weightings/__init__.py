"""Relational weighting: the Relation Replay Net, how it learns, and what it found."""

from everlearn.weightings.net import RelationReplayNet
from everlearn.weightings.relation import (
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

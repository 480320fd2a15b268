"""Many runs as one collection of rows, whatever they were read from."""

from everlearn.collection.collect import chosen, collect
from everlearn.collection.history import Confusion, Epoch, History, Spread, TaskEnd
from everlearn.collection.model import Collection, Gain, Problem, Repeat, Row, Run, Unfinished

__all__ = [
    "Collection",
    "Confusion",
    "Epoch",
    "Gain",
    "History",
    "Problem",
    "Repeat",
    "Row",
    "Run",
    "Spread",
    "TaskEnd",
    "Unfinished",
    "chosen",
    "collect",
]

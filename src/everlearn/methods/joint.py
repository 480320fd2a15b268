"""Joint training, the upper bound: one network on all tasks' data together.

Departs: nothing. It is not a continual learner, so it has one row of accuracies and neither BWT nor forgetting.
"""

from everlearn.methods.base import Method


class Joint(Method):
    """L = CE(new), the stream merged into one task."""

    merges = True

"""Fine-tuning, the lower bound: SGD on each task in turn, nothing kept."""

from everlearn.methods.base import Method


class FineTune(Method):
    """L = CE(new)."""

"""A continual learner: what it is taught with, what it knows, and how it is kept."""

from everlearn.learner.learner import Learner

__all__ = ["Learner"]

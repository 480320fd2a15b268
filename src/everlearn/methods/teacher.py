"""A method that learns from the network as it was before this task."""

from everlearn.methods.base import Method
from everlearn.terms import taught


class Taught(taught.Taught, Method):
    """The teacher is a copy of the network in evaluation mode, None in the first task; `old` are its classes."""

"""Data: where images come from, how they become a stream of tasks, and how stored pixels become a network's input."""

from everlearn.data.inputs import Inputs
from everlearn.data.pixels import Pixels
from everlearn.data.streams import STREAMS, Stream, Task, load

__all__ = ["STREAMS", "Inputs", "Pixels", "Stream", "Task", "load"]

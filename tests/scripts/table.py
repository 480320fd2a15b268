"""Vectors, weighed by a relation."""

import sys

import torch
from theirs import digits
from torch import nn

from everlearn import Learner

chunks = [digits(0, 1, 2), digits(3, 4, 5), digits(6, 7), digits(8, 9)]
torch.manual_seed(0)
network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
centred = lambda x: x - 0.3

folder, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
new = lambda: Learner(network, "rer", memory=100, epochs=4, batch=16, lr=0.2, inputs=centred)
learner = Learner.load(folder, network, inputs=centred) if first else new()
for chunk in chunks[first:last]:
    learner.update(chunk)
learner.save(folder)

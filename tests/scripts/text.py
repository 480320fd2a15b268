"""Texts as token ids, long ones."""

import sys

import torch
from theirs import sentences
from torch import nn

from everlearn import Learner

chunks = [sentences("trade", "sports"), sentences("music", "trade"), sentences("sports")]
torch.manual_seed(0)
network = nn.Sequential(nn.EmbeddingBag(301, 16), nn.Linear(16, 2))

folder, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
new = lambda: Learner(network, "er", memory="balanced:18", epochs=10, batch=8, lr=0.5, weight_decay=1e-4)
learner = Learner.load(folder, network) if first else new()
for ids, topics in chunks[first:last]:
    learner.update(ids, topics)
learner.save(folder)

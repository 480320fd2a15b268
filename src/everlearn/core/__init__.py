"""The arithmetic: batches, terms, one training step, the memory, the plan of an epoch, the network as one vector θ."""

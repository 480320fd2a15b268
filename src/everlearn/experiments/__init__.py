"""Experiments: what to run, the run itself, where it is kept, and studies made of many."""

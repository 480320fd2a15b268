"""One page about many runs: its data, its charts, the page itself, and the page while runs are under way."""

"""What a run's folder says, for people."""

from rich.console import Console


def console(**settings) -> Console:
    """A console that prints words as they are, whatever brackets, colons and numbers are in them."""
    return Console(markup=False, emoji=False, highlight=False, **settings)

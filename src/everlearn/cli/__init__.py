"""The command line. What is here runs before anything is imported."""

import os
import signal
from types import FrameType


def main() -> None:
    """The command `everlearn`."""
    hasty(True)
    from everlearn.cli import app

    app.main()


def hasty(now: bool) -> None:
    """Ctrl-C ends the process on the spot, as long as there is nothing to clear away: while it imports, and at its very
    end. Then an error would come up in the middle of somebody else's code."""
    usual, ours = signal.default_int_handler, _leave
    if signal.getsignal(signal.SIGINT) is (usual if now else ours):  # it may be ignored, or another's
        signal.signal(signal.SIGINT, ours if now else usual)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"everlearn: stopped\n")
    os._exit(130)

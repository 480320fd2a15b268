"""Files opened and written with care, for folders that others write to, too."""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

ABANDONED = 600.0  # seconds: nobody writes a file for so long


def stat_of(path: Path | str) -> os.stat_result | None:
    """Size, times and the like of a file or folder; None if it is not there or cannot be looked at."""
    try:
        return os.stat(path)
    except (OSError, ValueError):  # no file can have such a name
        return None


def opened(path: Path | str) -> IO[bytes]:
    """A regular file, open; a pipe, a socket or a device is not opened, for it might never end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError("not a regular file")
    return open(path, "rb")


def no_link(path: str, flags: int) -> int:
    """An `opener` for open(): a link in the file's place is not followed, and a pipe is not waited for."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)


def write_whole(path: Path, write: Callable[..., object]) -> None:
    """Write a file whole or not at all: aside, under a name that is free, and moved into place. A crash leaves what was
    there before; the draft it leaves is removed by who writes there later."""
    with contextlib.suppress(OSError):
        for left in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}"):
            if time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(draft, "xb") as file:  # to be read by whom the umask says: folders with data are shared
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)

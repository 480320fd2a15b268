"""Locks: one process at a time.

The system's own lock is released when its process dies. Some network folders have none (Lustre without `flock`, old
NFS). There a file beside it says who is at work, and the holder touches it every few seconds; a file nobody touches any
more is taken over.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import filelock

from everlearn.errors import BadInput, Notice
from everlearn.files import no_link

LACKING = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
ALIVE = ".alive"  # after the lock's name
BEAT = 5.0  # seconds between two touches
STALE = 60.0  # seconds without one, and its holder is taken for dead
SETTLED = 0.2  # seconds after which nobody else is still taking it over


class Busy(BadInput):
    """Another process is at this run."""


@contextlib.contextmanager
def alone(lock: Path, doing: str) -> Iterator[IO]:
    """A lock on a file, for one process at a time; it is released if the process dies. `doing` is what another process
    does that has it."""
    try:
        file = open(lock, "a", opener=no_link)  # noqa: SIM115  # closed below: what fails in between is another error
    except FileNotFoundError:  # its folder has just been moved, as a store expects
        raise
    except OSError as error:
        raise _unlockable(lock, error.strerror) from None
    with file, contextlib.ExitStack() as stack:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _unlockable(lock, "it is no regular file")
        try:
            locked = filelock.lock_descriptor(file.fileno(), blocking=False)
        except OSError as error:
            if error.errno not in LACKING:
                raise _unlockable(lock, error.strerror) from None
            warnings.warn(
                f"the file system of {lock.parent} has no locks ({error.strerror}); processes are kept apart by a file "
                f"there that its holder touches every {BEAT:g} seconds",
                Notice,
                stacklevel=1,
            )
            locked = stack.enter_context(_alive(lock.with_name(lock.name + ALIVE)))
        if not locked:
            raise Busy(f"another process {doing}; wait for it or choose another --out")
        yield file


def _unlockable(lock: Path, why: str | None) -> BadInput:
    return BadInput(f"{lock} cannot be locked: {why}; remove it or choose another --out")


@contextlib.contextmanager
def _alive(file: Path) -> Iterator[bool]:
    """Hold a file by touching it; False if somebody else does."""
    own = _created(file)
    if own is None:
        yield False
        return
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT):
            with contextlib.suppress(OSError):  # one touch may be missed: there is another soon
                os.utime(own)

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield True
    finally:
        ended.set()
        with contextlib.suppress(OSError):  # the folder may be another by now, and the file gone with it
            if os.path.samestat(os.fstat(own), os.stat(file)):
                file.unlink()
        os.close(own)


def _created(file: Path) -> int | None:
    """The file, created and held by us; None if another process that is alive holds it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    for _ in range(2):
        try:
            own = os.open(file, flags, 0o666)
        except FileExistsError:
            if not _stale(file):
                return None
            aside = file.with_name(f"{file.name}.{uuid.uuid4().hex}")  # of two that take it over, one finds it gone
            with contextlib.suppress(FileNotFoundError):
                file.rename(aside)
                if not _stale(aside):  # it was taken over in between, and is given back
                    with contextlib.suppress(OSError):
                        os.link(aside, file)
                    aside.unlink()
                    return None
                aside.unlink()
            time.sleep(SETTLED)
            continue
        os.write(own, f"{socket.gethostname()} {os.getpid()}".encode())
        return own
    return None


def _stale(file: Path) -> bool:
    """Has its holder died? By the clock of the folder's own machine, or because it was a process of ours."""
    probe = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
    try:
        host, _, process = file.read_text().partition(" ")
        if host == socket.gethostname() and process.isdigit() and not _running(int(process)):
            return True
        probe.touch()
        return os.stat(probe).st_mtime - os.stat(file).st_mtime > STALE
    except FileNotFoundError:
        return False
    finally:
        probe.unlink(missing_ok=True)


def _running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

"""The command line in a process of its own: forked from one that has imported it, for what takes time is the start."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path


def command(words: list[str], folder: Path | str = ".", **environment: str) -> subprocess.CompletedProcess:
    """What `everlearn WORDS` says in that folder. Nothing the tests have registered or imported is known there."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["everlearn.launchers.local", "sklearn.datasets", "sklearn.model_selection"])
    paths = [*environment.pop("PYTHONPATH", "").split(os.pathsep), *sys.path]
    with tempfile.TemporaryDirectory() as aside:
        files = Path(aside, "stdout"), Path(aside, "stderr")
        given = (words, folder, os.environ | environment, [*filter(None, paths)], files)
        process = context.Process(target=_main, args=given)
        process.start()
        process.join()
        return subprocess.CompletedProcess(words, process.exitcode, *(file.read_text() for file in files))


def _main(words: list[str], folder: Path, environment: Mapping[str, str], paths: list[str], files: list[Path]) -> None:
    for number, file in enumerate(files, start=1):
        with open(file, "wb") as stream:
            os.dup2(stream.fileno(), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:], sys.argv = paths, ["everlearn", *words]
    from everlearn import cli

    cli.main()

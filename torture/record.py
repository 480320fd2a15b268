"""What a torture tried and what came of it, as a file that docs/guarantees.md is generated from.

record = Record("kills", "A killed run, resumed, ends with the bits of one that was not killed.")
for case in cases:
    record.tried("er", case.name, None if held(case) else "what happened instead")
record.end(arguments.out)
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]


class Record:
    """Cases by group; a case holds, or there is a sentence about what happened instead."""

    def __init__(self, name: str, claim: str) -> None:
        self.name, self.claim, self.begun = name, claim, time.monotonic()
        self.cases: Counter[str] = Counter()
        self.failures: list[dict[str, str]] = []
        self.figures: dict[str, float | int | str] = {}

    def tried(self, group: str, case: str, wrong: str | None) -> None:
        self.cases[group] += 1
        if wrong is not None:
            self.failures.append({"group": group, "case": case, "wrong": wrong})
            print(f"{self.name}: {group}: {case}: {wrong}", file=sys.stderr, flush=True)

    def document(self) -> dict:
        failed = Counter(failure["group"] for failure in self.failures)
        return {
            "name": self.name,
            "claim": self.claim,
            "command": " ".join(["python", os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]]),
            "commit": commit(),
            "machine": f"{os.cpu_count()} CPUs, Python {platform.python_version()}, torch {torch.__version__}",
            "seconds": round(time.monotonic() - self.begun, 1),
            "tried": sum(self.cases.values()),
            "held": sum(self.cases.values()) - len(self.failures),
            "groups": {group: {"tried": n, "held": n - failed[group]} for group, n in sorted(self.cases.items())},
            "figures": self.figures,
            "failures": self.failures[:50],
        }

    def end(self, out: str | None) -> int:
        """Print the count, write the record where a file was asked for; the exit code."""
        document = self.document()
        print(f"{self.name}: {document['held']} of {document['tried']} held in {document['seconds']} s")
        if out:
            text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
            Path(out).write_text(text, encoding="utf-8", errors="backslashreplace")
        return int(bool(self.failures))


def commit() -> str:
    """The commit of the code, with a plus where files differ from it; that of a copy without git can be told."""
    if told := os.environ.get("EVERLEARN_COMMIT"):
        return told
    git = lambda *words: subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def options(description: str, count: int) -> argparse.ArgumentParser:
    """The options every torture has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--count", type=int, default=count, help=f"how many cases ({count})")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of cases (0)")
    parser.add_argument("--out", help="write the record to this file")
    return parser

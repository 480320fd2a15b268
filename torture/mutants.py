"""Small faults planted in the core, one at a time: do the tests that run the line notice?

python torture/mutants.py --count 250 --out torture/results/mutants.json

First every test is run once, and which lines of the core it runs is written down. A mutant is then shown to the tests
that run its line, the quickest first, until one fails. Survivors that change nothing anybody could see are named, with
the reason, in torture/equivalent.toml; the score is the share of the others that were noticed.
"""

import ast
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from record import ROOT, Record, options

PACKAGE = ROOT / "src" / "everlearn"
PLACES = ("core", "methods", "weightings", "metrics.py", "learner/growth.py", "experiments/store.py")
GPU = {"core/capture.py"}  # what runs on a GPU alone
TESTS = (
    *("arguments", "metrics", "properties", "plan", "equations", "defaults", "norm", "regularisers", "comparators"),
    *("ledger", "growth", "store", "bilevel", "small_tasks", "ideas", "learner", "contract"),
)
ELSEWHERE = {"core/ranks.py": ["tests/test_ranks.py"]}  # tests that run the lines in other processes
LONGEST = 60.0  # seconds of tests for one mutant
CLAIM = "A small fault in the core is noticed by the tests that run its line."


class Mutant(NamedTuple):
    file: str
    line: int
    number: int  # among the file's
    what: str
    text: str  # the line as it was

    @property
    def name(self) -> str:
        return f"{self.file}: {self.text}: {self.what}"


# Planting ------------------------------------------------------------------------------------------------------------
COMPARED: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COMPUTED: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
Site = tuple[int, str, Callable[[], None]]


def sites(node: ast.AST) -> Iterator[Site]:
    """Every fault that can be planted below a node: the line, what it is, and how it is done."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(
            node, (ast.Raise, ast.Assert, ast.JoinedStr)
        ):
            continue
        held = value if isinstance(value, list) else [value]
        for n, child in enumerate(held):
            if not isinstance(child, ast.AST):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue

            def put(new: ast.AST, value=value, n=n, name=name) -> None:
                if isinstance(value, list):
                    value[n] = new
                else:
                    setattr(node, name, new)

            yield from _here(child, put)
            yield from sites(child)


def _here(node: Any, put: Callable[[ast.AST], None]) -> Iterator[Site]:
    line = getattr(node, "lineno", 0)
    if isinstance(node, ast.Compare):
        for n, op in enumerate(node.ops):
            new = COMPARED[type(op)]
            yield line, f"{type(op).__name__} → {new.__name__}", lambda n=n, new=new: node.ops.__setitem__(n, new())
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in COMPUTED:
        new = COMPUTED[type(node.op)]
        yield line, f"{type(node.op).__name__} → {new.__name__}", lambda: setattr(node, "op", new())
    elif isinstance(node, ast.BoolOp):
        new = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield line, f"{type(node.op).__name__} → {new.__name__}", lambda: setattr(node, "op", new())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
        yield line, f"no {type(node.op).__name__}", lambda: put(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        old = node.value
        new = not old if isinstance(old, bool) else old + 1 if isinstance(old, int) else old * 2 or 1.0
        yield line, f"{old} → {new}", lambda: setattr(node, "value", new)
    elif isinstance(node, ast.Return) and not (node.value is None or getattr(node.value, "value", 0) is None):
        yield line, "returns None", lambda: setattr(node, "value", ast.Constant(None))
    elif isinstance(node, (ast.If, ast.IfExp)):
        test = node.test
        yield line, "the condition is turned", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))
    elif isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield line, "left out", lambda: put(ast.copy_location(ast.Pass(), node))
    if isinstance(node, ast.AugAssign):
        yield line, "left out", lambda: put(ast.copy_location(ast.Pass(), node))


def all_mutants() -> list[Mutant]:
    files = [
        f
        for place in PLACES
        for f in sorted((PACKAGE / place).rglob("*.py") if "." not in place else [PACKAGE / place])
    ]
    found = []
    for file in files:
        name, source = str(file.relative_to(PACKAGE)), file.read_text()
        lines = source.splitlines()
        if name not in GPU:
            for n, (line, what, _) in enumerate(sites(ast.parse(source))):
                found.append(Mutant(name, line, n, what, lines[line - 1].strip()))
    return found


def planted(mutant: Mutant) -> str:
    """The file with the fault in it."""
    tree = ast.parse((PACKAGE / mutant.file).read_text())
    *_, plant = list(sites(tree))[mutant.number]
    plant()
    return ast.unparse(ast.fix_missing_locations(tree))


# Testing -------------------------------------------------------------------------------------------------------------
def in_child(work: Callable[[], Any], seconds: float) -> Any:
    """What a function gives in a process of its own; None where that died or took too long."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        answer = work()
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(write)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with os.fdopen(read, "rb") as pipe:
            content = pipe.read()
        return pickle.loads(content) if content else None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            os.killpg(child, signal.SIGKILL)  # and what it started
        except ProcessLookupError:
            pass
        os.waitpid(child, 0)


def tested(source: Path, tests: list[str], *plugins: Any) -> int:
    """Run tests on a copy of the package; pytest's exit code."""
    import pytest

    sys.path.insert(0, str(source))
    os.environ["PYTHONPATH"] = str(source)
    os.chdir(ROOT)
    first = [] if plugins else ["-x"]  # a fault is noticed by one test
    return int(pytest.main([*first, "-q", "-p", "no:cacheprovider", *tests], plugins=list(plugins)))


class Lines:
    """A plugin of pytest: which lines of the core each test runs, and how long it takes."""

    def __init__(self, source: Path) -> None:
        self.root = str(source / "everlearn") + os.sep
        self.ours = {str(source / "everlearn" / mutant.file) for mutant in all_mutants()}
        self.seen: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report) -> None:
        entry = self.seen.setdefault(report.nodeid, {"seconds": 0.0, "lines": set(), "passed": True})
        entry["seconds"] += report.duration
        entry["passed"] &= report.outcome == "passed"

    def pytest_runtest_setup(self, item) -> None:
        lines = self.seen.setdefault(item.nodeid, {"seconds": 0.0, "lines": set(), "passed": True})["lines"]

        def within(frame, event, argument):
            lines.add((frame.f_code.co_filename, frame.f_lineno))
            return within

        def entered(frame, event, argument):
            return within(frame, event, argument) if frame.f_code.co_filename in self.ours else None

        sys.settrace(entered)

    def pytest_runtest_teardown(self, item) -> None:
        sys.settrace(None)


def known_tests(source: Path, cache: Path | None) -> dict[str, dict[str, Any]]:
    """Every test that passes as things are: its time and its lines (file, number). A cache has them by test file."""
    found: dict[str, dict[str, Any]] = pickle.loads(cache.read_bytes()) if cache and cache.exists() else {}
    for name in TESTS:
        file = f"tests/test_{name}.py"
        if any(test.startswith(file) for test in found) or not (ROOT / file).exists():
            continue
        begun = time.monotonic()
        seen = in_child(lambda file=file: traced(source, file), 1800) or {}
        found |= {test: entry for test, entry in seen.items() if entry["passed"]}
        print(f"{file}: {len(seen)} tests in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        if cache:
            cache.write_bytes(pickle.dumps(found))
    return found


def traced(source: Path, file: str) -> dict[str, dict[str, Any]]:
    plugin = Lines(source)
    tested(source, [file], plugin)
    for entry in plugin.seen.values():
        entry["lines"] = {(path.removeprefix(plugin.root), line) for path, line in entry["lines"]}
    return plugin.seen


def chosen_tests(mutant: Mutant, known: dict[str, dict[str, Any]], lines: dict, files: dict) -> list[str]:
    """Tests that run the line, or, of what runs when a file is imported, those that run any of it; quickest first."""
    of = lines.get((mutant.file, mutant.line)) or files.get(mutant.file, set())
    chosen, spent = ELSEWHERE.get(mutant.file, [])[:], 0.0
    for test in sorted(of, key=lambda test: known[test]["seconds"]):
        if (spent := spent + known[test]["seconds"]) > LONGEST and chosen:
            break
        chosen.append(test)
    return chosen


def survived(mutant: Mutant, tests: list[str], folder: Path) -> bool:
    place = folder / "everlearn" / mutant.file
    original = place.read_text()
    place.write_text(planted(mutant))
    try:
        return in_child(lambda: tested(folder, tests), LONGEST * 2 + 60) == 0
    finally:
        place.write_text(original)
        shutil.rmtree(place.parent / "__pycache__", ignore_errors=True)


def main() -> int:
    parser = options(__doc__.splitlines()[0], 250)
    parser.add_argument("--lines", help="keep what is known of the tests in this file, or take it from there")
    parser.add_argument("--only", help="mutants of files whose names have this in them")
    given = parser.parse_args()
    import pytest  # noqa: F401  # once, before the processes are forked
    import torch

    torch.set_num_threads(1)
    record = Record("mutants", CLAIM)
    every = all_mutants()
    mutants = [mutant for mutant in every if not given.only or given.only in mutant.file]
    mutants = random.Random(given.seed).sample(mutants, min(given.count, len(mutants)))
    file = Path(__file__).parent / "equivalent.toml"
    equivalent = tomllib.loads(file.read_text()) if file.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(PACKAGE, folder / "everlearn", ignore=shutil.ignore_patterns("__pycache__"))
        known = known_tests(folder, Path(given.lines) if given.lines else None)
        lines, files = defaultdict(set), defaultdict(set)
        for test, entry in known.items():
            for where in entry["lines"]:
                lines[where].add(test)
                files[where[0]].add(test)
        excused = 0
        for mutant in sorted(mutants):
            group = mutant.file.partition("/")[0].removesuffix(".py")
            tests = chosen_tests(mutant, known, lines, files)
            if mutant.name in equivalent:
                excused += 1
                record.tried(group, mutant.name, None)
            elif not tests:
                record.tried(group, f"{mutant.name} (line {mutant.line})", "no test runs this line")
            else:
                wrong = f"survived {len(tests)} tests" if survived(mutant, tests, folder) else None
                record.tried(group, f"{mutant.name} (line {mutant.line})", wrong)
    tried = sum(record.cases.values())
    killed = tried - excused - len(record.failures)
    score = 100 * killed / max(1, tried - excused)
    record.figures = {
        "mutants there are": len(every),
        "killed": killed,
        "equivalent": excused,
        "survived": len(record.failures),
        "score in %": round(score, 1),
    }
    record.end(given.out)
    print(f"mutants: {killed} of {tried - excused} noticed, {score:.1f} %; {excused} more change nothing")
    return int(score < 95)


if __name__ == "__main__":
    sys.exit(main())

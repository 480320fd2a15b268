"""Small faults planted in the core, one at a time: do the tests that run the line notice?

python torture/mutants.py --count 250 --out torture/results/mutants.json

First every test is run once, and which lines of the core it runs is written down. A mutant is then shown to the tests
that run its line, the quickest first, until one fails, dies or hangs. Survivors that change nothing anybody could see
are named, with the reason, in torture/equivalent.toml; the score is the share of the others that were noticed.
"""

import ast
import compileall
import gc
import hashlib
import inspect
import json
import multiprocessing
import os
import pickle
import random
import re
import shutil
import signal
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from record import ROOT, Record, options

PACKAGE = ROOT / "src" / "everlearn"
PLACES = ("core", "methods", "weightings", "metrics.py", "learner/growth.py", "experiments/store.py")
GPU = {"core/capture.py"}  # what runs on a GPU alone
TESTS = (
    *("arguments", "metrics", "properties", "plan", "equations", "defaults", "norm", "regularisers", "comparators"),
    *("ledger", "growth", "store", "bilevel", "small_tasks", "ideas", "learner", "terms", "contract"),
    *("edges", "own_data", "records", "resume", "explain", "capture"),
    *("theta", "exchange", "weightings", "steps"),
)
LONGEST = 12.0  # seconds of tests for one mutant
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

    @property
    def key(self) -> str:
        return f"{self.name} ({self.number})"

    @property
    def group(self) -> str:
        return self.file.partition("/")[0].removesuffix(".py")


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


def planted(mutant: Mutant) -> ast.Module:
    """The file with the fault in it."""
    tree = ast.parse((PACKAGE / mutant.file).read_text())
    *_, plant = list(sites(tree))[mutant.number]
    plant()
    return ast.fix_missing_locations(tree)


# Processes -----------------------------------------------------------------------------------------------------------
def in_child(work: Callable[[], Any], seconds: float) -> Any:
    """What a function gives in a process of its own; None where that died or took too long."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        os.setsid()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        try:
            answer = pickle.dumps(work())
            with os.fdopen(write, "wb") as pipe:
                pipe.write(answer)
        finally:
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


def in_two(work: Callable[[Any], Any], cases: list) -> Iterator[Any]:
    """What a function gives for each case, in two processes that know what this one knows."""
    _shared.append(work)
    try:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            yield from pool.imap_unordered(_work, cases)
    finally:
        _shared.pop()


_shared: list[Callable[[Any], Any]] = []


def _work(case: Any) -> Any:
    return _shared[-1](case)


def pytested(source: Path, tests: list[str], *plugins: Any) -> int:
    """Run tests on a copy of the package; pytest's exit code."""
    import pytest

    sys.path.insert(0, str(source))
    os.environ["PYTHONPATH"] = str(source)
    os.chdir(ROOT)
    first = [] if plugins else ["-x"]  # a fault is noticed by one test
    return int(pytest.main([*first, "-q", "-p", "no:cacheprovider", *tests], plugins=list(plugins)))


def copied(folder: Path) -> Path:
    """The package in another folder, compiled."""
    shutil.copytree(PACKAGE, folder / "everlearn", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(folder / "everlearn", quiet=2)
    return folder


# Which test runs which line ------------------------------------------------------------------------------------------
class Telling(ast.NodeTransformer):
    """Every statement within a function tells its lines before it is run."""

    def __init__(self, file: str) -> None:
        self.file = file

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            held = getattr(node, name, None)
            if isinstance(held, list) and held and isinstance(held[0], ast.stmt) and node in self.within:
                setattr(node, name, [told for statement in held for told in self.told(statement)])
        return node

    def told(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not docstring and not isinstance(statement, (ast.Global, ast.Nonlocal)):
            body = getattr(statement, "body", None)
            last = body[0].lineno - 1 if body else statement.end_lineno or 0
            lines = self.file, statement.lineno, max(statement.lineno, last)
            yield ast.parse(f"__import__('sys').__dict__.get('ran', len)({lines!r})").body[0]
        yield statement

    def visit_Module(self, node: ast.Module) -> ast.AST:
        functions = [n for n in ast.walk(node) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        self.within = {n for function in functions for n in ast.walk(function) if not isinstance(n, ast.ClassDef)}
        return ast.fix_missing_locations(self.generic_visit(node))


class Known(NamedTuple):
    """Of a test that passes as things are: how long it takes and which lines of the core it runs."""

    seconds: float
    lines: frozenset[tuple[str, int]]


class Listening:
    """A plugin of pytest: what each test runs."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.ran: dict[str, set] = defaultdict(set)
        self.failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid) -> None:
        self.seconds[nodeid] -= sum(os.times()[:4])  # of work, here and in other processes: a busy machine adds none

    def pytest_runtest_logfinish(self, nodeid) -> None:
        self.seconds[nodeid] += sum(os.times()[:4])

    def pytest_runtest_logreport(self, report) -> None:
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def pytest_runtest_setup(self, item) -> None:
        sys.__dict__["ran"] = self.ran[item.nodeid].add

    def known(self) -> dict[str, Known]:
        lines = {
            test: frozenset((file, line) for file, first, last in ran for line in range(first, last + 1))
            for test, ran in self.ran.items()
        }
        return {test: Known(self.seconds[test], lines[test]) for test in lines if test not in self.failed}


def known_tests(files: Sequence[str], cache: Path | None = None) -> dict[str, Known]:
    """Every test that passes as things are, by its name. A cache has them by test file, its contents and the core's."""
    told: dict[tuple[str, str], dict[str, Known]] = pickle.loads(cache.read_bytes()) if cache and cache.exists() else {}
    names = sorted({mutant.file for mutant in all_mutants()})
    core = b"".join((PACKAGE / name).read_bytes() for name in names)
    keys = {file: (file, hashlib.sha256((ROOT / file).read_bytes() + core).hexdigest()) for file in files}
    with tempfile.TemporaryDirectory() as temporary:
        folder = copied(Path(temporary))
        for name in names:
            place = folder / "everlearn" / name
            place.write_text(ast.unparse(Telling(name).visit(ast.parse(place.read_text()))))

        def listened(file: str) -> tuple[str, dict[str, Known]]:
            def work() -> dict[str, Known]:
                plugin = Listening()
                pytested(folder, [file], plugin)
                return plugin.known()

            return file, in_child(work, 1800) or {}

        for file, known in in_two(listened, [file for file in files if keys[file] not in told]):
            told[keys[file]] = known
            print(f"{file}: {len(known)} tests, {sum(k.seconds for k in known.values()):.0f} s", file=sys.stderr)
            if cache:
                cache.write_bytes(pickle.dumps(told))
    return {test: known for file in files for test, known in told[keys[file]].items()}


def imported(source: str) -> dict[int, set[int] | set[str]]:
    """Of lines that an import runs: the lines of the function a default belongs to, or the names that are bound."""
    found: dict[int, set[int] | set[str]] = {}

    def look(body: list[ast.stmt]) -> None:
        for node in body:
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if isinstance(node, ast.ClassDef):
                look(node.body)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                within = set(range(node.body[0].lineno, lines.stop))
                found.update({line: within for line in lines if line not in within})
            else:
                inner = [n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
                found.update({line: {n.id for n in inner} for line in lines})

    look(ast.parse(source).body)
    return found


def words_of(tests: Iterable[str]) -> dict[str, str]:
    """What each test says: the source of its function."""
    found = {}
    for file, names in groupby(sorted(tests), lambda test: test.partition("::")[0]):
        source = (ROOT / file).read_text()
        tree = ast.walk(ast.parse(source))
        own = {node.name: ast.get_source_segment(source, node) for node in tree if isinstance(node, ast.FunctionDef)}
        found |= {name: own.get(name.partition("[")[0].rpartition("::")[2]) or "" for name in names}
    return found


def chosen_tests(mutants: list[Mutant], known: dict[str, Known]) -> dict[Mutant, list[str]]:
    """Tests that run the line; of what an import runs, those that run a line which reads it, or name it themselves.

    The quickest first, as many as there is time for."""
    by_line, by_file = defaultdict(set), defaultdict(set)
    for test, (_, lines) in known.items():
        for file, line in lines:
            by_line[file, line].add(test)
            by_file[file].add(test)
    sources = {file: (PACKAGE / file).read_text() for file in by_file.keys() | {mutant.file for mutant in mutants}}
    at_import = {file: imported(sources[file]) for file in {mutant.file for mutant in mutants}}
    words = words_of(known)

    def reading(mutant: Mutant) -> set[str]:
        of = at_import[mutant.file].get(mutant.line) or {"?"}
        if isinstance(next(iter(of)), int):
            return {test for line in of for test in by_line.get((mutant.file, line), ())}
        word = re.compile(rf"\b({'|'.join(map(re.escape, sorted(of)))})\b")
        texts = ((file, n, text) for file in sources for n, text in enumerate(sources[file].splitlines(), 1))
        places = [(file, n) for file, n, text in texts if word.search(text)]
        named = {test for test, text in words.items() if word.search(text)}
        return named.union(*(by_line.get(place, ()) for place in places))

    chosen = {}
    for mutant in mutants:
        tests = by_line.get((mutant.file, mutant.line)) or reading(mutant) or by_file[mutant.file] or known
        quickest = sorted(tests, key=lambda test: (known[test].seconds, test))
        total = accumulate(known[test].seconds for test in quickest)
        chosen[mutant] = [test for n, (test, s) in enumerate(zip(quickest, total, strict=True)) if s < LONGEST or n < 3]
    return chosen


# Showing a fault to tests --------------------------------------------------------------------------------------------
class Verdict(NamedTuple):
    """What became of a mutant: the test that noticed it, or None where none did."""

    mutant: Mutant
    noticed: str | None
    how: str

    def __str__(self) -> str:
        mutant = self.mutant
        return (
            f"{self.noticed or f'SURVIVED {self.how}'}: {mutant.file}, line {mutant.line}, {mutant.what}: {mutant.text}"
        )


def functions(code: CodeType) -> list[CodeType]:
    """The code of a file, of its classes and of the functions that an import makes, in order."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return [code, *(found for c in inner for found in ([c] if is_function(c) else functions(c)))]


def is_function(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_NEWLOCALS)


def changed(mutant: Mutant) -> dict[CodeType, CodeType]:
    """The code of functions before and after; empty where the fault is in what an import runs."""
    name = str(PACKAGE / mutant.file)
    old = functions(compile((PACKAGE / mutant.file).read_text(), name, "exec"))
    new = functions(compile(planted(mutant), name, "exec"))
    own = lambda code: (code.co_code, code.co_names, [repr(c) for c in code.co_consts if not isinstance(c, CodeType)])
    run = [[own(code) for code in found if not is_function(code)] for found in (old, new)]
    if run[0] != run[1] or len(old) != len(new):
        return {}
    return {a: b for a, b in zip(old, new, strict=True) if is_function(a) and a != b}


class Warm:
    """A plugin of pytest: collects the tests once, then shows every fault to them in a process of its own.

    The fault is put into the functions that exist already, so that nothing has to be imported again.
    """

    def __init__(self, chosen: dict[Mutant, list[str]], known: dict[str, Known]) -> None:
        self.chosen, self.known, self.loud = chosen, known, os.dup(2)
        self.heard: list[Verdict] = []

    def pytest_runtestloop(self, session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        heard = []
        for verdict in in_two(self.shown, list(self.chosen)):
            heard.append(verdict)
            os.write(self.loud, f"{verdict}\n".encode())
        fine = dict(in_two(self.passes, sorted({verdict.noticed for verdict in heard if verdict.noticed})))
        for verdict in heard:  # a test that fails without any fault has noticed nothing
            broken = verdict.noticed and not fine[verdict.noticed]
            self.heard.append(verdict._replace(noticed=None, how=BROKEN) if broken else verdict)
        return True

    def passes(self, test: str) -> tuple[str, bool]:
        return test, self.failing([test], {}) == ""

    def shown(self, mutant: Mutant) -> Verdict:
        tests = self.chosen[mutant]
        failed = self.failing(tests, changed(mutant))
        if failed == UNFIT:
            return Verdict(mutant, None, UNFIT)
        return Verdict(mutant, failed or None, f"{len(tests)} tests")

    def failing(self, tests: list[str], codes: dict[CodeType, CodeType]) -> str:
        """The first test that fails, dies or hangs, or nothing."""
        read, write = os.pipe()

        def work() -> str:
            from _pytest.runner import runtestprotocol

            if codes:
                functions = [f for f in gc.get_objects() if isinstance(f, FunctionType) and f.__code__ in codes]
                if not functions:
                    return UNFIT
                for function in functions:
                    function.__code__ = codes[function.__code__]
            items = [self.items[test] for test in tests if test in self.items]
            for item, following in zip(items, [*items[1:], None], strict=True):
                os.write(write, f"{item.nodeid}\n".encode())
                signal.setitimer(signal.ITIMER_REAL, 10 + 10 * self.known[item.nodeid].seconds)  # then it dies
                if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
                    return item.nodeid
            signal.setitimer(signal.ITIMER_REAL, 0)
            return ""

        answer = in_child(work, 30 + 10 * sum(self.known[test].seconds for test in tests))
        os.close(write)
        with os.fdopen(read) as pipe:
            begun = pipe.read().splitlines()
        return answer if answer is not None else begun[-1] if begun else tests[0]


UNFIT, BROKEN = "what an import runs", "the test fails without the fault, too"


def cold(mutant: Mutant, tests: list[str], known: dict[str, Known], folder: Path) -> Verdict:
    """Show a fault to tests by importing a copy of the package that has it; for what an import runs."""
    seconds = 120 + 10 * sum(known[test].seconds for test in tests if test in known)
    with tempfile.TemporaryDirectory() as temporary:
        copy = shutil.copytree(folder, Path(temporary) / "copy")
        (copy / "everlearn" / mutant.file).write_text(ast.unparse(planted(mutant)))
        code = in_child(lambda: pytested(copy, tests), seconds)
    if code not in (0, 1) and in_child(lambda: pytested(folder, tests), seconds) != 0:
        return Verdict(mutant, None, BROKEN)
    return Verdict(mutant, None if code == 0 else "one of these", f"{len(tests)} tests")


def verdicts(chosen: dict[Mutant, list[str]], known: dict[str, Known]) -> Iterator[Verdict]:
    """What becomes of each mutant that is shown to its tests."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = copied(Path(temporary))
        warm = {mutant: tests for mutant, tests in chosen.items() if changed(mutant)}
        plugin = Warm(warm, known)

        def work() -> list[Verdict]:
            files = sorted({test.partition("::")[0] for tests in warm.values() for test in tests})
            pytested(PACKAGE.parent, files, plugin)
            return plugin.heard

        left = chosen.keys() - warm.keys()
        for verdict in (in_child(work, 36000) or []) if warm else []:
            if verdict.how == UNFIT:
                left.add(verdict.mutant)
            else:
                yield verdict
        yield from in_two(lambda mutant: cold(mutant, chosen[mutant], known, folder), sorted(left))


def main() -> int:
    parser = options(__doc__.splitlines()[0], 250)
    parser.add_argument("--lines", help="keep what is known of the tests in this file, or take it from there")
    parser.add_argument("--only", help="mutants of files whose names have this in them")
    parser.add_argument("--noticed", help="keep the mutants that were noticed in this file, and do not try them again")
    given = parser.parse_args()
    import pytest  # noqa: F401  # once, before the processes are forked
    import torch

    torch.set_num_threads(1)
    record = Record("mutants", CLAIM)
    every = all_mutants()
    mutants = [mutant for mutant in every if not given.only or given.only in mutant.file]
    mutants = random.Random(given.seed).sample(mutants, min(given.count, len(mutants)))
    equivalent = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text())
    before = Path(given.noticed) if given.noticed else None
    noticed = set(json.loads(before.read_text())) if before and before.exists() else set()
    again = [mutant for mutant in mutants if mutant.name in equivalent or mutant.key not in noticed]
    files = [f"tests/test_{name}.py" for name in TESTS]
    known = known_tests(files, Path(given.lines) if given.lines else None)
    chosen = chosen_tests([mutant for mutant in again if mutant.name not in equivalent], known)
    for mutant in mutants:
        if mutant not in chosen:
            record.tried(mutant.group, mutant.name, None)
    for verdict in verdicts(chosen, known):
        mutant = verdict.mutant
        record.tried(mutant.group, f"{mutant.name} (line {mutant.line})", None if verdict.noticed else verdict.how)
        if verdict.noticed:
            noticed.add(mutant.key)
    if before:
        before.write_text(json.dumps(sorted(noticed), indent=0, ensure_ascii=False))
    excused = sum(mutant.name in equivalent for mutant in mutants)
    killed = len(mutants) - excused - len(record.failures)
    score = 100 * killed / max(1, len(mutants) - excused)
    record.figures = {
        "mutants there are": len(every),
        "killed": killed,
        "equivalent": excused,
        "survived": len(record.failures),
        "score in %": round(score, 1),
    }
    if len(again) < len(mutants):
        record.figures["noticed in an earlier run, by tests that are all still there"] = len(mutants) - len(again)
    record.end(given.out)
    print(f"mutants: {killed} of {len(mutants) - excused} noticed, {score:.1f} %; {excused} more change nothing")
    return int(score < 95)


if __name__ == "__main__":
    sys.exit(main())

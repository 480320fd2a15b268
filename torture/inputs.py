"""Wrong inputs: of every command and option, in studies and records, and of every public function and method.

python torture/inputs.py --count 10500 --out torture/results/inputs.json

A case holds where the answer is a result, or one sentence of ours. A traceback, an exception of somebody else's, a
sentence made of one (`TypeError: …; --debug shows where`), or no answer within a minute is none.
"""

import contextlib
import copy
import faulthandler
import functools
import inspect
import io
import json
import math
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import Record, options
from torch import nn
from typer.testing import CliRunner

import everlearn
from everlearn import arguments
from everlearn.cli import app as cli
from everlearn.core.step import SGD, Step
from everlearn.core.terms import Batch, Term, Terms
from everlearn.errors import EverlearnError

PATIENCE = 60  # seconds for one case
CLAIM = "A wrong input is answered with one sentence, never with a traceback, another's exception or silence."


class Hang(BaseException):
    """No answer in time."""


class Theirs(Exception):
    """What somebody else's function raises; it may come through."""


@contextlib.contextmanager
def watchdog(seconds: float = PATIENCE) -> Iterator[None]:
    def late(*_) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(3 * seconds, exit=True)  # where no Python code runs any more
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()


# Wrong values --------------------------------------------------------------------------------------------------------
class Mute:
    """It cannot be shown."""

    def __repr__(self) -> str:
        raise Theirs("no words")

    __str__ = __repr__


class Escape(str):
    def __str__(self) -> str:
        raise Theirs("no words")


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        raise Theirs("in forward")


def failing(*given, **named):
    raise Theirs("in a function")


VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "-1": lambda: -1,
    "2**70": lambda: 2**70,
    "10**5000": lambda: 10**5000,
    "0.5": lambda: 0.5,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "1e308": lambda: 1e308,
    "1j": lambda: 1j,
    "''": lambda: "",
    "'er'": lambda: "er",
    "a word": lambda: "nonsense",
    "NUL": lambda: "a\0b",
    "escape": lambda: "\x1b[31m\n",
    "surrogate": lambda: "\ud800",
    "a long word": lambda: "x" * 5000,
    "bytes": lambda: b"abc",
    "[]": list,
    "[1, 'a', None]": lambda: [1, "a", None],
    "(0.5,)": lambda: (0.5,),
    "a deep list": lambda: deep(2000),
    "a set": lambda: {1, 2},
    "{}": dict,
    "a mapping": lambda: {"name": 3, "x": [1]},
    "numbers by number": lambda: {1: 2},
    "range": lambda: range(3),
    "a generator": lambda: (n for n in range(2)),
    "object()": object,
    "a class": lambda: dict,
    "mute": Mute,
    "escape class": lambda: Escape("er"),
    "a function that fails": lambda: failing,
    "a function of nothing": lambda: lambda: None,
    "a function to None": lambda: lambda *x: None,
    "a module": lambda: json,
    "a path": lambda: Path("nowhere"),
    "float[]": lambda: torch.tensor(1.0),
    "float[0]": lambda: torch.zeros(0),
    "float[3]": lambda: torch.rand(3),
    "float[5, 4]": lambda: torch.rand(5, 4),
    "float[2, 3, 4, 5]": lambda: torch.rand(2, 3, 4, 5),
    "nan[5, 4]": lambda: torch.full((5, 4), math.nan),
    "long[5]": lambda: torch.arange(5),
    "long[5] below 0": lambda: torch.arange(5) - 9,
    "bool[3]": lambda: torch.ones(3, dtype=torch.bool),
    "complex[5, 4]": lambda: torch.rand(5, 4, dtype=torch.complex64),
    "sparse": lambda: torch.eye(4).to_sparse(),
    "csr": lambda: torch.eye(4).to_sparse_csr(),
    "meta": lambda: torch.rand(5, 4, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([torch.rand(2), torch.rand(3)]),
    "quantized": lambda: torch.quantize_per_tensor(torch.rand(5, 4), 0.1, 0, torch.qint8),
    "requires grad": lambda: torch.rand(5, 4, requires_grad=True) * 2,
    "array": lambda: np.ones((5, 4)),
    "array of words": lambda: np.array(["a", "b"]),
    "array of objects": lambda: np.array([None, Mute], dtype=object),
    "array of dates": lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "numpy's number": lambda: np.float32(0.5),
    "a Linear": lambda: nn.Linear(4, 2),
    "a Module without parameters": nn.ReLU,
    "a network that fails": Failing,
    "a Task": lambda: task(),
    "a Task of others": lambda: everlearn.Task((torch.rand(3, 9), torch.tensor([7, 8, 7])), None, (7, 8)),
    "a Batch": lambda: batch(),
    "a Batch unseen": lambda: Batch(torch.rand(3, 4), torch.tensor([0, 1, 0])),
    "a Batch of nonsense": lambda: Batch(torch.rand(2, 9), torch.tensor([9, 9]), torch.rand(3, 2), torch.rand(1)),
    "a Term": lambda: Term(torch.rand(3), batch()),
    "an ER": everlearn.ER,
    "a Fixed of three": lambda: everlearn.Fixed((1, 2, 3)),
    "a Relation": everlearn.Relation,
    "a Pixels": everlearn.Pixels,
    "a Training": everlearn.Training,
    "dtype": lambda: torch.float16,
    "int dtype": lambda: torch.int32,
    "a device": lambda: torch.device("cpu"),
    "a file": lambda: io.StringIO("x"),
}


def deep(levels: int) -> list:
    found: list = []
    for _ in range(levels):
        found = [found]
    return found


# What is right -------------------------------------------------------------------------------------------------------
def samples(count: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.linspace(0, 1, 4 * count).view(count, 4), torch.arange(count) % 2


def task() -> everlearn.Task:
    return everlearn.Task(samples(), samples(4), (0, 1))


def batch() -> Batch:
    x, y = samples(3)
    kept = {"logits": torch.rand(3, 2), "features": torch.rand(3, 4)}
    return Batch(x, y, torch.rand(3, 2), torch.rand(3, 4), kept)


def pictures() -> everlearn.Stream:
    x, y = torch.arange(96, dtype=torch.uint8).view(6, 1, 4, 4), torch.arange(6) % 2
    return everlearn.Stream("s", (everlearn.Task((x, y), (x, y), (0, 1)),), ("a", "b"), everlearn.Pixels())


def learner(method: Any = "er", taught: bool = True) -> everlearn.Learner:
    torch.manual_seed(0)
    made = everlearn.Learner(nn.Linear(4, 2), method, memory=5, epochs=1, batch=3, lr=0.1)
    return made.update(samples(), progress=False) if taught else made


def step(of: everlearn.Learner) -> Step:
    new = batch()
    return Step(0, of.net, SGD(0.1), of.memory, new.x, new.y, torch.tensor([0, 1, 2]), new, (batch(),), (batch(),))


EXPERIMENT = dict(method="er", stream="digits", tasks=1, classes=["0", "1"], epochs=1, memory=4, device="cpu")


class World:
    """Right values, by the name of a parameter or by its type; made anew for each case, where they are made of ours."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made: dict[str, Any] = {}
        self.document = everlearn.Experiment.of(**EXPERIMENT).document()

    def method(self, kind: type) -> Any:
        """A method at work, with its learner."""
        made = learner(kind(), taught=kind is not everlearn.Joint and kind.__name__ != "GEM")
        return made.method

    def instance(self, kind: type) -> Any:
        simple: dict[type, Callable[[], Any]] = {
            everlearn.Learner: learner,
            everlearn.Stream: pictures,
            everlearn.Task: task,
            everlearn.Batch: batch,
            everlearn.Term: lambda: Term(torch.rand(3), batch()),
            everlearn.Terms: lambda: Terms([Term(torch.rand(3), batch())]),
            everlearn.Experiment: lambda: everlearn.Experiment.of(**EXPERIMENT),
            everlearn.Snapshot: lambda: everlearn.Snapshot(learner().net),
            everlearn.Average: lambda: everlearn.Average(0.9),
            everlearn.Step: lambda: step(learner()),
        }
        if kind in simple:
            return simple[kind]()
        if issubclass(kind, everlearn.Method):
            return self.method(kind)
        if issubclass(kind, everlearn.Weighting):
            return learner(everlearn.ER(kind())).method.weighting
        return kind()

    def right(self, name: str, hint: Any, owner: Any) -> Any:
        """A value for a parameter; `owner` is the object whose method it is of."""
        of = lambda: getattr(owner, "learner", None) or learner()
        by_name = {
            "data": lambda: samples(),
            "X": lambda: samples(),
            "labels": lambda: None,
            "document": lambda: copy.deepcopy(self.document),
            "folder": lambda: self.root / "learner",
            "file": lambda: self.root / "weights.pt",
            "state": lambda: owner.state() if hasattr(owner, "state") else {},
            "predicate": lambda: lambda x, y: False,
            "stream": lambda: pictures() if isinstance(owner, everlearn.Learner) else "digits",
            "name": lambda: "digits",
            "kind": lambda: "network",
            "decay": lambda: 0.5,
            "gradient": lambda: torch.rand_like(of().net.theta),
            "direction": lambda: torch.rand_like(of().net.theta),
            "kept": lambda: torch.arange(2),
            "own": lambda: (everlearn.Draw(),),
            "task": lambda: task(),
            "old": lambda: (),
            "names": lambda: ("a", "b"),
            "tape": dict,
            "x": lambda: samples()[0],
            "y": lambda: None,
            "train": lambda: samples(),
            "tasks": lambda: (task(),),
            "method": lambda: "er",
            "classes": lambda: None,
        }
        by_type: list[tuple[str, Callable[[], Any]]] = [
            ("Learner", of),
            ("MainNet", lambda: of().net),
            ("Step", lambda: step(of())),
            ("Terms", lambda: Terms([Term(torch.rand(3), batch())] * 2)),
            ("tuple[Batch", lambda: (batch(),)),
            ("Batch", batch),
            ("Method", lambda: of().method),
            ("Training", everlearn.Training),
            ("Pixels", everlearn.Pixels),
            ("Spec", lambda: everlearn.Experiment.of(**EXPERIMENT).method),
            ("Module", lambda: nn.Linear(4, 2)),
            ("dtype", lambda: torch.float32),
            ("device", lambda: "cpu"),
            ("Callable", lambda: lambda *x: None),
            ("Sequence[Term]", lambda: [Term(torch.rand(3), batch())]),
            ("Tensor", lambda: torch.rand(3)),
            ("bool", lambda: True),
            ("int", lambda: 1),
            ("float", lambda: 0.5),
            ("str", lambda: "cpu" if name == "device" else "digits"),
        ]
        text = str(hint)
        if "Task" in text and name == "new":
            return task()
        if name in by_name and not (name == "method" and "Method" in text and "str" not in text):
            return by_name[name]()
        return next((make() for words, make in by_type if words in text), None)


# The public functions ------------------------------------------------------------------------------------------------
def targets() -> list[tuple[str, Any, str | None]]:
    """Everything public that can be called: (name, thing, method of it)."""
    found: list[tuple[str, Any, str | None]] = []
    for name in everlearn.__all__:
        thing = getattr(everlearn, name)
        if not callable(thing) or (isinstance(thing, type) and issubclass(thing, BaseException)):
            continue
        found.append((name, thing, None))
        if not isinstance(thing, type):
            continue
        for own in dir(thing):
            public = not own.startswith("_") or own == "__call__"
            kind = inspect.getattr_static(thing, own)
            function = inspect.isfunction(kind) or isinstance(kind, classmethod)
            if (
                public
                and function
                and own not in ("count", "index", "tell")  # the engine says the last to parts
                and inspect.getattr_static(object, own, 0) is not kind
            ):
                found.append((f"{name}.{own}", thing, own))
    return found


@functools.cache
def choices(thing: Any, own: str | None, parameter: str) -> list[str]:
    """Values to give. Of the right type may be half of them, so that something else has to be wrong with them.

    What the engine calls of a method or a weighting is handed what the engine made: there the type alone is wrong."""
    function = inspect.getattr_static(thing, own) if own else thing.__init__ if isinstance(thing, type) else thing
    if isinstance(thing, type) and issubclass(thing, tuple) and own is None:
        function = thing.__new__
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not inspect.isfunction(function):
        return list(VALUES)
    module = thing.__module__ if own is None else function.__module__
    kind = arguments.kinds_of(function, module).get(parameter)
    if kind is None:
        return list(VALUES)
    near = [name for name, make in VALUES.items() if kind.accepts(make())]
    if own and issubclass(thing, (everlearn.Method, everlearn.Weighting)):
        return [name for name in VALUES if name not in near]
    return [*VALUES, *near * (len(VALUES) // max(1, len(near)))]


def api_case(world: World, rng: random.Random, target: tuple[str, Any, str | None]) -> tuple[str, str | None]:
    """One call with one or two wrong arguments: what was given, and what is wrong with the answer."""
    label, thing, own = target
    owner = None if own is None else world.instance(thing)
    function = thing if own is None else getattr(owner, own)
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return "", call(lambda: function())
    chosen = rng.sample(range(len(parameters)), min(len(parameters), rng.choice((1, 1, 1, 2))))
    args, named, told = [], {}, []
    for n, parameter in enumerate(parameters):
        wrong = n in chosen
        value_name = rng.choice(choices(thing, own, parameter.name)) if wrong else ""
        if not wrong and parameter.default is not parameter.empty and rng.random() < 0.7 and own is not None:
            continue
        if not wrong and parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = VALUES[value_name]() if wrong else world.right(parameter.name, parameter.annotation, owner)
        if not wrong and parameter.default is not parameter.empty and value is None:
            continue
        if wrong:
            told.append(f"{parameter.name}={value_name}")
        if parameter.kind is parameter.VAR_POSITIONAL or (parameter.kind is parameter.POSITIONAL_ONLY):
            args.append(value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            named["epochs" if thing is everlearn.Learner or own is None else "nonsense"] = value
        else:
            named[parameter.name] = value
    if label == "run":
        named |= {k: v for k, v in EXPERIMENT.items() if k not in named and k not in ("stream",)}
    return f"{label}({', '.join(told)})", call(lambda: function(*args, **named))


def call(function: Callable[[], Any]) -> str | None:
    try:
        with watchdog(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = function()
            if inspect.isgenerator(answer):
                for _ in zip(range(3), answer):
                    pass
            elif hasattr(answer, "__enter__") and hasattr(answer, "gen"):
                with answer:
                    pass
    except (EverlearnError, Theirs):
        return None
    except Exception as error:
        if any(note.startswith("everlearn: ") for note in getattr(error, "__notes__", ())):
            return None  # somebody else's, passed on with a line of ours
        return foreign(error)
    except Hang:
        return f"no answer within {PATIENCE} s"
    except BaseException as error:
        return foreign(error)
    return None


def foreign(error: BaseException) -> str:
    frame = error.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    where = f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}" if frame else ""
    with contextlib.suppress(BaseException):
        return f"{type(error).__name__}: {str(error)[:120]} ({where})"
    return f"{type(error).__name__} ({where})"


# The command line ----------------------------------------------------------------------------------------------------
WORDS = (
    *("", " ", "-", "--", "0", "-1", "1.5", "1e400", "nan", "inf", "9" * 5000, str(2**70), "true", "None", "null", "ä"),
    *(
        "er",
        "rer",
        "digits",
        "nonsense",
        "er+relation",
        "er+",
        "+",
        ":",
        "x:y",
        "nowhere.py:X",
        "json:loads",
        "os:path",
    ),
    *("a=b", "=", "=1", "lr=", "lr=nan", "lr=" + "9" * 5000, "epochs=x", "memory=-1", "weights=1,a", "hidden=0"),
    *("lr=[" * 50, "classes=0,0", "tasks=0", "tasks=999", "shuffle=-1", "warmup=1e9", "batch=0", "weighting.hidden=x"),
    *("momentum=2", "precision=int4", "size=0", "strict=maybe", "x" * 5000, "\x1b[31m", "two\nlines", "\ud800", "🙂"),
    *("balanced:", "balanced:x", "balanced:0", "npz:", "npz:nowhere", "folder:", "folder:.", "folder:/dev/null"),
    *("npz:bad.npz", "npz:text.txt", "/dev/null", "/proc/self/mem", ".", "..", "/", "~", "~nobody/x", "a\tb", "%s%n"),
    *("run", "part", "deep.json", "digits.json", "latin.json", "nul.json", "nan.json", "list.json", "empty.json"),
    *("deep.toml", "digits.toml", "latin.toml", "nul.toml", "study.toml", "text.txt", "bad.npz", "one.npz", "foreign"),
    *("foreign.json", "nowhere", "no/where", "x.html", "x.pt", "x.onnx", "x.csv", "mammoth", "class_il", "cuda", "gpu"),
)
BASES: dict[str, list[str]] = {
    "demo": ["--seeds", "0"],
    "run": ["er", "--stream", "npz:one.npz", "--network", "mlp", "--epochs", "1", "--memory", "4", "-q"],
    "again": ["run", "--dry-run"],
    "study": ["study.toml", "--seeds", "1", "-q", "--dry-run"],
    "tune": [
        "er",
        "--trials",
        "1",
        "--stream",
        "npz:one.npz",
        "--network",
        "mlp",
        "--epochs",
        "1",
        "--memory",
        "4",
        "-q",
    ],
    "compare": ["run"],
    "explain": ["run"],
    "report": ["run"],
    "watch": ["run", "--port", "0"],
    "import": ["mammoth", "foreign", "--out", "imported"],
    "predict": ["run", "one.npz"],
    "teach": ["run", "npz:one.npz", "--epochs", "1", "-q", "--out", "taught", "--force"],
    "memory": ["run"],
    "export": ["run", "x.pt", "--force"],
    "methods": ["er"],
    "weightings": ["relation"],
    "streams": [],
    "data get": ["digits"],
    "data check": ["npz:one.npz"],
    "bench": ["nonsense"],
}


def commands() -> dict[str, Any]:
    """Every command, by the words that call it."""
    import typer.main

    top: Any = typer.main.get_command(cli.app)
    found = {}
    for name in cli.COMMANDS:
        command = top.get_command(None, name)
        for own, inner in getattr(command, "commands", {"": command}).items():
            found[f"{name} {own}".strip()] = inner
    return found


def words_of(rng: random.Random, name: str, command: Any) -> list[str]:
    """A command with something wrong in it."""
    words = list(BASES[name])
    options_ = [p for p in command.params if p.param_type_name == "option" and "--debug" not in p.opts]
    for _ in range(rng.choice((1, 1, 2, 3))):
        way = rng.random()
        if way < 0.6 and options_:
            chosen = rng.choice(options_)
            flag = rng.choice([*chosen.opts, *chosen.secondary_opts])
            words += [flag] if chosen.is_flag and rng.random() < 0.8 else [flag, rng.choice(WORDS)]
            if chosen.name == "out" or flag == "--html":
                words[-1] = rng.choice(
                    ("made/x", "text.txt", "text.txt/x", "x" * 300, "a\0b", "", "/dev/null/x", "run")
                )
        elif way < 0.85 and words:
            words[rng.randrange(len(words))] = rng.choice(WORDS)
        elif way < 0.9 and words:
            del words[rng.randrange(len(words))]
        elif way < 0.95:
            words.insert(rng.randrange(len(words) + 1), rng.choice(WORDS))
        else:
            words.append(
                rng.choice(("--nonsense", "-Z", "--lr", "--epochs=", "--set=", "--", "-", "--lr=0.1", "--no-x"))
            )
    return [*name.split(), *words]


def invoke(words: list[str]) -> str | None:
    """What is wrong with a command's answer."""
    errors = io.StringIO()
    try:
        with watchdog(), warnings.catch_warnings(), contextlib.redirect_stderr(errors):
            warnings.simplefilter("ignore")
            result = CliRunner().invoke(cli.app, words, prog_name="everlearn")
    except Hang:
        return f"no answer within {PATIENCE} s"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:150]}"
    if isinstance(result.exception, Hang):
        return f"no answer within {PATIENCE} s"
    if result.exception is not None and not isinstance(result.exception, (SystemExit, Theirs)):
        return f"{type(result.exception).__name__}: {str(result.exception)[:150]}"
    said = result.stderr + errors.getvalue()
    if "Traceback" in said:
        return said.strip().splitlines()[-1][:200]
    if found := re.search(r"\w+(Error|Exception|Interrupt|Exit): .*", said):
        foreign = "--debug shows where" in said or " failed: " in said
        return found[0][:200] if foreign else None
    if result.exit_code not in (0, 1, 2):
        return f"exit code {result.exit_code}"
    if result.exit_code and not said.strip() and "Usage" not in result.stdout:
        return f"exit code {result.exit_code} and no sentence"
    if any(not (c.isprintable() or c == "\n") for c in result.stdout + said):
        return "what is no visible character on the terminal"
    return None


def cli_case(rng: random.Random, known: dict[str, Any]) -> tuple[str, str | None]:
    name = rng.choice(list(known))
    words = words_of(rng, name, known[name])
    return " ".join(words)[:200], invoke(words)


# Documents -----------------------------------------------------------------------------------------------------------
STUDY = """question = "q"
seeds = 1
[[grid]]
method = ["er", { name = "rer", hidden = 4 }]
stream = "npz:one.npz"
network = "mlp"
memory = 4
epochs = 1
weights = [1, 0.5]
"""
TOML = (
    *(
        "1",
        "-1",
        "0",
        "1.5",
        "nan",
        "inf",
        "true",
        '""',
        '"er"',
        '"x"',
        "[]",
        "{}",
        "[[1]]",
        '[{name = "er"}]',
        "{name = 1}",
    ),
    *("9" * 5000, "1e400", "1979-05-27", '"' + "x" * 3000 + '"', "[" * 300 + "]" * 300, '"\\u001b[31m"', '["er", 1]'),
    *('{name = "er", x = 1}', '{name = "er", weights = "a"}', '["a", ["b"]]', "[1, [2]]", '"\\u0000"', "[nan]"),
)


def study_case(rng: random.Random) -> tuple[str, str | None]:
    """A study with a value, a line or some characters changed."""
    lines = STUDY.splitlines()
    for _ in range(rng.choice((1, 1, 2))):
        n, way = rng.randrange(len(lines)), rng.random()
        if way < 0.6:
            lines[n] = f"{lines[n].partition('=')[0]}= {rng.choice(TOML)}"
        elif way < 0.75:
            lines.insert(
                n,
                f"{rng.choice(('seeds', 'lr', 'hidden', 'seed', 'x', 'label', 'given', 'data'))} = {rng.choice(TOML)}",
            )
        elif way < 0.85:
            del lines[n]
        else:
            at = rng.randrange(len(lines[n]) + 1)
            lines[n] = lines[n][:at] + rng.choice("[]{}\"=\\\0\x1b\x07,#'") + lines[n][at:]
        lines = lines or [""]
    Path("mutant.toml").write_text("\n".join(lines))
    words = ["study", "mutant.toml", *rng.choice(((), ("--dry-run",), ("--dry-run", "--json"))), "-q"]
    if "--dry-run" not in words:
        words += ["--dry-run", "--seeds", "1"]
    return "\n".join(lines)[:300], invoke(words)


def mutated(rng: random.Random, document: Any) -> Any:
    """A document with a value exchanged, taken away or added somewhere in it."""
    values = [
        None,
        True,
        0,
        -1,
        2**70,
        1e300,
        math.nan,
        "",
        "x",
        "er",
        [],
        [1],
        {},
        {"name": 1},
        deep(50),
        "\x1b[31m\n",
    ]
    values += [10**4000, [[]], [None], "\ud800", -0.5, "9" * 400, {"name": "er", "options": {}}]
    here = document
    while isinstance(here, (dict, list)) and here and rng.random() < 0.85:
        key = rng.choice(list(here) if isinstance(here, dict) else range(len(here)))
        if isinstance(here[key], (dict, list)) and here[key] and rng.random() < 0.8:
            here = here[key]
            continue
        if rng.random() < 0.2:
            del here[key]
        else:
            here[key] = rng.choice(values)
        return document
    if isinstance(here, dict):
        here["added"] = rng.choice(values)
    return rng.choice(values) if rng.random() < 0.05 else document


def record_case(world: World, rng: random.Random) -> tuple[str, str | None]:
    """A record that is not one, read by whatever reads records."""
    result = mutated(rng, json.loads(world.record))
    way = rng.choice(("compare", "explain", "again", "report", "parse", "read", "study"))
    if way in ("parse", "read"):
        document = result.get("experiment") if isinstance(result, dict) else result
        changed = mutated(rng, copy.deepcopy(document))
        function = getattr(everlearn.Experiment, way)
        return f"Experiment.{way}({brief(changed)})", call(lambda: function(changed))
    shutil.rmtree("mutant", ignore_errors=True)
    shutil.copytree("run", "mutant")
    text = json.dumps(result)
    if rng.random() < 0.1:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(("[" * 100_000, "9" * 5000, "\0", "}", "NaN")) + text[at:]
    Path("mutant/result.json").write_text(text, encoding="utf-8", errors="surrogatepass")
    if rng.random() < 0.3:
        Path("mutant.json").write_text(text, encoding="utf-8", errors="surrogatepass")
        words = [way, "mutant.json"]
    else:
        words = [way, "mutant"]
    words += {"again": ["--dry-run"], "report": ["--html", "x.html"], "study": ["--dry-run"]}.get(way, [])
    return f"{' '.join(words)}: {brief(result)}", invoke(words)


def brief(value: Any) -> str:
    with contextlib.suppress(Exception):
        return json.dumps(value)[:300]
    return type(value).__name__


def furnished(root: Path) -> str:
    """A folder with a run, a study, data, and files that are none of these; the run's record."""
    random_ = np.random.default_rng(0)
    pixels = random_.integers(0, 255, (24, 1, 4, 4), dtype=np.uint8)
    labels = np.arange(24) % 4
    np.savez(root / "one.npz", x_train=pixels, y_train=labels, x_test=pixels[:8], y_test=labels[:8])
    with contextlib.chdir(root):
        made = CliRunner().invoke(cli.app, ["run", *BASES["run"], "--out", "kept"])
        assert made.exit_code == 0, made.output
        (run,) = Path("kept").iterdir()
        shutil.move(run, "run")
        everlearn_learner = learner()
        everlearn_learner.save("learner")
        shutil.copytree("run", "part")
        Path("part/result.json").unlink()
        record = Path("run/result.json").read_text()
        Path("study.toml").write_text(STUDY)
        for suffix, opening in (("json", "["), ("toml", "x = [")):
            Path(f"deep.{suffix}").write_text(opening + "[" * 100_000)
            Path(f"digits.{suffix}").write_text(
                ("[" if suffix == "json" else "seeds = ") + "9" * 5000 + "]" * (suffix == "json")
            )
            Path(f"latin.{suffix}").write_bytes(b'"\xe9\xff"')
            Path(f"nul.{suffix}").write_bytes(b"\0\0\0")
        Path("nan.json").write_text('{"experiment": NaN, "class_il": 1e999}')
        Path("list.json").write_text("[1, 2]")
        Path("empty.json").write_text("")
        Path("foreign.json").write_text('{"experiment": {"method": {"name": "er"}}, "class_il": {}}')
        Path("text.txt").write_text("words")
        Path("bad.npz").write_bytes(b"PK\x03\x04" + bytes(50))
        Path("foreign").mkdir()
        Path("foreign/logs.pyd").write_text("{'accmean_task1': nan")
        Path("made").mkdir()
    return record


def world_in(root: Path) -> World:
    """Where cases are tried; a page that would be served, and a file that would be fetched, end at once."""
    from everlearn.data import download
    from everlearn.experiments import studies
    from everlearn.report.web import watch

    world = World(root)
    world.record = furnished(root)
    os.environ["EVERLEARN_DATA"] = str(root / "data")
    watch.Server.serve_forever = lambda self, *given, **named: None
    refuse = lambda *given, **named: (_ for _ in ()).throw(everlearn.BadInput("there is no network here"))
    for name in ("fetch", "download", "get"):
        if hasattr(download, name):
            setattr(download, name, refuse)
    studies.demo = lambda seeds: refuse() if seeds > 0 else {}
    return world


def torture(record: Record, count: int, seed: int, only: str | None = None) -> None:
    faulthandler.enable()
    torch.set_num_threads(1)
    rng = random.Random(seed)
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "above" / "here"
        folder.mkdir(parents=True)
        world = world_in(folder)
        os.chdir(folder)
        try:
            known, public = commands(), targets()
            kinds: dict[str, Callable[[int], tuple[str, str | None]]] = {
                "commands": lambda n: cli_case(rng, known),
                "studies": lambda n: study_case(rng),
                "records": lambda n: record_case(world, rng),
                "Python": lambda n: api_case(world, rng, public[n % len(public)]),
            }
            shares = {"commands": 0.15, "studies": 0.1, "records": 0.1, "Python": 0.65}
            for kind, share in shares.items():
                if only not in (None, kind):
                    continue
                for n in range(math.ceil(count * share)):
                    record.tried(kind, *kinds[kind](n))
        finally:
            os.chdir(before)


if __name__ == "__main__":
    parser = options(__doc__.splitlines()[0], 10_500)
    parser.add_argument("--only", choices=["commands", "studies", "records", "Python"], help="one kind alone")
    given = parser.parse_args()
    record = Record("inputs", CLAIM)
    torture(record, given.count, given.seed, given.only)
    sys.exit(record.end(given.out))

"""Names. Every method, weighting, stream, network and launcher has one: registered, `module:attr` or `file.py:attr`.

What is built in and what somebody else wrote is found the same way. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

from everlearn import sourcecode
from everlearn.arguments import checked
from everlearn.errors import BadInput, shown, unknown

Thing = TypeVar("Thing")
METHODS = {
    "finetune": "finetune:FineTune",
    "joint": "joint:Joint",
    "oewc": "oewc:OEWC",
    "si": "si:SI",
    "lwf": "lwf:LwF",
    "gem": "gem:GEM",
    "agem": "agem:AGEM",
    "icarl": "icarl:ICaRL",
    "gss": "gss:GSS",
    "er": "er:ER",
    "er-ace": "er_ace:ERACE",
    "der": "der:DER",
    "der++": "derpp:DERpp",
    "retain": "retain:Retain",
}
WEIGHTINGS = {
    "fixed": "fixed:Fixed",
    "relation": "relation:Relation",
    "consolidate": "consolidate:Consolidate",
    "vanilla": "end_to_end:EndToEnd",
    "split": "split:Split",
    "balanced": "balanced:Balanced",
    "labelled": "labelled:Labelled",
    "averaged": "averaged:Averaged",
    "normalised": "normalised:Normalised",
    "annealed": "annealed:Annealed",
}
STREAMS = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "tinyimagenet")
within = lambda package, names: {name: f"everlearn.{package}.{place}" for name, place in names.items()}
BUILT_IN: dict[str, dict[str, str]] = {
    "method": within("methods", METHODS),
    "weighting": within("weightings", WEIGHTINGS),
    "stream": dict.fromkeys(STREAMS, "everlearn.data.streams:load"),
    "network": {
        name: f"everlearn.networks:{own}" for name, own in dict(mlp="MLP", cnn="CNN", resnet18="ResNet18").items()
    },
    "launcher": {name: f"everlearn.launchers.{name}:launch" for name in ("local", "ray", "slurm")},
}
# The paper's names of methods weighed by a relation.
ALIASES = {"rer": ("er", "relation"), "rer-ace": ("er-ace", "relation"), "rder": ("der++", "relation")}
DATA = {"npz": "npz:FILE", "folder": "folder:DIR"}  # stream names that go on with a path
_registered: dict[str, dict[str, Any]] = {kind: {} for kind in BUILT_IN}


class NoModule(BadInput):
    """A reference to a module that is not there."""


@checked
def register(name: str, kind: str | None = None) -> Callable[[Thing], Thing]:
    """A decorator that gives a class or function of one's own a name.

    A Method, a Weighting or an nn.Module says itself what it is; of a function `kind` says it: `stream`, `network` or
    `launcher`. Another package names what it has in its entry points, in the group `everlearn`.
    """

    def decorate(thing: Thing) -> Thing:
        of = kind or _kind(thing, name)
        if of not in BUILT_IN:
            raise unknown("kind", of, BUILT_IN)
        if name in BUILT_IN[of] or (of == "method" and name in ALIASES):
            raise BadInput(f"there is a {of} '{name}' already; choose another name")
        if not name or set(name) & set(":/\\ ,+"):
            raise BadInput(
                f"'{name}' is not a name for a {of}: leave spaces, commas, colons, slashes and plus signs out"
            )
        if not hasattr(thing, "__qualname__"):
            raise _no(of, thing)
        if _home(_registered[of].get(name, thing)) != _home(thing):  # defined anew, in a notebook say, it may be
            raise BadInput(f"another {of} is registered as '{name}' already; choose another name")
        _registered[of][name] = thing
        return thing

    return decorate


def _home(thing: Any) -> tuple[str, str]:
    return thing.__module__, thing.__qualname__


def _kind(thing: object, name: str) -> str:
    from torch import nn

    from everlearn.methods.base import Method
    from everlearn.weightings.base import Weighting

    for base, kind in ((Method, "method"), (Weighting, "weighting"), (nn.Module, "network")):
        if isinstance(thing, type) and issubclass(thing, base):
            return kind
    raise BadInput(f"what is '{name}'? Say register('{name}', kind=…): stream, network or launcher")


@functools.cache
def _installed() -> dict[str, str]:
    """Register what other packages name in their entry points; by name, what is wrong with those that cannot be had."""
    wrong = {}
    for entry in entry_points(group="everlearn"):
        try:
            found = entry.load()
            if not isinstance(found, ModuleType):  # a module registers what it has when it is imported
                register(entry.name, getattr(found, "kind", None))(found)
        except Exception as error:  # somebody else's code may raise anything
            wrong[entry.name] = f"the entry point {entry.name} ({entry.value}) cannot be loaded: {error}"
    return wrong


def known(kind: str) -> list[str]:
    """All names of a kind."""
    _installed()
    return [*BUILT_IN[kind], *_registered[kind]]


def find(kind: str, name: str) -> Any:
    """The class or function of that name."""
    if name in BUILT_IN[kind]:
        return imported(BUILT_IN[kind][name])
    if name not in _registered[kind]:
        if refers(kind, name):
            return check(kind, _referred(kind, name))
        wrong = _installed()
        if name in wrong:
            raise BadInput(wrong[name])
    if name not in _registered[kind]:
        others = {"method": ALIASES, "stream": DATA.values()}
        raise unknown(kind, name, [*known(kind), *others.get(kind, ())])
    return check(kind, _registered[kind][name])


def check(kind: str, thing: Any) -> Any:
    """The thing, if it is a class of methods or weightings, or of another kind something that makes one."""
    if kind in ("method", "weighting"):
        from everlearn.methods.base import Method
        from everlearn.weightings.base import Weighting

        base = {"method": Method, "weighting": Weighting}[kind]
        if not (isinstance(thing, type) and issubclass(thing, base)):
            raise BadInput(f"{shown(thing)} is not a {kind}; it must be a class derived from everlearn.{base.__name__}")
    elif not callable(thing) or (isinstance(thing, type) and hasattr(thing, "rehearse")):
        raise _no(kind, thing)
    return thing


def _no(kind: str, thing: Any) -> BadInput:
    return BadInput(f"{shown(thing)} is not a {kind}; it must be a class or function that makes one")


def parts(label: str) -> tuple[str, str | None]:
    """The method and the weighting of a row's label: `rer`, `er+consolidate`; None where it names no weighting."""
    if label in ALIASES:
        return ALIASES[label]
    method, _, weighting = label.rpartition("+")
    return (method, weighting) if method and weighting in known("weighting") else (label, None)


def weighed(label: str, weighting: Any) -> tuple[str, Any]:
    """The method a label names, and its weighting, if one is named: by the label or beside it."""
    method, own = parts(label)
    if own is not None and weighting not in (None, own):
        raise BadInput(f"{label} is {method} weighed by {own}; to weigh it by {weighting}, say {method}")
    return method, own or weighting


def refers(kind: str, name: str) -> bool:
    """Is it `module:attr` or `file.py:attr`, and not a name?"""
    return ":" in name and not (kind == "stream" and name.partition(":")[0] in DATA)


def _referred(kind: str, name: str) -> Any:
    """What `name` refers to; where it is no module's, or that of a path, the error says how streams are named."""
    try:
        return imported(name)
    except BadInput as error:
        home, _, rest = name.partition(":")
        absent = isinstance(error, NoModule) or home in sys.stdlib_module_names  # csv, json: nobody's stream is there
        if kind != "stream" or "." in home or not (absent or Path(rest).expanduser().exists()):
            raise
        raise BadInput(
            f"unknown kind of data {shown(home)}: data are {' or '.join(DATA.values())}, "
            "and a stream of your own is module:attr or file.py:attr"
        ) from None


def imported(reference: str) -> Any:
    """What `module:attr` or `file.py:attr` names."""
    home, _, attribute = reference.rpartition(":")
    try:
        module = _from_file(Path(home)) if home.endswith(".py") else importlib.import_module(home)
    except BadInput:
        raise
    except Exception as error:  # somebody else's code may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name and home.startswith(error.name):
            raise NoModule(f"'{reference}': there is no module {error.name}; a file is named with its .py") from error
        raise BadInput(f"'{reference}' cannot be imported: {type(error).__name__}: {error}") from error
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise unknown(f"name in {home}", attribute, _own(module))
        found = getattr(found, part)
    return found


def _own(module: ModuleType) -> list[str]:
    """The names of what a module has of its own, or of all there is in it."""
    names = [name for name in vars(module) if not name.startswith("_")]
    return [name for name in names if getattr(vars(module)[name], "__module__", None) == module.__name__] or names


class _Loader(SourceFileLoader):
    """Of a file whose bytes were read: what is hashed is what is run."""

    def __init__(self, name: str, path: str, code: bytes):
        super().__init__(name, path)
        self.code = code

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.code, self.path)


def _from_file(path: Path) -> ModuleType:
    """A file as a module, imported anew where it, or what it imports from beside it, has changed."""
    path = path.expanduser().resolve()
    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script and Path(script).resolve() == path:
        return sys.modules["__main__"]  # a script that names what is in it is not run a second time
    name = f"everlearn_file_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    code, beside = path.read_bytes(), sourcecode.reached(path, path.parent, None) - {path}
    digest = {str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in beside}
    digest[str(path)] = hashlib.sha256(code).hexdigest()
    there = sys.modules.get(name)
    if there is not None and getattr(there, "__digest__", None) == digest:
        return there
    loader = _Loader(name, str(path), code)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__digest__"] = digest
    sys.modules[name] = module
    try:
        with _beside(path.parent, {_dotted(one, path.parent): (one, digest[str(one)]) for one in beside}):
            loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


_neighbours: dict[str, tuple[Path, str]] = {}  # modules imported from beside somebody's file, and a hash of each


def _dotted(file: Path, root: Path) -> str:
    return ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


@contextlib.contextmanager
def _beside(folder: Path, modules: Mapping[str, tuple[Path, str]]) -> Iterator[None]:
    """Modules in the folder can be imported: as they are now, and not those of the same names beside another file."""
    if any(_neighbours.get(name, now) != now for name, now in modules.items()):
        for name in modules.keys() & _neighbours.keys():
            sys.modules.pop(name, None)
    before, cached = set(sys.modules), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # it is told from its source by the second, and a change may come sooner
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.dont_write_bytecode = cached
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))
        _neighbours.update({name: now for name, now in modules.items() if name in sys.modules and name not in before})


def place(kind: str, thing: Any) -> tuple[str, str]:
    """The name of a class or function, and how to find it from elsewhere: `module:attr` or `/path/file.py:attr`."""
    names: Mapping[str, Any] = {name: imported(at) for name, at in BUILT_IN[kind].items()} | _registered[kind]
    module, attribute = sys.modules[thing.__module__], thing.__qualname__
    file = getattr(module, "__file__", None)
    file = file if file and Path(file).is_file() else None  # of what is read from a pipe it is `<stdin>`
    alone = module.__name__ == "__main__" or module.__name__.startswith("everlearn_file_")
    if "<locals>" in attribute or not file:
        raise BadInput(f"{attribute} is made inside a function or at a prompt; put it into a file, at its top level")
    at = f"{Path(file).resolve()}:{attribute}" if alone else f"{module.__name__}:{attribute}"
    name = next((name for name, one in names.items() if one is thing), None)
    return name or f"{Path(at.rpartition(':')[0]).name if alone else module.__name__}:{attribute}", at


def placed(kind: str, thing: Any) -> bool:
    """Can it be found again, by another process?"""
    try:
        place(kind, thing)
    except (BadInput, AttributeError, KeyError):
        return False
    return True


def built_in(thing: Any) -> bool:
    return thing.__module__.partition(".")[0] == "everlearn"


@functools.lru_cache(maxsize=1024)
def source(thing: Any) -> str | None:
    """A hash of the source of somebody else's class or function; None of what is built in.

    It is of the file, and of what that imports from beside it or from its own package, as they were when it was first
    asked for: a process goes on with the code it has imported.
    """
    return None if built_in(thing) else sourcecode.digest_of(*_whereabouts(thing))


def source_files(thing: Any) -> dict[str, bytes]:
    """What the hash is of, by name; nothing of what is built in, or was changed since it was imported."""
    files = {} if built_in(thing) else sourcecode.files(*_whereabouts(thing))
    return files if files and sourcecode.digest(files) == source(thing) else {}


def _whereabouts(thing: Any) -> tuple[Path, Path, str | None]:
    """The file of a class or function, the folder its imports are looked for in, and its package."""
    try:
        file = inspect.getsourcefile(thing)
    except TypeError:  # what can be called need be neither
        made = f"{shown(thing)} has no source of its own, and so no identity"
        raise BadInput(f"{made}; name a class, or a function that makes what is wanted") from None
    if file is None:
        raise BadInput(f"{thing.__qualname__} has no source file, and so no identity; put it into one")
    path = Path(file).resolve()
    depth = 0 if thing.__module__.startswith("everlearn_file_") else thing.__module__.count(".")
    depth += path.name == "__init__.py"
    root = path.parents[depth]
    package = path.relative_to(root).parts[0] if depth else None
    if package is None and root.name in ("site-packages", "dist-packages"):
        package = path.stem  # what is installed beside it is not its own
    return path, root, package


def source_now(at: str) -> str | None:
    """The same of a `/path/file.py:attr` as the file is now, which is read and not run; None where that cannot be."""
    path = Path(at.rpartition(":")[0])
    if path.suffix != ".py" or not path.is_file() or path.name == "__init__.py":
        return None
    return sourcecode.digest_of(path, path.parent, None)

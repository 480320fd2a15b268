"""Is this a release people can install? Build it, look into it, install it in clean environments and use it there.

    python tools/release_check.py [--python 3.12 …] [--torch newest …] [--without-cuda] [--out DIR] [--json FILE]

Wheel and sdist are built of the files git knows, in a folder of their own. Each environment is a new one with the wheel
and nothing of this repository: once with the oldest versions pyproject.toml allows, once with what pip takes by itself.
The wheel is used there, then taken out, and the sdist put in its place. Every warning counts as a fault, those that
Python hides from users too, and so does anything else on stderr.

torch is often to be had with gigabytes of CUDA packages alone. `--without-cuda` leaves these packages out; it is for
machines that have the libraries elsewhere on their path.
"""

import argparse
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from functools import partial
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).parents[1]
PYTHONS, TORCHES = ("3.11", "3.12", "3.13"), ("oldest", "newest")
EXTRAS = ("images", "onnx", "ray", "slurm", "tune", "report")  # those for users
BESIDE = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}
APART = {"tests", "results", "docs", "benchmarks", "torture", "tools"}  # for those who have the repository
FIRST = 3  # the steps that are taken with the sdist, too
CUDA = re.compile("nvidia|cuda|triton")
LEARNER = """
import sys, torch, everlearn
assert everlearn.__file__.startswith(sys.prefix), everlearn.__file__
make = lambda: torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
x = torch.randn(60, 4)
learner = everlearn.Learner(make(), "der++", "relation", memory=20)
learner.update(x, ["up" if row[0] > 0 else "down" for row in x])
learner.save("model-of-mine")
assert list(everlearn.Learner.load("model-of-mine", make()).predict(x)) == list(learner.predict(x))
"""
METHODS = """
import everlearn
from everlearn import registry
for kind in ("method", "weighting"):
    for name in registry.known(kind):
        everlearn.run(**{"method": "der++", kind: name}, classes=["0", "1", "2", "3"], tasks=2, epochs=1, memory=20)
"""


class Fault(Exception):
    """What is wrong with the release, in a sentence."""


def demand(held: bool, sentence: str) -> None:
    if not held:
        raise Fault(sentence)


def call(*words: object, cwd: Path = ROOT, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    """What a command printed; one that fails is a fault, with its last lines."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise Fault(f"`{' '.join(map(str, words))[:200]}` ended with {done.returncode}:\n{last}")
    return done


# What is built.


def tracked() -> list[str]:
    return [name for name in call("git", "ls-files", "-z").stdout.split("\0") if name and (ROOT / name).is_file()]


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel made of the sdist, and the sdist; a wheel made of the sources themselves is the same to the byte."""
    from readme_renderer import markdown

    sources = folder / "sources"
    for name in tracked():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, sources / name)
    call(sys.executable, "-m", "build", "--outdir", folder / "dist", sources)
    call(sys.executable, "-m", "build", "--wheel", "--outdir", folder / "direct", sources)
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    direct = contents(next((folder / "direct").glob("*.whl")))
    demand(contents(wheel) == direct, "the wheel made of the sdist is not the one made of the sources")
    demand(markdown.render(metadata(wheel).description) is not None, "the description does not render")
    return wheel, sdist


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(wheel: Path) -> Metadata:
    (text,) = (data for name, data in contents(wheel).items() if name.endswith(".dist-info/METADATA"))
    return Metadata.from_email(text, validate=True)


def inspect(wheel: Path, sdist: Path) -> None:
    """A wheel is the package and what describes it; an sdist is what a wheel is made of."""
    package = {name.removeprefix("src/") for name in tracked() if name.startswith("src/everlearn/")}
    about = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
    expected = package | {f"{about}/{name}" for name in BESIDE}
    demand(set(contents(wheel)) == expected, f"in the wheel, or missing: {sorted(set(contents(wheel)) ^ expected)}")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()} - {""}
    foreign = {name for name in names if name.partition("/")[0] in APART}
    demand(not foreign, f"in the sdist: {sorted(foreign)}")
    needed = {f"src/{name}" for name in package} | {"pyproject.toml", "README.md", "LICENSE"}
    demand(needed <= names, f"not in the sdist: {sorted(needed - names)}")


# Where it is installed.


def interpreter(version: str) -> Path | None:
    """A Python of this version: on the path, or pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for path in filter(None, found):
        done = subprocess.run([path, "-c", ask], capture_output=True, text=True)
        if done.stdout.strip() == version:
            return Path(path)
    return None


def oldest() -> dict[str, str]:
    """The lowest versions pyproject.toml allows, by package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(of for extra in EXTRAS for of in project["optional-dependencies"][extra])]
    return dict(of.split(">=") for of in wanted if ">=" in of)


def wanted(wheel: Path, extra: str = "") -> list[str]:
    """What the wheel, or one of its extras, asks for."""
    every = metadata(wheel).requires_dist
    if extra:
        every = [of for of in every if of.marker and of.marker.evaluate({"extra": extra})]
    else:
        every = [of for of in every if not of.marker]
    return [f"{of.name}{of.specifier}" for of in every]


def pip(python: Path, *words: object) -> str:
    return call(python, "-m", "pip", "--disable-pip-version-check", *words).stdout


def install(python: Path, what: Path, asked: list[str], pins: dict[str, str], without_cuda: bool) -> None:
    """The wheel or the sdist, and what it asks for, as a user would."""
    constraints = python.parent / "pins.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
    put = partial(pip, python, "install", "--quiet", "--constraint", constraints)
    if without_cuda:
        put("--no-deps", next(of for of in asked if of.startswith("torch")))
        ask = "import importlib.metadata as m; print(*m.requires('torch'), sep='\\n')"
        of_torch = [line for line in call(python, "-c", ask).stdout.splitlines() if "extra ==" not in line]
        put(*(of for of in asked if not of.startswith("torch")), *(of for of in of_torch if not CUDA.search(of)))
        put("--no-deps", what)
    else:
        put(what)
        pip(python, "check")


def install_extras(python: Path, wheel: Path) -> None:
    """Those of the report, and of pictures; the others can be had."""
    pins = ("--constraint", python.parent / "pins.txt")
    pip(python, "install", "--quiet", *pins, "--dry-run", *(of for extra in EXTRAS for of in wanted(wheel, extra)))
    pip(python, "install", "--quiet", *pins, *wanted(wheel, "images"), *wanted(wheel, "report"))


def steps(python: Path, wheel: Path) -> dict[str, tuple[object, ...]]:
    """What a newcomer would do, in this order. The first ones are done with the sdist, too."""
    ours, run = python.parent / "everlearn", "runs/digits-der++-m50-e1-s0-*"
    readme = re.search(r"```python\n(.*?)```", metadata(wheel).description, re.S)[1]
    return {
        "version": (ours, "--version"),
        "demo": (ours, "demo", "--seeds", "1", "--quiet"),
        "a learner": (python, "-c", LEARNER),
        "run": (ours, "run", "der++", "--memory", "50", "--epochs", "1", "--quiet"),
        "run again": (python, "-m", "everlearn", "run", "rder", "--epochs", "1", "--quiet"),
        "compare": (ours, "compare", "runs"),
        "explain": (ours, "explain", run),
        "report": (ours, "report", "runs", "--markdown"),
        "page": (ours, "report", "runs", "--html", "report.html"),
        "memory": (ours, "memory", run),
        "export": (ours, "export", run, "net.safetensors"),
        "export for torch": (ours, "export", run, "net.pt2"),
        "README": (python, "-c", readme),
        "all methods and weightings": (python, "-c", METHODS),
        "two ranks": (
            *(python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "everlearn"),
            *("run", "er", "--epochs", "1", "--quiet", "--out", "ranks"),
        ),
    }


def use(python: Path, wheel: Path, folder: Path, first: int | None = None) -> list[str]:
    """Take every step, or the first ones; a warning on the way is a fault."""
    kept = ("PATH", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env |= {"HOME": str(folder), "PYTHONWARNINGS": "default", "OMP_NUM_THREADS": "1"}
    folder.mkdir()
    taken, faults = dict(list(steps(python, wheel).items())[:first]), []
    for name, words in taken.items():
        try:
            found = [next(folder.glob(word), word) if str(word).startswith("runs/") else word for word in words]
            said = call(*found, cwd=folder, env=env).stderr.strip()
            demand(not said, f"on stderr:\n{said[:1500]}")
        except Fault as fault:
            faults.append(f"{name}: {fault}")
    demand(not faults, "\n".join(faults))
    return list(taken)


def environment(base: Path, built: tuple[Path, Path], pins: dict[str, str], without_cuda: bool) -> dict:
    """One clean environment, and what was found in it."""
    wheel, sdist = built
    with tempfile.TemporaryDirectory(prefix="everlearn-release-") as temporary:
        folder = Path(temporary)
        call(base, "-m", "venv", folder / "env")
        python = folder / "env" / "bin" / "python"
        begun = time.monotonic()
        install(python, wheel, wanted(wheel), pins, without_cuda)
        install_extras(python, wheel)
        installed = time.monotonic()
        done = use(python, wheel, folder / "wheel")
        demand("vega" in (folder / "wheel" / "report.html").read_text(), "the page of `everlearn report` has no charts")
        pip(python, "uninstall", "--quiet", "--yes", "everlearn")
        install(python, sdist, wanted(wheel), pins, without_cuda)
        done_with_sdist = use(python, wheel, folder / "sdist", FIRST)
        ended = time.monotonic()
        listed = json.loads(pip(python, "list", "--format", "json"))
        direct = {re.split("[>=<]", of)[0].lower() for of in wanted(wheel)}
        return {
            "python": call(python, "-c", "import platform; print(platform.python_version())").stdout.strip(),
            "pinned": bool(pins),
            "versions": {of["name"].lower(): of["version"] for of in listed if of["name"].lower() in direct},
            "without CUDA packages": without_cuda,
            "wheel": done,
            "sdist": done_with_sdist,
            "seconds": {"install": round(installed - begun), "use": round(ended - installed)},
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", nargs="+", default=PYTHONS, help="versions of Python; 3.11, 3.12 and 3.13")
    parser.add_argument("--torch", nargs="+", default=TORCHES, help="oldest (of all that is asked for), newest, 2.13.0")
    parser.add_argument("--without-cuda", action="store_true", help="leave out the CUDA packages torch asks for")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the wheel and the sdist that were checked")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write down what was checked")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="everlearn-release-") as temporary:
        try:
            built = build(Path(temporary))
            inspect(*built)
        except Fault as fault:
            print(fault, file=sys.stderr)
            return 1
        print(*(path.name for path in built), "hold what they should", flush=True)
        checked, faults = every(built, given.python, given.torch, given.without_cuda)
        if given.out and not faults:
            shutil.copytree(built[0].parent, given.out, dirs_exist_ok=True)
        if given.json:
            record(given.json, built, checked, faults)
    return 1 if faults else 0


def record(file: Path, built: tuple[Path, Path], checked: list[dict], faults: list[dict]) -> None:
    """Write down what was checked. What the file says of other environments stays, if it is about the same wheel."""
    parts = (name.encode() + b"\0" + data for name, data in sorted(contents(built[0]).items()))
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()
    known = json.loads(file.read_text()) if file.exists() else {}
    where = lambda of: (of["python"].split(".")[:2], of["pinned"], of["versions"]["torch"] if of["pinned"] else "")
    here = [where(of) for of in checked]
    kept = [of for of in known.get("checked", ()) if known.get("contents") == digest and where(of) not in here]
    document = {
        "commit": call("git", "describe", "--always", "--abbrev=40", "--dirty=+").stdout.strip(),
        "contents": digest,
        "built": {path.name: path.stat().st_size for path in built},
        "checked": sorted([*kept, *checked], key=where),
        "faults": faults,
    }
    file.write_text(json.dumps(document, indent=1) + "\n")


def every(built: tuple[Path, Path], pythons: list[str], torches: list[str], without_cuda: bool) -> tuple[list, list]:
    """Each Python with each torch: what was checked, and what is wrong."""
    checked, faults = [], []
    for version, torch in itertools.product(pythons, torches):
        where = f"Python {version}, torch {torch}"
        try:
            base = interpreter(version)
            demand(base is not None, "not checked, there is no such Python here")
            pins = {"oldest": oldest(), "newest": {}}.get(torch, {"torch": torch})
            found = environment(base, built, pins, without_cuda)
            checked.append(found)
            taken = f"{len(found['wheel'])} steps with the wheel and {len(found['sdist'])} with the sdist"
            said = f"torch {found['versions']['torch']}: {taken}, no warning, {found['seconds']['use']} s"
            print(f"Python {found['python']}, {said}", flush=True)
        except Fault as fault:
            faults.append({"where": where, "fault": str(fault)})
            print(f"{where}: {fault}", file=sys.stderr, flush=True)
    return checked, faults


if __name__ == "__main__":
    sys.exit(main())

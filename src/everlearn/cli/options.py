"""Arguments and options that commands share, and what they read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from everlearn.cli.app import tell
from everlearn.errors import BadInput, EverlearnError, plural

if TYPE_CHECKING:
    from everlearn.experiments.experiment import Experiment
    from everlearn.experiments.store import Store


class Device(StrEnum):
    auto, cpu, cuda = "auto", "cpu", "cuda"


Name = Annotated[
    str, typer.Argument(help="A method's name (`everlearn methods` lists them), module:attr or file.py:attr.")
]
Weighting = Annotated[
    Optional[str],
    typer.Option(
        "--weighting",
        help="How its loss terms are weighed: a name (`everlearn weightings`), module:attr or file.py:attr.",
    ),
]
OfStream = Annotated[
    str,
    typer.Option(
        "--stream", help="A stream's name (`everlearn streams`), npz:FILE, folder:DIR, module:attr or file.py:attr."
    ),
]
Network = Annotated[
    Optional[str],
    typer.Option("--network", help="mlp, cnn, resnet18, module:attr or file.py:attr.  [default: the stream's]"),
]
Memory = Annotated[
    Optional[str],
    typer.Option(
        "--memory",
        metavar="ROWS",
        help="Samples in the memory; balanced:ROWS has the same number of each class.  [default: the stream's]",
    ),
]
Keep = Annotated[
    bool, typer.Option("--keep/--no-keep", help="Keep the trained network and its memory in the run's folder.")
]
Epochs = Annotated[Optional[int], typer.Option("--epochs", help="Epochs per task.  [default: the stream's]")]
Seed = Annotated[Optional[int], typer.Option("--seed", help="Seed of all random numbers.  [default: 0]")]
Seeds = Annotated[
    Optional[int], typer.Option("--seeds", help="Run this many seeds, from 0 on; give mean and standard deviation.")
]
Settings = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any other setting; may be repeated. `everlearn methods METHOD` lists them."
    ),
]
Out = Annotated[Path, typer.Option("--out", help="Folder in which runs are kept.", show_default=True)]
Data = Annotated[
    Optional[Path],
    typer.Option("--data", help="Folder of the data sets.  [default: $EVERLEARN_DATA, else ~/.cache/everlearn]"),
]
Paths = Annotated[
    Optional[list[Path]],
    typer.Argument(
        metavar="PATH",
        help="Folders of runs, folders of these, or JSON files of runs, studies and records.  [default: runs]",
    ),
]
AsCsv = Annotated[bool, typer.Option("--csv", help="A CSV table on stdout, with all digits.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="A Markdown table on stdout.")]
AsLatex = Annotated[bool, typer.Option("--latex", help="A LaTeX table on stdout; it needs booktabs.")]
Against = Annotated[
    Optional[str],
    typer.Option(
        "--against",
        metavar="ROW",
        help="Also what each row gains on this one, on the same seeds. A method's name means its row with the most "
        "similar settings.",
    ),
]
Only = Annotated[
    Optional[list[str]],
    typer.Option(
        "--only",
        metavar="WORDS",
        help="Only rows whose label has these whole words; * stands for anything. May be repeated.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; progress stays on stderr.")]
Where = Annotated[Device, typer.Option("--device", help="Device to compute on; auto takes a GPU if there is one.")]
Pack = Annotated[
    Optional[int], typer.Option("--pack", min=1, help="How many runs share a GPU.  [default: as many as fit, up to 5]")
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="The same bits every time on the same GPU; slower.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run again even if there is a result.")]
MOST_SEEDS = 20_000
Edited = Annotated[
    bool, typer.Option("--accept-edited", help="Use results even if they were changed after they were written.")
]
Trained = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a run, or one that `teach` or learner.save made.")
]
Built = Annotated[
    Optional[str],
    typer.Option(
        "--network",
        help="Its network, if the folder does not name it: a name, module:attr or file.py:attr that is "
        "called with the shape of a sample and the number of classes.",
    ),
]
BuiltWith = Annotated[
    Optional[list[str]], typer.Option("--set", metavar="KEY=VALUE", help="An option of that network; may be repeated.")
]
Model = Annotated[
    Optional[Path], typer.Option("--out", metavar="MODEL", help="The new learner's folder.  [default: RUN-taught]")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there, but never a run's folder.")]


def seeded(seed: int | None, seeds: int | None, **given: Any) -> list[dict[str, Any]]:
    """What a command asks for, as the settings of one experiment per seed; `given` has the words of --set."""
    if seed is not None and seeds is not None:
        raise BadInput("--seed runs one seed and --seeds several; give one of the two")
    if seeds is not None and seeds < 1:
        raise BadInput(f"--seeds {seeds} runs nothing; give at least 1")
    if seeds is not None and seeds > MOST_SEEDS:
        raise BadInput(f"--seeds {seeds} is more than {MOST_SEEDS}; `everlearn study` takes more, with --max-runs")
    chosen = assignments(given.pop("settings") or [])
    placed = {**given, "seed": seed if seeds is None else seeds}
    for key in chosen:
        if placed.get(key) is not None:
            raise BadInput(f"--set {key}: {key} has its own place on the command line; give it only there")
    return [{**placed, "seed": s, **chosen} for s in (range(seeds) if seeds else [seed])]


def assignments(words: Sequence[str], option: str = "--set") -> dict[str, str]:
    """KEY=VALUE words as a mapping."""
    for word in words:
        if "=" not in word:
            example = {"--set": "lr=0.1", "--launcher-option": "partition=gpu"}[option]
            raise BadInput(f"{option} '{word}' has no '='; write {option} KEY=VALUE, for example {option} {example}")
    pairs = [(key.strip().replace("-", "_"), value.strip()) for key, value in (word.split("=", 1) for word in words)]
    for key, times in Counter(key for key, _ in pairs).items():
        if times > 1:
            raise BadInput(f"{option} {key} is given {times} times; once is enough")
    return dict(pairs)


def print_json(document: Mapping[str, Any]) -> None:
    print(json.dumps(document, indent=1))


def print_record(document: Mapping[str, Any]) -> None:
    """Print a JSON document with a checksum: it may be kept as a record, and a later change of it is noticed."""
    from everlearn.experiments.seals import sealed

    print_json(sealed(document))


def folders(experiments: Sequence[Experiment], store: Store) -> None:
    """Print where the runs are kept."""
    from everlearn.report import console

    out = console()
    if len(experiments) > 10:
        return out.print(f"{len(experiments)} runs kept in {store.root}", soft_wrap=True)
    out.print("Runs kept in")
    for experiment in experiments:
        out.print(f"  {store.path(experiment)}", soft_wrap=True)


def report_failures(outcomes: Mapping[Experiment, dict | Exception]) -> None:
    """Say what went wrong, a line for each kind of error, and raise one error for all of them."""
    from everlearn.experiments.records import failures
    from everlearn.experiments.seals import Damaged

    runs_by: dict[str, list[str]] = {}
    for run, sentence in (wrong := failures(outcomes)).items():
        runs_by.setdefault(sentence, []).append(run)
    for sentence, (first, *others) in runs_by.items():
        tell(f"{first}{f' and {len(others)} more' * bool(others)} failed: {sentence}")
    if not wrong:
        return
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, Exception)]
    again = "" if all(isinstance(error, Damaged) for error in errors) else "; the same command tries them again"
    failed = EverlearnError(f"{len(wrong)} of {plural(len(outcomes), 'run')} failed{again}")
    traces = (getattr(error, "traceback", None) for error in errors)
    failed.traceback = "\n".join(dict.fromkeys(filter(None, traces)))
    raise failed

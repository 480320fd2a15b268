"""The command line: parse, call, print."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer
import typer.core

from everlearn import metrics
from everlearn import launchers as places
from everlearn.experiments import provenance
from everlearn.core import ranks
from everlearn.experiments import runs
from everlearn.data import streams
from everlearn.experiments import studies
from everlearn.experiments import tune
from everlearn.errors import BadInput, EverlearnError, unknown
from everlearn.experiments.experiment import RECIPES, Experiment, advising, defaults
from everlearn.experiments.published import published
from everlearn.report import console, tables
from everlearn.report.progress import Display
from everlearn.experiments.store import Damaged, Store, read_result, validation
from everlearn.data import sources
from everlearn.experiments.studies import FAMILIES, STUDIES
from everlearn.version import __version__

DEMO = ("finetune", *(m for base, own in FAMILIES.items() for m in (base, own, f"{base}+consolidate")), "joint")


class Group(typer.core.TyperGroup):
    """A wrong word on the command line is answered like any other wrong input: in one sentence."""

    def main(self, *args, standalone_mode: bool = True, **extra):
        try:
            sys.exit(super().main(*args, standalone_mode=False, **extra))
        except typer.BadParameter.__base__ as error:  # every usage error
            message = error.format_message().strip(" .?\n").replace(". Did", ", did")
            if message:  # it is empty where the help was printed
                command = error.ctx.command_path if error.ctx else "everlearn"  # none: an option without its value
                print(f"everlearn: {message[0].lower()}{message[1:]}; see {command} --help", file=sys.stderr)
            sys.exit(error.exit_code)


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Continual learning by rehearsal: train one network on a stream of tasks without forgetting the old ones.\n\n"
    "Start with [bold]everlearn demo[/], then [bold]everlearn run er[/].",
)
data_app = typer.Typer(no_args_is_help=True, help="Fetch data sets and see what is there.")
app.add_typer(data_app, name="data")
out = console()


class Device(str, Enum):
    auto, cpu, cuda = "auto", "cpu", "cuda"


Name = Annotated[str, typer.Argument(help="A method's name; [bold]everlearn methods[/] lists them.")]
OfStream = Annotated[
    str,
    typer.Option("--stream", help="A stream's name, npz:FILE or folder:DIR; [bold]everlearn streams[/] lists them."),
]
Memory = Annotated[
    Optional[int], typer.Option("--memory", help="Samples the memory holds. [dim]Default: the stream's[/]")
]
Epochs = Annotated[Optional[int], typer.Option("--epochs", help="Epochs a task. [dim]Default: the stream's[/]")]
Seed = Annotated[Optional[int], typer.Option("--seed", help="Seed of everything random. [dim]Default: 0[/]")]
Seeds = Annotated[
    Optional[int], typer.Option("--seeds", help="Run seeds 0 to K−1 and give mean and standard deviation.")
]
Settings = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other setting, as often as you like; [bold]everlearn methods METHOD[/] lists them.",
    ),
]
Out = Annotated[Path, typer.Option("--out", help="Folder of the runs' folders.", show_default=True)]
Data = Annotated[
    Optional[Path],
    typer.Option("--data", help="Folder of the data sets. [dim]Default: $EVERLEARN_DATA, else ~/.cache/everlearn[/]"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; progress stays on stderr.")]
Where = Annotated[Device, typer.Option("--device", help="Where to compute; auto takes a GPU if there is one.")]
Pack = Annotated[
    Optional[int], typer.Option("--pack", min=1, help="Runs that share a GPU. [dim]Default: as many as fit, up to 5[/]")
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="The same bits every time on the same GPU, more slowly.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run again even if the result is there.")]


def command(register: Callable) -> Callable:
    """A command whose every failure is one sentence and an exit code: 2 wrong input, 1 failed run, 130 Ctrl-C."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def answered(*args, **kwargs):
            try:
                with ranks.process_group():
                    function(*args, **kwargs)
            except EverlearnError as error:
                fail(str(error), error.exit_code)
            except KeyboardInterrupt:
                fail(
                    "stopped; complete runs are kept, and one of more than a minute goes on from its last checkpoint",
                    130,
                )
            except BrokenPipeError:
                raise
            except (MemoryError, RuntimeError) as error:  # torch has no error of its own for the CPU's memory
                if isinstance(error, RuntimeError) and not re.search("out of memory|allocate memory", str(error)):
                    raise
                fail("there is not enough memory for this run; a smaller --memory or --set batch may fit", 1)
            except OSError as error:
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                where = f" ({error.filename})" if error.filename else ""
                fail(
                    f"{error.strerror or error}{where}; {'free some space' if full else 'check the path'} and run the same command again",
                    1,
                )

        return register(answered)

    return decorate


def fail(sentence: str, code: int) -> None:
    name = f"everlearn, rank {ranks.rank()}" if ranks.rank() else "everlearn"
    print(f"{name}: {sentence}", file=sys.stderr)
    raise typer.Exit(code)


@command(app.command(epilog="Example: [bold]everlearn demo[/]"))
def demo(
    out_dir: Out = Path("runs"),
    seeds: Annotated[int, typer.Option(help="Runs of each method.", min=1)] = 3,
    device: Where = Device.auto,
    as_json: AsJson = False,
    quiet: Quiet = False,
    fresh: Fresh = False,
) -> None:
    """See forgetting and its cure on Split-Digits: five tasks of two digits each, a memory of 20 images, in under a minute."""
    experiments = [
        Experiment.of(method, "digits", memory=20, epochs=10, seed=seed) for method in DEMO for seed in range(seeds)
    ]
    documents = perform(experiments, Store(out_dir), quiet, device=device.value, fresh=fresh)
    by_method = {method: [d for e, d in zip(experiments, documents) if e.method == method] for method in DEMO}
    if as_json:
        return print_json({method: several(runs) for method, runs in by_method.items()})
    out.print(
        tables.results(
            by_method, title=f"Split-Digits, memory 20, 10 epochs a task, {seeds} seed{'s' * (seeds > 1)}, in %"
        )
    )
    out.print(
        "ACC: accuracy over all tasks at the end. BWT: what learning later tasks did to earlier ones. Class-IL: among all ten digits; "
        "Task-IL: among the task's two.",
        style="dim",
    )
    folders(experiments, Store(out_dir))


@command(
    app.command(
        name="run",
        epilog="Examples:\n\n"
        "[bold]everlearn run er[/]  the default stream, Split-Digits\n\n"
        "[bold]everlearn run der++ --memory 50 --seeds 5[/]  mean ± std of five seeds\n\n"
        "[bold]everlearn run er --stream cifar10 --memory 200 --device cuda[/]  the published setting\n\n"
        "[bold]everlearn run er --stream cifar10 --set classes=ship,truck,cat,horse --set tasks=2[/]  two tasks of your choice\n\n"
        "[bold]everlearn run er --stream folder:photos --json > er.json[/]  your own images, a result for your own script",
    )
)
def run_command(
    method: Name,
    stream: OfStream = "digits",
    memory: Memory = None,
    epochs: Epochs = None,
    seed: Seed = None,
    seeds: Seeds = None,
    settings: Settings = None,
    device: Where = Device.auto,
    out_dir: Out = Path("runs"),
    data: Data = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    fresh: Fresh = False,
    pack: Pack = None,
    deterministic: Deterministic = False,
) -> None:
    """Run one method over one stream of tasks and measure what it remembers."""
    with advised(device):
        experiments = [Experiment.of(**one) for one in asked(method, stream, memory, epochs, seed, seeds, settings)]
    documents = perform(
        experiments,
        Store(out_dir),
        quiet,
        device=device.value,
        data=data,
        fresh=fresh,
        pack=pack,
        deterministic=deterministic,
    )
    if as_json:
        return print_json(several(documents) if seeds else documents[0])
    if len(documents) == 1 and not quiet:
        out.print(tables.matrix(documents[0]["class_il"]["matrix"], "Class-IL accuracy on each task, in %"), crop=False)
    out.print(tables.settings(documents, title=f"{method} on {stream}, in %"))
    if not quiet:
        folders(experiments, Store(out_dir))


@command(
    app.command(
        epilog="Examples: [bold]everlearn again runs/digits-er-m100-e5-s0-…[/], "
        "[bold]everlearn again results/cifar10/*.json --device cuda[/]"
    )
)
def again(
    records: Annotated[
        list[Path], typer.Argument(metavar="RECORD", help="Folders of runs, or files with the result of one.")
    ],
    device: Where = Device.auto,
    out_dir: Out = Path("again"),
    data: Data = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    fresh: Fresh = False,
    pack: Pack = None,
    deterministic: Deterministic = False,
) -> None:
    """Run records again from their own settings, and see whether the numbers come out the same."""
    then, store = {}, Store(out_dir)
    for path in records:
        experiment, document = recorded(path)
        if experiment in then:
            raise BadInput(f"{path} is a second record of {experiment.name}; compare one at a time")
        if store.path(experiment).resolve() in (path.resolve(), path.resolve().parent):
            raise BadInput(f"--out {out_dir} is where {path} itself is; choose another folder")
        if runs.choose(device.value) == "cpu" and experiment.precision != "float32":
            raise BadInput(f"{path} is of a run in {experiment.precision}, which needs a GPU")
        then[experiment] = document
    deterministic = deterministic or all(d.get("provenance", {}).get("deterministic") for d in then.values())
    here = provenance.here(runs.choose(device.value)) | {"deterministic": deterministic}
    for experiment in [] if fresh else filter(store.has, then):
        # A repetition that is there already speaks for the code, versions and device it was made with.
        if not provenance.same(here, store.result(experiment)["provenance"]):
            store.forget(experiment)
    chosen = dict(device=device.value, data=data, fresh=fresh, pack=pack, deterministic=deterministic)
    outcomes = dict(zip(then, perform(list(then), store, quiet, keep_going=True, **chosen)))
    pairs = {e.name: (then[e], now) for e, now in outcomes.items() if isinstance(now, dict)}
    same = lambda pair: len(set(metrics.agreeing(*pair))) == 1 and metrics.alike(*pair)
    if as_json:
        print_json({name: {"then": pair[0], "now": pair[1], "same": same(pair)} for name, pair in pairs.items()})
    elif pairs:
        out.print(tables.again(pairs))
        out.print("In %. same: accuracies, a task's after a task, that are equal to the last digit.", style="dim")
    report_failures(outcomes)
    if others := sum(not same(pair) for pair in pairs.values()):
        fail(f"{others} of {len(pairs)} runs came out otherwise", 1)


def recorded(path: Path) -> tuple[Experiment, dict]:
    """The experiment of a run's record, and the record."""
    document = read_result(path)
    try:
        experiment = Experiment.read(document["experiment"])
        tables.again({"": (document, document)})  # it has what is to be compared
    except (KeyError, TypeError, AttributeError):
        raise BadInput(f"{path} is not the record of a run, or not a whole one") from None
    return experiment, document


@command(app.command(epilog="Examples: [bold]everlearn methods[/], [bold]everlearn methods der++[/]"))
def methods(
    method: Annotated[Optional[str], typer.Argument(help="One method, to see its settings and their defaults.")] = None,
) -> None:
    """The methods, or one method's equation, settings and defaults."""
    if method is None:
        table = tables.plain("method", "what it is")
        for name, recipe in RECIPES.items():
            table.add_row(name, recipe.summary())
        out.print(table)
        return
    if method not in RECIPES:
        raise unknown("method", method, RECIPES)
    recipe = RECIPES[method]
    out.print(re.sub(r"(?<=\S)\n(?=\S)", " ", recipe.description()))  # lines as long as the terminal's
    table = tables.plain(
        "setting", *streams.STREAMS, title="Settings (--set KEY=VALUE) and their defaults on each stream"
    )
    resolved = {stream: settings_of(Experiment.of(method, stream)) for stream in streams.STREAMS}
    for key in resolved["digits"]:
        table.add_row(key, *(shown(values[key]) for values in resolved.values()))
    out.print(table)
    sizes = {size: defaults(method, "cifar10", size).get("weights") for size in (200, 500, 5120)}
    if len(set(sizes.values())) > 1:
        out.print(
            "cifar10 weights by memory: " + "; ".join(f"{size}: {shown(weights)}" for size, weights in sizes.items())
        )


@command(app.command(name="streams", epilog="Example: [bold]everlearn streams[/]"))
def streams_command(data: Data = None) -> None:
    """The streams, their tasks, and whether their data are here."""
    table = tables.plain("stream", "tasks", "network", "data", "what it is")
    for name, setting in streams.STREAMS.items():
        here = name == "digits" or sources.found(name, data)
        table.add_row(
            name,
            str(setting.tasks),
            setting.network,
            "here" if here else f"everlearn data get {name}",
            sources.SOURCES[name].summary,
        )
    table.add_row("npz:FILE", "", "", "", "your images: arrays x_train, y_train, x_test, y_test")
    table.add_row("folder:DIR", "", "", "", "your images: a folder a class, under DIR/train and DIR/test or under DIR")
    out.print(table)


@command(data_app.command(epilog="Example: [bold]everlearn data get cifar10[/]"))
def get(
    name: Annotated[str, typer.Argument(help="A data set; [bold]everlearn streams[/] lists them.")],
    data: Data = None,
    quiet: Quiet = False,
) -> None:
    """Download a data set, going on where a broken download stopped, and verify its published checksum."""
    from everlearn.report.progress import download_bar
    from everlearn.data.download import get as fetch

    with download_bar(name, quiet) as progress:
        folder = fetch(name, data, progress)
    out.print(
        f"{name}: here and verified, in {folder}"
        if name != "digits"
        else "digits: comes with scikit-learn, nothing to fetch",
        soft_wrap=True,
    )


@command(data_app.command(name="check", epilog="Example: [bold]everlearn data check cifar10[/]"))
def check_command(
    name: Annotated[str, typer.Argument(help="A data set, npz:FILE or folder:DIR.")], data: Data = None
) -> None:
    """Say which files of a data set are there, and whether they are whole."""
    statuses = sources.check(name, data)
    for folder in dict.fromkeys(status.path.parent for status in statuses):
        table = tables.plain("file", "state", "", title=f"{name} in {folder}")
        for status in statuses:
            if status.path.parent == folder:
                table.add_row(status.path.name, status.state, status.detail)
        out.print(table)
    if any(status.state not in ("ok", "present") for status in statuses):
        fetched = "" if sources.own(name) else f"everlearn data get {name} fetches it, or "
        raise BadInput(f"{name} is not whole; {fetched}put the files named above in their place")


Place = Enum("Place", {name: name for name in places.PLACES}, type=str)


@command(
    app.command(
        epilog="Examples:\n\n"
        "[bold]everlearn study[/]  what there is\n\n"
        "[bold]everlearn study digits --seeds 3[/]  all methods on Split-Digits, in a minute or two\n\n"
        "[bold]everlearn study relation-digits --against er[/]  and what each row gains on ER\n\n"
        "[bold]everlearn study table1-cifar10 --only 'M = 200' --dry-run[/]  what would run\n\n"
        "[bold]everlearn study mine.toml --on slurm --place partition=gpu --jobs 8[/]  a study of your own, on a cluster\n\n"
        "A study of your own is a TOML file: [bold]question[/], [bold]seeds[/], and one or more [bold]\\[\\[grid]][/] whose keys are "
        'settings and whose lists are crossed, such as method = \\["er", "rer"], memory = \\[50, 100].'
    )
)
def study(
    name: Annotated[
        Optional[str], typer.Argument(metavar="NAME|FILE", help="A study or a TOML file; without one, they are listed.")
    ] = None,
    seeds: Annotated[
        Optional[int], typer.Option(help="Runs of each row of the table. [dim]Default: the study's[/]", min=1)
    ] = None,
    only: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="WORDS", help="Only rows with this in their label, as often as you like; * stands for anything."
        ),
    ] = None,
    against: Annotated[
        Optional[str],
        typer.Option(
            metavar="ROW",
            help="Also what each row gains on this one, seed by seed; a method's name: on its row whose label is else the same.",
        ),
    ] = None,
    settings: Annotated[
        Optional[list[str]],
        typer.Option("--set", metavar="KEY=VALUE", help="A setting for every run of the study that has it."),
    ] = None,
    on: Annotated[
        Place, typer.Option("--on", help="Where to run: this machine, a Ray cluster, a Slurm cluster.")
    ] = Place.local,
    place: Annotated[
        Optional[list[str]],
        typer.Option(
            "--place", metavar="KEY=VALUE", help="An option of that place: address=… for Ray, partition=… for Slurm."
        ),
    ] = None,
    jobs: Annotated[
        Optional[int],
        typer.Option(help="Worker processes, or jobs on a cluster, at a time. [dim]Default: one a core[/]", min=1),
    ] = None,
    out_dir: Out = Path("runs"),
    data: Data = None,
    device: Where = Device.auto,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and run nothing.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    fresh: Fresh = False,
    pack: Pack = None,
    deterministic: Deterministic = False,
) -> None:
    """Run a grid of experiments and print its table. What is there already is not run again: stopped, it goes on."""
    if name is None:
        table = tables.plain("study", "rows", "seeds", "question")
        for key, (usual, make, question) in STUDIES.items():
            table.add_row(key, str(len(make(1, {}))), str(usual), question)
        return out.print(table)
    with advised(device, on.value):
        chosen = studies.study(name, seeds, only or [], assignments(settings or []))
    bases = studies.bases(chosen, against) if against else {}
    experiments, store = [experiment for row in chosen.rows.values() for experiment in row], Store(out_dir)
    if dry_run:
        done = {e for e in experiments if store.has(e)}
        if as_json:
            counts = lambda row: {"runs": len(row), "done": len(done.intersection(row))}
            return print_json(
                {"study": chosen.name, "rows": {label: counts(row) for label, row in chosen.rows.items()}}
            )
        return out.print(tables.plan(chosen, done))
    options = {key: int(v) if v.isdigit() else v for key, v in assignments(place or [], "--place").items()}
    outcomes = perform(
        experiments,
        store,
        quiet,
        keep_going=True,
        on=on.value,
        options=options,
        jobs=jobs,
        device=device.value,
        data=data,
        fresh=fresh,
        pack=pack,
        deterministic=deterministic,
    )
    of = dict(zip(experiments, outcomes))
    documents = {label: list(runs.values()) for label, runs in complete(chosen, of).items()}
    gained = lambda label: metrics.gain(
        documents[label], documents.get(bases[label], []), lambda run: run["experiment"]["seed"]
    )
    gains = {label: (bases[label], gained(label)) for label in documents if label in bases}
    if as_json:
        found = record(chosen, of, store)
        for label, (base, gain) in gains.items():
            found["rows"][label]["gain"] = {"on": base, **gain} if gain else None
        print_json(found)
    elif documents:
        out.print(tables.study(chosen, documents))
        if gains:
            out.print(tables.gains(gains))
        for line in tables.study_notes(chosen, documents):
            out.print(line, style="dim")
    report_failures(of)


@command(
    app.command(
        name="tune",
        epilog="Examples: [bold]everlearn tune er --memory 20[/], [bold]everlearn tune der++ --trials 50 --seeds 3 --json[/]",
    )
)
def tune_command(
    method: Name,
    stream: OfStream = "digits",
    trials: Annotated[int, typer.Option(help="Trials in all; those that are there already count.", min=1)] = 20,
    memory: Memory = None,
    epochs: Epochs = None,
    seed: Seed = None,
    seeds: Seeds = None,
    settings: Settings = None,
    holdout: Annotated[float, typer.Option(help="Part of each class's training images to judge by.")] = tune.HOLDOUT,
    device: Where = Device.auto,
    out_dir: Out = Path("runs"),
    data: Data = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    fresh: Fresh = False,
) -> None:
    """Search the fixed weights of a method's loss terms on held-out training images; compare them with the defaults and the relation."""
    with advised(device):
        rivals = tune.rivals(asked(method, stream, memory, epochs, seed, seeds, settings))
    store, log = Store(out_dir), console(stderr=True, quiet=quiet)
    say = lambda line: log.print(line, style="dim", soft_wrap=True)
    found = tune.search(
        rivals[method], store, trials, holdout=holdout, device=device.value, data=data, fresh=fresh, tell=say
    )
    tuned = [tune.weighed(experiment, found["best"]["weights"]) for experiment in rivals[method]]
    rows = {f"{method}, tuned weights": tuned, f"{method}, default weights": rivals.pop(method), **rivals}
    each = list(dict.fromkeys(experiment for row in rows.values() for experiment in row))  # tuned may be the default
    results = dict(zip(each, perform(each, store, quiet, device=device.value, data=data, fresh=fresh)))
    documents = {label: [results[experiment] for experiment in row] for label, row in rows.items()}
    if as_json:
        study = studies.Study(f"tune {method}", "", rows)
        return print_json({"search": found, **record(study, results, store)})
    for table in tables.tuning(found, documents, f"{method} on {stream}"):
        out.print(table)


@command(app.command(epilog="Examples: [bold]everlearn bench[/], [bold]everlearn bench er rer --json[/]"))
def bench(
    methods: Annotated[
        Optional[list[str]], typer.Argument(help="Methods to time. [dim]Default: er rer der++ rder[/]")
    ] = None,
    device: Where = Device.auto,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """See how fast it is here: milliseconds a step, images a second, peak memory; on a GPU eager, captured, compiled and packed."""
    from everlearn.experiments import bench as timing

    for method in methods or ():
        if method not in RECIPES:
            raise unknown("method", method, RECIPES)
        if RECIPES[method].method.merges:
            raise BadInput(f"{method} learns all tasks at once, and bench times the steps of a second one")
    log = console(stderr=True, quiet=quiet)
    document = timing.bench(
        runs.choose(device.value), methods or timing.METHODS, lambda line: log.print(line, style="dim")
    )
    if as_json:
        return print_json(document)
    out.print(tables.bench(document))
    for line in tables.bench_notes(document):
        out.print(line)


@command(
    app.command(
        epilog="Examples: [bold]everlearn explain runs/digits-rer-m100-e5-s0-…[/], [bold]everlearn explain RUN --html page.html[/]"
    )
)
def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a relational method's run.")],
    html: Annotated[
        Optional[Path], typer.Option("--html", help="Write a self-contained page instead of printing.")
    ] = None,
) -> None:
    """See what a relational run learned: the weights over training, the net's answers, which classes disturb which."""
    from everlearn.report import explain as report

    if html is None:
        report.show(run, out)
    else:
        html.write_text(report.page(run), encoding="utf-8")
        out.print(f"written to {html}", soft_wrap=True)


def complete(study: studies.Study, of: dict[Experiment, dict | Exception]) -> dict[str, dict[Experiment, dict]]:
    """The results of each row that has any."""
    rows = {label: {e: of[e] for e in row if isinstance(of[e], dict)} for label, row in study.rows.items()}
    return {label: runs for label, runs in rows.items() if runs}


def record(study: studies.Study, of: dict[Experiment, dict | Exception], store: Store) -> dict:
    """A study as one small document: its settings, every run's figures, the published ones."""
    figures = lambda e, d: {
        "seed": d["experiment"]["seed"],
        "seconds": d["seconds"],
        **{setting: {metric: d[setting][metric] for metric in metrics.METRICS} for setting in ("class_il", "task_il")},
        **({"validation": found} if (found := validation(store.path(e))) else {}),
    }
    found = complete(study, of)
    rows = {
        label: {
            "experiment": {**next(iter(of_row)).document(), "seed": None},
            "runs": [figures(e, d) for e, d in of_row.items()],
            "summary": metrics.across(list(of_row.values())),
            **({"published": row} if (row := published(study.name, label)) else {}),
        }
        for label, of_row in found.items()
    }
    each = [document["provenance"] for row in found.values() for document in row.values()]
    failed = {"failed": wrong} if (wrong := failures(of)) else {}
    return {"study": study.name, "rows": rows, "provenance": provenance.merged(each) if each else None, **failed}


def settings_of(experiment: Experiment) -> dict:
    document = experiment.document()
    return {
        key: value
        for key, value in {**document, **document["options"]}.items()
        if key not in ("method", "stream", "content", "options", "seed")
    }


def shown(value) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value)) or "all 1"
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def asked(
    method: str,
    stream: str,
    memory: int | None,
    epochs: int | None,
    seed: int | None,
    seeds: int | None,
    settings: Sequence[str] | None,
) -> list[dict]:
    """What a command asks for, as the settings of one experiment a seed."""
    if seed is not None and seeds is not None:
        raise BadInput("--seed runs one seed and --seeds several; give one of the two")
    if seeds is not None and seeds < 1:
        raise BadInput(f"--seeds {seeds} runs nothing; give at least 1")
    placed = {
        "method": method,
        "stream": stream,
        "memory": memory,
        "epochs": epochs,
        "seed": seed if seeds is None else seeds,
    }
    chosen = assignments(settings or [])
    for key in chosen:
        if placed.get(key) is not None:
            raise BadInput(f"--set {key}: {key} has its own place on the command line; give it there alone")
    return [{**placed, "seed": s, **chosen} for s in (range(seeds) if seeds else [seed])]


def assignments(words: Sequence[str], option: str = "--set") -> dict[str, str]:
    """KEY=VALUE words as a mapping."""
    for word in words:
        if "=" not in word:
            example = {"--set": "lr=0.1", "--place": "partition=gpu"}[option]
            raise BadInput(f"{option} '{word}' has no '='; write {option} KEY=VALUE, for example {option} {example}")
    pairs = [(key.strip().replace("-", "_"), value.strip()) for key, value in (word.split("=", 1) for word in words)]
    for key, times in Counter(key for key, _ in pairs).items():
        if times > 1:
            raise BadInput(f"{option} {key} is given {times} times; once is enough")
    return dict(pairs)


def advised(device: Device, on: str = "local") -> contextlib.AbstractContextManager:
    """Inside, experiments are in bfloat16 where that is advised and nothing else was asked for: a ResNet on a GPU. What a
    cluster's machines have is not for this one to find out."""
    where = runs.choose(device.value) if on == "local" else device.value
    return advising(resnet18="bfloat16") if where == "cuda" else contextlib.nullcontext()


# Schedules under which a method is not itself, and whose they are.
_late = lambda e, options: e.tasks is not None and options.get("relation_from_task", 0) > e.tasks
_hasty = lambda e, options: "consolidate" in e.method and options["warmup"] == 0 and not _late(e, options)
NOTES = {
    "the warm-up lasts for all epochs: {} will use the preset weights throughout": lambda e, options: (
        options.get("warmup", -1) >= e.epochs
    ),
    "the relation begins at a task that does not come: {} will use the preset weights throughout": _late,
    "there is no warm-up: {} will learn new samples from the memory only; 2 epochs have one": _hasty,
}


def perform(
    experiments: Sequence[Experiment], store: Store, quiet: bool, keep_going: bool = False, fresh: bool = False, **more
) -> list:
    """All experiments' results, those that are there already read and not run. What goes wrong with one is raised at the
    end, or stands in its place."""
    store.prepare()
    with Display(experiments, quiet or ranks.rank() > 0) as display:
        for sentence, of in NOTES.items():
            if names := {experiment.method for experiment in experiments if of(experiment, dict(experiment.options))}:
                display.say(sentence.format(" and ".join(sorted(names))))
        there = [] if fresh else [experiment for experiment in experiments if store.has(experiment)]
        for experiment in there:
            if len(there) <= 10:
                display.say(f"already run, see {store.path(experiment)} (--fresh runs it again)")
            display.report(experiment, places.DONE)
        if len(there) > 10:
            display.say(f"{len(there)} of {len(experiments)} runs are there already")
        outcomes = places.perform_all(experiments, store, fresh=fresh, report=display.report, **more)
    for outcome in outcomes:
        if isinstance(outcome, Exception) and not keep_going:
            raise outcome
    return outcomes


def folders(experiments: Sequence[Experiment], store: Store) -> None:
    if len(experiments) > 10:
        return out.print(f"{len(experiments)} runs kept in {store.root}", soft_wrap=True)
    out.print("Runs kept in")
    for experiment in experiments:
        out.print(f"  {store.path(experiment)}", soft_wrap=True)


def failures(outcomes: dict[Experiment, dict | Exception]) -> dict[str, str]:
    return {e.name: str(outcome) for e, outcome in outcomes.items() if isinstance(outcome, Exception)}


def report_failures(outcomes: dict[Experiment, dict | Exception]) -> None:
    """What went wrong, a line a kind; then the command has failed."""
    runs_by: dict[str, list[str]] = {}
    for run, sentence in (wrong := failures(outcomes)).items():
        runs_by.setdefault(sentence, []).append(run)
    for sentence, (first, *others) in runs_by.items():
        print(f"everlearn: {first}{f' and {len(others)} more' * bool(others)} failed: {sentence}", file=sys.stderr)
    if wrong:
        damaged = all(isinstance(o, Damaged) for o in outcomes.values() if isinstance(o, Exception))
        fail(
            f"{len(wrong)} of {len(outcomes)} runs failed{'' if damaged else '; the same command tries them again'}", 1
        )


def several(documents: Sequence[dict]) -> dict:
    return {"runs": documents, "summary": metrics.across(documents)}


def print_json(document: dict) -> None:
    print(json.dumps(document, indent=1))


@app.callback(invoke_without_command=True)
def top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"everlearn {__version__}")
        raise typer.Exit()


def main() -> None:
    with contextlib.suppress(BrokenPipeError):
        try:
            app()
        except KeyboardInterrupt:
            sys.exit(130)

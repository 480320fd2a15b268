"""Mammoth's results: `results/SETTING/DATASET/MODEL/logs.pyd`, a line a run, each a Python dictionary in words.

A dictionary has the run's arguments, `accmean_task3` (the mean over the tasks so far, after the third), and
`accuracy_1_task3` (on the first task after the third). Class-IL and Task-IL are in two files of the same arguments.
Lines are parsed, never run.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from everlearn.collection import imported
from everlearn.errors import BadInput

FILE = "logs.pyd"
LONGEST = 1 << 22  # characters of a line
MEASURED = re.compile(r"accmean_task(\d+)|accuracy_(\d+)_task(\d+)")
FIGURES = {"forward_transfer": "fwt", "backward_transfer": "bwt", "forgetting": "forgetting"}
MEMORY = ("cpu_memory_usage", "gpu_memory_usage")
NAMES = {  # theirs and ours
    "model": "method",
    "dataset": "stream",
    "buffer_size": "memory",
    "n_epochs": "epochs",
    "batch_size": "batch",
    "backbone": "network",
    "optim_mom": "momentum",
    "optim_wd": "weight_decay",
}
STREAMS = {"seq-mnist": "mnist", "seq-cifar10": "cifar10", "seq-cifar100": "cifar100", "seq-tinyimg": "tinyimagenet"}
BESIDE = re.compile(  # arguments that say where and how a run was logged, not what it is
    "conf_.*|wandb.*|.*_path|.*check.*|ckpt_name|notes|device|num_workers|(non_)?verbose|nowand|disable_log|debug_mode"
    "|tensorboard|csv_log|distributed|load_best_args|enable_other_metrics|eval_epochs|inference_only|code_optimization"
)


def read(paths: Sequence[Path]) -> dict[str, Any]:
    """The runs in these logs, as a document."""
    return imported.document("mammoth", _runs(imported.files(paths, FILE)), paths)


def _runs(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Each run once, with what either file says of it."""
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        setting, seen = _setting(file), {}
        for number, line in enumerate(imported.text(file).splitlines(), 1):
            if not line.strip():
                continue
            known = parsed(line)
            if known is None:
                raise BadInput(f"line {number} of {file} is not a dictionary of Mammoth's")
            own = {key: value for key, value in known.items() if not _measures(key)}
            same = json.dumps(own, sort_keys=True, default=str)
            seen[same] = seen.get(same, 0) + 1  # the same arguments may have been run twice
            run = found.setdefault(f"{seen[same]} {same}", _described(own, f"{file}, line {number}"))
            if (of := _figures(known)) is not None:
                run["task_il" if setting == "task-il" else "class_il"] = of
    for run in found.values():
        measured = run.get("class_il") or run.get("task_il")
        if measured is not None:
            tasks = {"tasks": len(measured["matrix"])} if measured.get("matrix") else {}
            yield run | {"settings": run["settings"] | tasks}


def _setting(file: Path) -> str:
    """The setting, such as `class-il`: it is the name of the folder three levels above the file."""
    parts = file.absolute().parts
    return parts[-4] if len(parts) > 4 else ""


def _measures(key: str) -> bool:
    return MEASURED.fullmatch(key) is not None or key in FIGURES or key in MEMORY


def parsed(line: str) -> dict[str, Any] | None:
    """A dictionary in words, `{'a': 1}` or `dict(a=1)`, with what is not plain in it as a word; None if it is none."""
    for words in (line, re.sub(r"<[^<>]*>", "None", line)):  # an object may stand there as <Thing at 0x7f…>
        if len(words) > LONGEST:
            return None
        try:
            tree = ast.parse(words.strip(), mode="eval").body
            if isinstance(tree, ast.Dict):
                pairs = [(_value(key), of) for key, of in zip(tree.keys, tree.values) if key is not None]
            elif isinstance(tree, ast.Call):
                pairs = [(keyword.arg, keyword.value) for keyword in tree.keywords]
            else:
                return None
            return {str(key): _value(node) for key, node in pairs}
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            continue
    return None


def _value(node: ast.expr) -> Any:
    """The plain value that a piece of Python stands for; of `float64(0.5)` or `tensor([1])` what is inside."""
    if isinstance(node, ast.Call) and node.args:
        return _value(node.args[0])
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(of) for of in node.elts]
    if isinstance(node, ast.Dict):
        return {str(_value(key)): _value(of) for key, of in zip(node.keys, node.values) if key is not None}
    if isinstance(node, ast.Constant):
        return node.value
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=of) if isinstance(inner := _value(of), (int, float)):
            return -inner
    return None if isinstance(node, ast.Name) else ast.unparse(node)


def _described(own: dict[str, Any], name: str) -> dict[str, Any]:
    """A run's arguments by our names, where we have one; without those that say nothing of what it is."""
    settings = {NAMES.get(key, key): value for key, value in own.items() if key != "seed" and _tells(key, value)}
    stream = settings.get("stream")
    settings["stream"] = STREAMS.get(str(stream), stream)
    seed = own.get("seed")
    return {"name": name, "seed": seed if type(seed) is int else None, "settings": settings}


def _tells(key: str, value: Any) -> bool:
    plain = isinstance(value, (str, int, float, bool)) or (isinstance(value, list) and len(value) < 100)
    return plain and BESIDE.fullmatch(key) is None and value not in ("", [])


def _figures(known: dict[str, Any]) -> dict[str, Any] | None:
    """ACC and the rest of a run, from the accuracies of the tasks, or from their means where there are no others."""
    means, cells = {}, {}
    for key, value in known.items():
        if (found := MEASURED.fullmatch(key)) and (number := imported.finite(value)) is not None:
            if found[1]:
                means[int(found[1])] = number
            else:
                cells[int(found[3]), int(found[2])] = number
    rows: dict[int, list[float]] = {}
    for (row, _), value in sorted(cells.items()):
        rows.setdefault(row, []).append(value)
    theirs = {ours: imported.finite(known.get(key)) for key, ours in FIGURES.items()}
    if (matrix := imported.triangle(list(rows.values()))) is not None:
        return imported.figures(matrix, fwt=theirs["fwt"])
    return {"acc": means[max(means)], **theirs} if means else None

"""everlearn export: a trained network for use elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from everlearn.cli.app import command
from everlearn.cli.options import Built, BuiltWith, Trained, assignments
from everlearn.errors import BadInput

EXAMPLES = """Examples:
  everlearn export runs/digits-er-m100-e5-s0-… digits.safetensors
  everlearn export MODEL net.pt      its state_dict, for torch.load
  everlearn export MODEL net.pt2     for torch.export.load, no code needed
  everlearn export MODEL net.onnx    for ONNX (needs everlearn[onnx])"""


@command(EXAMPLES)
def app(
    run: Trained,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Ends in .safetensors, .pt, .pt2 or .onnx.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    network: Built = None,
    options: BuiltWith = None,
) -> None:
    """Write a trained network to a file for use without this library.

    .safetensors and .pt hold its weights. .pt2 and .onnx take samples as they are stored, a batch of any size, and give
    a score per class.
    """
    from everlearn.experiments import kept
    from everlearn.report import console

    learner = kept.opened(run, network, assignments(options or []), changed=True)
    if file.is_dir():
        raise BadInput(f"{file} is a folder; give the name of a file")
    if file.exists() and not force:
        raise BadInput(f"{file} is there already; give another name, or --force to replace it")
    learner.export(file)
    console().print(f"written to {file}", soft_wrap=True)

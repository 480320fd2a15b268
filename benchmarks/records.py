"""What benchmarks share: their options, and where their figures go."""

import argparse
import json
from pathlib import Path

import torch


def options(description: str | None) -> argparse.ArgumentParser:
    """A benchmark's options; every one has --json."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the record to this file")
    return parser


def keep(record: dict, file: str | None) -> None:
    """Write a record, where a file was asked for."""
    if file:
        Path(file).write_text(json.dumps(record, indent=1) + "\n")


def keep_of_gpu(record: dict, file: str | None) -> None:
    """The same with the GPU's name, and printed."""
    record = {**record, "device": torch.cuda.get_device_name(), "torch": torch.__version__}
    print(json.dumps(record, indent=1))
    keep(record, file)

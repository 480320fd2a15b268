"""Keep of a run's metrics.jsonl what the pages need: losses and mean weights, one number an epoch.

python docs/curves.py RUN...     write results/cifar10-epochs/NAME.json for the folder of each run
"""

import json
import sys
from pathlib import Path

from recollect.store import read_lines

ROOT = Path(__file__).parents[1]


def curves(folder: Path) -> dict:
    epochs = [line for line in read_lines(folder) if line["event"] == "epoch"]
    terms = list(epochs[0]["loss"])
    weight = lambda line, term: round(line["weights"][term]["mean"], 5) if "weights" in line else None
    return {
        "task": [line["task"] for line in epochs],
        "phase": "".join(line.get("phase", "preset")[0] for line in epochs),  # preset, warm-up, relation
        "loss": {term: [round(line["loss"][term], 5) for line in epochs] for term in terms},
        "weights": {term: [weight(line, term) for line in epochs] for term in terms},
    }


def main(folders: list[str]) -> None:
    for folder in map(Path, folders):
        file = ROOT / "results" / "cifar10-epochs" / f"{folder.name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(curves(folder)) + "\n")
        print(f"written to {file}")


if __name__ == "__main__":
    main(sys.argv[1:]) if len(sys.argv) > 1 else sys.exit(__doc__)

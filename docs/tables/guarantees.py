"""What was tried against the product, and where it was installed."""

import re

from tables.records import files, record
from tables.text import code, markdown, short, wrapped


def guarantees() -> str:
    """What each script tried, how often the claim held, what did not hold, and where the records are."""
    rows, failed, records = [], [], []
    for r in map(record, files("torture/results")):
        command = re.sub(r" --(out|official|lines|noticed) \S+", "", r["command"])
        rows.append([f"{r['claim']} `{r['name']}`", f"{r['tried']:,}", f"{r['held']:,}"])
        failed += [wrapped(f"- `{r['name']}`: {f['group']}, {code(f['case'])}: {f['wrong']}.") for f in r["failures"]]
        records.append(f"- `{command}`: commit {short(r['commit'])}, {r['machine']}, {r['seconds']:,.0f} s.")
    return "\n\n".join(
        [
            markdown(["what holds, and the script", "tried", "held"], rows),
            "What did not hold:",
            "\n".join(failed),
            "The commands, and what they ran on:",
            "\n".join(records),
        ]
    )


def installs() -> str:
    """Where wheel and sdist were installed and used."""
    document = record("tools/results/release.json")
    beside = ("torch", "numpy", "scikit-learn", "typer", "rich")
    rows = [
        [
            f"{of['python']}, {'the oldest' if of['pinned'] else 'what pip chooses'}",
            *(of["versions"][name] for name in beside),
            f"{len(of['wheel'])} + {len(of['sdist'])}",
            "–" if of["without CUDA packages"] else "with",
        ]
        for of in document["checked"]
    ]
    about = "; ".join(f"{name}, {size / 1000:.0f} kB" for name, size in document["built"].items())
    header = ["Python, and which versions", *beside, "steps, wheel + sdist", "CUDA packages"]
    return f"{markdown(header, rows)}\n\nRecord: commit {short(document['commit'])}; {about}."


TABLES = {"guarantees": guarantees, "installs": installs}

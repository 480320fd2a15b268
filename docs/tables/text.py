"""How tables and the lines under them are written."""

import textwrap


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A table; a column that no row has anything in is left out."""
    columns = [cells for cells in zip(header, *rows, strict=True) if any(cells[1:]) or not rows]
    first, *others = zip(*columns, strict=True)
    line = lambda cells: "| " + " | ".join(cells) + " |"
    return "\n".join([line(first), line(["---"] + ["---:"] * (len(columns) - 1)), *map(line, others)])


def code(text: str) -> str:
    """As Markdown sets it, quotes of its own within."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def wrapped(sentence: str) -> str:
    """In lines that can be read; those of a list are set in."""
    indent = "  " if sentence.startswith("- ") else ""
    return textwrap.fill(sentence, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def gained(gain: dict, digits: int = 2) -> str:
    """A mean gain and, of more than one seed, half of its 95 % interval."""
    half = "" if gain["half_width"] is None else f" ± {gain['half_width']:.{digits}f}"
    return f"{gain['mean']:+.{digits}f}{half}"


def short(commit: str) -> str:
    """A commit's first letters, and a + if there were changes besides."""
    return commit[:10] + "+" * commit.endswith("+")


def provenance(document: dict) -> str:
    p = document["provenance"]
    every = lambda key: p[key] if isinstance(p[key], list) else [p[key]]
    versions = (", ".join(f"{name} {version}" for name, version in of.items()) for of in every("versions"))
    commits = " and ".join(map(short, filter(None, every("commit")))) or "not noted"
    parts = [f"commit {commits}", *every("device"), *versions]
    return wrapped(f"Record: {document['study']}, {', '.join(parts)}, {p['finished'][:10]}.")

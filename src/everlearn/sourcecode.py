"""A file of somebody else's, and what it imports from beside it: which files these are, and a hash of them."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path


def digest_of(path: Path, root: Path, package: str | None) -> str:
    return digest(files(path, root, package))


def files(path: Path, root: Path, package: str | None) -> dict[str, bytes]:
    return {one.relative_to(root).as_posix(): one.read_bytes() for one in sorted(reached(path, root, package))}


def digest(contents: Mapping[str, bytes]) -> str:
    total = hashlib.sha256()
    for name, content in contents.items():
        total.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return total.hexdigest()[:16]


def reached(path: Path, root: Path, package: str | None) -> set[Path]:
    """The file and all it imports, at once or later, from its package or, where it has none, from beside it."""
    found: set[Path] = set()
    todo = [path]
    while todo:
        file = todo.pop()
        if file in found:
            continue
        found.add(file)
        for name in _imports(file, root):
            parts = name.split(".")
            if package is None or parts[0] == package:
                for n in range(1, len(parts) + 1):
                    base = root.joinpath(*parts[:n])
                    todo += [p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()]
    return found


def _imports(file: Path, root: Path) -> Iterator[str]:
    """Dotted names a file imports, relative ones as seen from the root."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    here = file.relative_to(root).with_suffix("").parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (
                [*here[: len(here) - node.level], *(node.module or "").split(".")]
                if node.level
                else [node.module or ""]
            )
            stem = ".".join(part for part in base if part)
            yield from (f"{stem}.{alias.name}" if stem else alias.name for alias in node.names)

"""Draw which part of the package imports which: docs/imports.svg, from the code.

python docs/imports.py            writes the picture
python docs/imports.py --check    says whether the picture is what the code says
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE, PICTURE = ROOT / "src" / "everlearn", ROOT / "docs" / "imports.svg"
# From the bottom of the house to its roof: each may import those before it.
PARTS = (
    *(
        "errors",
        "files",
        "arguments",
        "sourcecode",
        "registry",
        "spec",
        "training",
        "core",
        "data",
        "terms",
        "weightings",
        "methods",
        "networks",
        "metrics",
        "checks",
    ),
    *("learner", "experiments", "launchers", "collection", "report", "cli"),
)
WIDTH, HEIGHT, GAP, LEFT = 150, 26, 14, 20


def part_of(module: str) -> str:
    """`everlearn.core.terms` is of the part `core`."""
    return [*module.split("."), ""][1]


def imports(file: Path) -> set[str]:
    """The modules of the package a file imports, at once or later; not those that only a type checker sees."""
    tree = ast.parse(file.read_text())
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                f"{node.module}.{alias.name}" if node.module == "everlearn" else node.module for alias in node.names
            }
    return {name for name in found if name.startswith("everlearn.")}


def edges() -> dict[str, set[str]]:
    """For each part, those it imports. The registry finds everything by name, which is no import of its own."""
    found: dict[str, set[str]] = {part: set() for part in PARTS}
    for file in SOURCE.rglob("*.py"):
        part = file.relative_to(SOURCE).with_suffix("").parts[0]
        if part in found and part != "registry":
            found[part] |= {part_of(name) for name in imports(file)} & set(PARTS) - {part}
    return found


def picture() -> str:
    """A box per part, the roof on top; an arrow from each part down to those it imports."""
    top = {part: GAP + (len(PARTS) - 1 - number) * (HEIGHT + GAP) for number, part in enumerate(PARTS)}
    boxes, arrows = [], []
    lanes = {part: number for number, part in enumerate(PARTS)}
    for part, used in edges().items():
        for other in sorted(used, key=PARTS.index):
            y1, y2 = top[part] + HEIGHT / 2, top[other] + HEIGHT / 2
            bend = 18 + 9 * (lanes[part] - lanes[other])
            x = LEFT + WIDTH
            arrows.append(
                f'<path d="M{x} {y1 + 3}C{x + bend} {y1 + 3} {x + bend} {y2 - 3} {x + 2} {y2 - 3}" class="e">'
                f"<title>{part} imports {other}</title></path>"
            )
    for part in PARTS:
        middle = LEFT + WIDTH / 2, top[part] + HEIGHT / 2 + 4
        boxes.append(
            f'<rect x="{LEFT}" y="{top[part]}" width="{WIDTH}" height="{HEIGHT}" rx="5" class="b"/>'
            f'<text x="{middle[0]}" y="{middle[1]}">{part}</text>'
        )
    size = LEFT + WIDTH + 170, len(PARTS) * (HEIGHT + GAP) + GAP
    style = (
        "text{font:13px system-ui,sans-serif;text-anchor:middle;fill:#1d2129}.b{fill:#eef3fa;stroke:#0b62b0}"
        ".e{fill:none;stroke:#59606e;stroke-opacity:.55;marker-end:url(#a)}"
    )
    marker = '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" role="img">'
        "<title>Which part of everlearn imports which: every arrow points down</title>"
        f"<style>{style}</style><defs>{marker}<path d='M0 0L8 4L0 8z' fill='#59606e'/></marker></defs>"
        f"<rect width='100%' height='100%' fill='#fff'/>{''.join(arrows)}{''.join(boxes)}</svg>\n"
    )


def main() -> None:
    if "--check" in sys.argv:
        sys.exit(0 if PICTURE.read_text() == picture() else "docs/imports.svg is not what the code says; make docs")
    PICTURE.write_text(picture())


if __name__ == "__main__":
    main()

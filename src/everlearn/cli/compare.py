"""everlearn compare: many runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from everlearn.cli.app import command, fail, tell
from everlearn.cli.options import Against, AsCsv, AsJson, AsLatex, AsMarkdown, Edited, Only, Paths, print_json
from everlearn.errors import BadInput, plural

EXAMPLES = """Examples:
  everlearn compare                             a leaderboard of all runs in runs
  everlearn compare runs --against er           and what each row gains on ER
  everlearn compare runs --only 'M = 200'       these rows alone
  everlearn compare results/cifar10 --latex > table.tex
  everlearn compare before after --fail-if-worse acc

--fail-if-worse takes acc, bwt, forgetting, fwt (Class-IL), task_il.acc and
the like (Task-IL), or seconds. A row of the second path is compared with
the row of the first that has the same settings, or else the same label. If
both paths have a single row, these two are compared. With two common seeds
or more a row is worse if the whole 95 % interval of its difference on these
seeds is on the wrong side of 0; with fewer, if the mean is."""


@command(EXAMPLES)
def app(
    paths: Paths = None,
    against: Against = None,
    only: Only = None,
    as_csv: AsCsv = False,
    as_markdown: AsMarkdown = False,
    as_latex: AsLatex = False,
    as_json: AsJson = False,
    html: Annotated[
        Optional[Path], typer.Option("--html", metavar="FILE", help="Write the page of `everlearn report`, too.")
    ] = None,
    worse: Annotated[
        Optional[str],
        typer.Option("--fail-if-worse", metavar="METRIC", help="Exit with 1 if the second path is worse; see below."),
    ] = None,
    edited: Edited = False,
) -> None:
    """See runs, studies and records side by side: mean ± std, gains, published figures, settings that differ."""
    from everlearn.collection import chosen, collect, judging
    from everlearn.report import board, console

    if as_csv + as_markdown + as_latex + as_json > 1:
        raise BadInput("--csv, --markdown, --latex and --json are one table each; give one of them")
    paths = paths or [Path("runs")]
    if worse is not None:
        judging.metric(worse)
        if len(paths) != 2:
            raise BadInput(f"--fail-if-worse compares a second path with a first; {len(paths)} are given")
    found = collect(paths, edited=edited)
    remarks = list(board.remarks(found))
    if not found.rows:
        more = f" and {len(remarks) - 1} more" if len(remarks) > 1 else ""
        why = f"; {remarks[0]}{more}" if remarks else ""
        raise BadInput(f"there is no complete run in {', '.join(map(str, paths))}{why}")
    found = chosen(found, only or [])
    gained = board.gains(found, against)
    made, out = board.board(found, gained), console()
    if as_json or as_csv or as_markdown or as_latex:
        if as_json:
            print_json(board.document(found, gained))
        else:
            print(board.text(found, gained, as_csv, as_latex))
        for sentence in remarks:
            tell(sentence)
    else:
        out.print(board.sheet(made))
        if (told := board.differences(found)) is not None:
            out.print(told)
        for sentence in (*made.notes, *remarks):
            out.print(sentence, style="dim")
    if html is not None:
        from everlearn.report.web.data import block
        from everlearn.report.web.page import CHARTLESS, charts, rendered

        html.write_text(rendered(block(found, [str(path) for path in paths])), encoding="utf-8")
        tell(f"written to {html}")
        if not charts():
            tell(CHARTLESS)
    if worse is not None:
        judge(paths, worse, only or [], edited)


def judge(paths: list[Path], metric: str, only: list[str], edited: bool) -> None:
    """Say which rows are worse. If any is, the command exits with 1."""
    from everlearn.collection import chosen, collect, judging
    from everlearn.report import tables

    before, after = (chosen(collect([path], edited=edited), only) for path in paths)
    judged, gone = judging.judged(before, after, metric), judging.gone(before, after)
    bad = [verdict for verdict in judged if verdict.worse]
    for verdict in bad:
        on = "the mean" if verdict.half_width is None else f"{verdict.seeds} common seeds"
        tell(f"{verdict.label}: {metric} {tables.more(verdict.difference, verdict.half_width)} on {on}")
    for label in gone:
        tell(f"{label}: no complete run of it in {paths[1]}")
    if count := len(bad) + len(gone):
        fail(f"{count} {'row is' if count == 1 else 'rows are'} worse in {paths[1]} than in {paths[0]}", 1)
    tell(f"{plural(len(judged), 'row')} judged by {metric}, none is worse in {paths[1]} than in {paths[0]}")

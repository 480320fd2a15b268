"""The command line: one file per command, imported when it is asked for. They share how a failure is answered."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import io
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer
import typer.core
import typer.main

from everlearn.cli import hasty
from everlearn.errors import FULL, EverlearnError, Notice, foreign, located, printable, short_of_memory
from everlearn.version import __version__

OF_LEARNERS = ("predict", "teach", "memory", "export")
COMMANDS = (
    *("demo", "run", "again", "study", "tune", "compare", "explain", "report", "watch", "import"),
    *OF_LEARNERS,
    *("methods", "weightings", "streams", "data", "bench"),
)
FILES = {"import": "import_"}  # commands whose names Python has taken
SETTINGS = ("lr", "batch", "momentum", "weight-decay", "forward", "precision", "tasks", "classes", "weights", "warmup")
SETTINGS += ("size", "strict")  # of pictures
WHOLE = 10_000  # letters of a sentence
STOPPED = "stopped; complete runs are kept, and the same command continues the others where they stopped"
ENDED = (129, 143)  # by SIGHUP, by SIGTERM
USAGE: Any = typer.BadParameter.__base__  # click's class of every usage error, wherever typer has it


class Listed(typer.core.TyperGroup):
    """Commands that are listed with their first sentence, folded where the terminal is narrow and never cut."""

    def format_commands(self, ctx, formatter) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, of.get_short_help_str(WHOLE)) for name, of in commands.items() if of])


class Group(Listed):
    """Commands that are imported when they are needed; a wrong word is answered in one sentence, as any wrong input."""

    asked = "everlearn"  # and the command, once it is known

    def list_commands(self, ctx) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx, args: list[str]):
        self.commands = dict.fromkeys(COMMANDS) | self.commands  # what a mistyped one is compared with
        found = super().resolve_command(ctx, args)
        self.asked = f"{ctx.command_path} {found[0]}"
        return found

    def get_command(self, ctx, name: str):
        if name not in COMMANDS:
            return None
        return typer.main.get_command(importlib.import_module(f"everlearn.cli.{FILES.get(name, name)}").app)

    def main(self, *args, standalone_mode: bool = True, **extra):
        given = args[0] if args else extra.get("args")
        words = ["", *(sys.argv[1:] if given is None else given)]
        if any(not word and before != "--only" for before, word in pairwise(words)):  # which says more itself
            tell("a word on the command line is empty; it may come from a variable that is not set")
            sys.exit(2)
        try:
            sys.exit(super().main(*args, standalone_mode=False, **extra))
        except USAGE as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                print(error.ctx.get_help())
                sys.exit(error.exit_code)
            message = error.format_message().strip(" .?\n").replace(". Did", ", did")
            if message:  # it is empty where the help was printed
                command = error.ctx.command_path if error.ctx else self.asked  # none: an option without its value
                setting = None if command.split()[-1] in OF_LEARNERS else _setting(message, sys.argv)
                plain = setting or _number(message, sys.argv) or message[0].lower() + message[1:]
                tell(f"{plain.replace('Value error, ', '')}; see {command} --help")
            sys.exit(error.exit_code)
        except ValueError as error:  # a path that is no path: newer versions of typer make it a usage error
            tell(f"a word on the command line is wrong: {error}")
            sys.exit(2)


def _setting(message: str, words: list[str]) -> str | None:
    """What to say to `--lr 0.1`: an option that is a setting is given with --set."""
    wrong = re.search(r"[Nn]o such option:? '?--([\w-]+)", message)
    if wrong is None or wrong[1] not in SETTINGS:
        return None
    given = [value for value in _given(f"--{wrong[1]}", words) if value] or ["…"]
    return f"--{wrong[1]} is a setting; give it as --set {wrong[1].replace('-', '_')}={given[0]}"


def _number(message: str, words: list[str]) -> str | None:
    """What to say to `--seeds x`: newer versions of typer speak of what they could not parse."""
    if (wrong := re.search(r"'(--[\w-]+)'.*: Input should be a valid (integer|number)", message)) is None:
        return None
    given = [value or "''" for value in _given(wrong[1], words)]  # the last one counts
    return f"{wrong[1]} {given[-1]} is no {'whole ' * (wrong[2] == 'integer')}number" if given else None


def _given(option: str, words: list[str]) -> list[str]:
    """The values that an option has on the command line, as in `--seeds 3` or `--seeds=3`."""
    split = [part for word in words for part in (word.split("=", 1) if word.startswith(f"{option}=") else [word])]
    return [value for word, value in pairwise(split) if word == option]


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode=None,  # its help takes as long to import as all the rest
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Continual learning by rehearsal: train one network on a stream of tasks without forgetting the old ones.\n\n"
    "Start with `everlearn demo`, then `everlearn run er`.",
)
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of what goes wrong.")]


def command(epilog: str = "", name: str | None = None) -> Callable[[Callable], typer.Typer]:
    """A function as a command of its own, whose every failure is one sentence and an exit code: 2 wrong input, 1 failed
    run, 130 Ctrl-C."""

    def decorate(function: Callable) -> typer.Typer:
        own = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        own.command(name=name, epilog=f"\b\n{epilog}" if epilog else None)(answered(function))
        return own

    return decorate


def answered(function: Callable) -> Callable:
    """The function with one more option, --debug, and its failures in words."""

    @functools.wraps(function)
    def answering(*args, debug: bool = False, **kwargs):
        from everlearn.core import ranks

        debug = debug or bool(os.environ.get("EVERLEARN_DEBUG"))
        try:
            hasty(False)
            with ranks.process_group(), _noticed():
                function(*args, **kwargs)
        except KeyboardInterrupt:
            fail(STOPPED, 130)
        except SystemExit as error:
            if error.code in ENDED:
                fail(STOPPED, error.code)
            raise
        except (BrokenPipeError, typer.Exit):  # what an exit code stands for has been said
            raise
        except Exception as error:
            sentence, code = _answer(error)
            if debug:
                trace = getattr(error, "traceback", None) or traceback.format_exc()
                print(printable(trace, keep="\n"), file=sys.stderr)
            fail(sentence, code)

    parameters = inspect.signature(function, eval_str=True).parameters.values()
    more = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug)
    vars(answering)["__signature__"] = inspect.Signature([*parameters, more])  # typer reads it
    del answering.__wrapped__
    answering.__annotations__ = {p.name: p.annotation for p in (*parameters, more)}
    return answering


@contextlib.contextmanager
def _noticed() -> Iterator[None]:
    """Our notices are sentences on stderr, said once; other warnings are as they were."""
    from everlearn.core import ranks

    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message, category, *where, **more) -> None:
            if not issubclass(category, Notice):
                usual(message, category, *where, **more)
            elif not ranks.rank():
                tell(str(message))

        warnings.showwarning = show
        yield


def _answer(error: Exception) -> tuple[str, int]:
    """The sentence that an error is answered with, and the exit code."""
    if isinstance(error, EverlearnError):
        return str(error), error.exit_code
    if short_of_memory(error):
        return "there is not enough memory for this run; a smaller --memory, --set batch or network may fit", 1
    if foreign(error) and getattr(error, "errno", None) not in FULL:
        return located(error), 1
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        way_out = "free some space" if error.errno in FULL else "check the path"
        return f"{error.strerror or error}{where}; {way_out} and run the same command again", 1
    return f"{type(error).__name__}: {error}; --debug shows where", 1


def fail(sentence: str, code: int) -> NoReturn:
    from everlearn.core import ranks

    tell(sentence, f"everlearn, rank {ranks.rank()}" if ranks.rank() else "everlearn")
    raise typer.Exit(code)


def tell(sentence: str, name: str = "everlearn") -> None:
    """A sentence on stderr; names in it are anybody's, so what is no visible character is not printed."""
    print(f"{name}: {printable(' '.join(sentence.splitlines()))}", file=sys.stderr)


@app.callback(invoke_without_command=True)
def top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"everlearn {__version__}")
        raise typer.Exit()


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # whatever letters the terminal has
    with contextlib.suppress(BrokenPipeError):
        try:
            app()
        except (KeyboardInterrupt, typer.Abort):
            sys.exit(130)
        finally:
            hasty(True)

"""Tables of the options of each command, from their parsers."""

# ruff: noqa: SLF001  the tables show what the package keeps to itself

from __future__ import annotations

import argparse
from collections.abc import Iterator

from django.core.management import load_command_class

from docs.generators import markdown

# What every command of Django takes is in Django's own documentation.
_DJANGO = {
    "help",
    "version",
    "verbosity",
    "settings",
    "pythonpath",
    "traceback",
    "no_color",
    "force_color",
    "skip_checks",
}


def runworker_options() -> str:
    """Return the options of ``runworker``."""
    return _options(_parser("runworker"))


def jobs_options() -> str:
    """Return each subcommand of ``jobs`` with its options."""
    parts = []
    for name, text, parser in _subcommands(_parser("jobs")):
        if name == "work":
            continue  # the same as runworker
        wanted = "".join(f" {action.metavar or action.dest}" for action in parser._actions if not action.option_strings)
        parts.append(f"### `jobs {name}`\n\n`manage.py jobs {name}{wanted}`\n\n{text}\n\n{_options(parser)}".rstrip())
    return "\n\n".join(parts)


def _parser(command: str) -> argparse.ArgumentParser:
    return load_command_class("django_jobs", command).create_parser("manage.py", command)


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, sub in action.choices.items():
                yield name, texts.get(name) or sub.description or "", sub


def _options(parser: argparse.ArgumentParser) -> str:
    actions = [action for action in parser._actions if action.dest not in _DJANGO]
    rows = [(_name(action), _help(action)) for action in actions if action.help is not argparse.SUPPRESS]
    return markdown.table(("Option", "Meaning"), rows) if rows else ""


def _name(action: argparse.Action) -> str:
    shown = ", ".join(action.option_strings) or (action.metavar if isinstance(action.metavar, str) else action.dest)
    takes_value = bool(action.option_strings) and action.nargs != 0
    value = f" {action.metavar or action.dest.upper()}" if takes_value else ""
    return f"`{shown}{value}`"


def _help(action: argparse.Action) -> str:
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    choices = f" One of {', '.join(f'`{choice}`' for choice in action.choices)}." if action.choices else ""
    return text + choices

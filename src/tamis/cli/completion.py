"""``tamis completion``: scripts that complete the ``tamis`` command in a shell, made from its parser."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import Final

from tamis.cli.output import write_styled

_PATHS: Final = ("PATH", "DIR", "RUN", "RUN_DIR", "RUN_OR_FOLDER", "RECIPE", "INPUT", "OUTPUT")
"""Names of arguments that stand for files and directories."""


@dataclass(frozen=True)
class CommandWords:
    """What may follow a command.

    Args:
        name: The command.
        summary: What it does.
        options: Its options, each with its help.
        values: For each option that takes a value the words it may be, as far as they are known; ``None`` for a file.
        words: The words that may follow the command itself.
        paths: Whether files may follow it.
    """

    name: str
    summary: str
    options: dict[str, str]
    values: dict[str, list[str] | None]
    words: list[str]
    paths: bool


def run(arguments: argparse.Namespace) -> int:
    """Print the script of a shell."""
    from tamis.cli.arguments import parser

    scripts = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    write_styled(scripts[arguments.shell](command_words(parser())))
    return 0


def command_words(parser: argparse.ArgumentParser) -> list[CommandWords]:
    """The commands of a parser, and what may follow each.

    >>> parser = argparse.ArgumentParser()
    >>> one = parser.add_subparsers().add_parser("one", help="The first.", add_help=False)
    >>> _ = one.add_argument("--color", choices=("red", "blue"), help="the color")
    >>> [(c.name, c.options, c.values) for c in command_words(parser)]
    [('one', {'--color': 'the color'}, {'--color': ['red', 'blue']})]
    """
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            found += [_words(name, helps.get(name, ""), sub) for name, sub in action.choices.items()]
    return found


def _words(name: str, summary: str, parser: argparse.ArgumentParser) -> CommandWords:
    options: dict[str, str] = {}
    values: dict[str, list[str] | None] = {}
    words: list[str] = []
    paths = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):  # what its commands take may follow it, too
            words += action.choices
            for inner in (_words(name, "", sub) for sub in action.choices.values()):
                options, values, paths = inner.options | options, inner.values | values, paths or inner.paths
            continue
        is_path = action.metavar in _PATHS
        choices = [str(choice) for choice in action.choices or ()] or _known(name, action.dest)
        for option in action.option_strings:
            options[option] = _help(action, parser)
            if action.nargs != 0:
                values[option] = None if is_path else choices
        if not action.option_strings:
            words += choices
            paths = paths or is_path
    return CommandWords(name, summary, options, values, words, paths)


def _known(command: str, argument: str) -> list[str]:
    """Words for arguments that take other words, too."""
    if argument == "executor":
        return ["local", "streaming", "ray-actor-pool", "ray-data", "xenna"]
    if argument == "recipe" or (command, argument) == ("recipes", "name"):
        from tamis.pipeline.recipe import shipped_recipes

        return list(shipped_recipes())
    return []


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%(prog)s", parser.prog)
    return text.replace("%%", "%")


# --- bash -----------------------------------------------------------------------------------------------------------

_BASH: Final = r"""# Completion of tamis for bash. To use it: source <(tamis completion bash)
_tamis() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="" i words="" options="" files=""
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${COMP_WORDS[i]}" in -*) ;; *) command="${COMP_WORDS[i]}"; break ;; esac
  done
  case "$command:$before" in
@VALUES@
    *)
      case "$command" in
@COMMANDS@
      esac ;;
  esac
  [[ $word == -* ]] && words="$options"
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [[ -n $files && $word != -* ]]; then
    local IFS=$'\n'
    COMPREPLY+=($(compgen -f -- "$word"))
    compopt -o filenames 2>/dev/null
  fi
}
complete -F _tamis tamis"""


def bash_script(commands: list[CommandWords]) -> str:
    """The script for bash."""
    cases = [f'        "") words="{" ".join(c.name for c in commands)}" options="--help --version --debug" ;;']
    values = []
    for command in commands:
        files = " files=1" if command.paths else ""
        words, options = " ".join(command.words), " ".join(command.options)
        cases.append(f'        {command.name}) words="{words}" options="{options}"{files} ;;')
        for option, value in command.values.items():
            what = "files=1" if value is None else f'words="{" ".join(value)}"'
            values.append(f"    {command.name}:{option}) {what} ;;")
    return _BASH.replace("@VALUES@", "\n".join(values)).replace("@COMMANDS@", "\n".join(cases))


# --- zsh ------------------------------------------------------------------------------------------------------------

_ZSH: Final = r"""#compdef tamis
# Completion of tamis for zsh. To use it: tamis completion zsh > "${fpath[1]}/_tamis", or source <(tamis completion zsh)
_tamis() {
  local -a commands
  commands=(
@COMMANDS@
  )
  _arguments -C '--help[show the options]' '--version[show the version]' '1:command:->command' '*::argument:->argument'
  case $state in
    command) _describe 'command' commands ;;
    argument)
      case $words[1] in
@ARGUMENTS@
      esac ;;
  esac
}
if [[ $funcstack[1] == _tamis ]]; then _tamis "$@"; else compdef _tamis tamis; fi"""


def zsh_script(commands: list[CommandWords]) -> str:
    """The script for zsh."""
    listed = "\n".join(f"    {_quoted(f'{c.name}:{c.summary}')}" for c in commands)
    arguments = "\n".join(f"        {c.name}) _arguments {_zsh_arguments(c)} ;;" for c in commands)
    return _ZSH.replace("@COMMANDS@", listed).replace("@ARGUMENTS@", arguments)


def _zsh_arguments(command: CommandWords) -> str:
    parts = []
    for option, text in command.options.items():
        shown = re.sub(r"[\[\]:]", " ", text)
        value = ""
        if option in command.values:
            known = command.values[option]
            value = ":value:_files" if known is None else f":value:({' '.join(known)})"
        parts.append(_quoted(f"{option}[{shown}]{value}"))
    if command.words:
        parts.append(_quoted(f"1:word:({' '.join(command.words)})"))
    if command.paths:
        parts.append(_quoted("*:file:_files"))
    return " ".join(parts)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", r"'\''") + "'"


# --- fish -----------------------------------------------------------------------------------------------------------


def fish_script(commands: list[CommandWords]) -> str:
    """The script for fish."""
    names = " ".join(command.name for command in commands)
    lines = [
        "# Completion of tamis for fish. To use it: tamis completion fish > ~/.config/fish/completions/tamis.fish",
        f"set -l commands {names}",
        "complete -c tamis -f",
    ]
    none, not_yet = "__fish_seen_subcommand_from", "not __fish_seen_subcommand_from $commands"
    for command in commands:
        lines.append(f'complete -c tamis -n "{not_yet}" -a {command.name} -d {_fish_quoted(command.summary)}')
        seen = f'complete -c tamis -n "{none} {command.name}"'
        for option, text in command.options.items():
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            value = ""
            if option in command.values:
                known = command.values[option]
                value = " -r -F" if known is None else f' -x -a "{" ".join(known)}"'
            lines.append(f"{seen} {flag}{value} -d {_fish_quoted(text)}")
        if command.words:
            lines.append(f'{seen} -a "{" ".join(command.words)}"')
        if command.paths:
            lines.append(f"{seen} -F")
    return "\n".join(lines)


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

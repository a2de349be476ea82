"""Completion in real shells."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

import pytest

from tamis.cli.arguments import parser
from tamis.cli.completion import bash_script, command_words, fish_script, zsh_script

COMMANDS = command_words(parser())
COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
$(complete -p tamis | sed 's/.*-F \\([^ ]*\\).*/\\1/')
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(folder: Path, *words: str) -> set[str]:
    """What bash offers after these words, the last of which is being typed."""
    script = folder / "tamis.bash"
    script.write_text(bash_script(COMMANDS))
    command = ["bash", "--norc", "-c", COMPLETE, "bash", str(script), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert done.stderr == ""
    return set(done.stdout.split("\n")) - {""}


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
def test_bash_completes_commands_options_values_and_files(tmp_path: Path) -> None:
    (tmp_path / "my recipe.yaml").touch()
    assert {"run", "runs", "report", "recipes", "replay", "rethreshold"} == completed(tmp_path, "tamis", "r")
    assert {"--version"} == completed(tmp_path, "tamis", "--v")
    assert {"--progress"} == completed(tmp_path, "tamis", "run", "--pro")
    assert {"auto", "live", "plain", "off"} == completed(tmp_path, "tamis", "run", "x", "--progress", "")
    assert {"list", "clean", "compare"} <= completed(tmp_path, "tamis", "runs", "")
    assert {"bash", "zsh", "fish"} == completed(tmp_path, "tamis", "completion", "")
    assert {"my recipe.yaml"} == completed(tmp_path, "tamis", "run", "my")
    assert {"my recipe.yaml"} == completed(tmp_path, "tamis", "run", "--input", "my")
    assert {"gopher"} == completed(tmp_path, "tamis", "recipes", "go")
    assert {"ray-data", "ray-actor-pool"} == completed(tmp_path, "tamis", "run", "--executor", "ray")
    assert set() == completed(tmp_path, "tamis", "run", "--workers", "")
    assert "--debug" in completed(tmp_path, "tamis", "--debug", "run", "-")


def test_every_option_of_every_command_is_known() -> None:
    subparsers = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert [command.name for command in COMMANDS] == list(subparsers.choices)
    for command in COMMANDS:
        assert set(command.options) == options_of(subparsers.choices[command.name])


def options_of(command: argparse.ArgumentParser) -> set[str]:
    """The options of a command, and of the commands that may follow it."""
    found = {option for action in command._actions for option in action.option_strings}
    inner = [action.choices.values() for action in command._actions if isinstance(action, argparse._SubParsersAction)]
    return found.union(*(options_of(one) for some in inner for one in some))


@pytest.mark.parametrize(("shell", "script"), [("zsh", zsh_script), ("fish", fish_script), ("bash", bash_script)])
def test_the_scripts_are_valid(shell: str, script: object, tmp_path: Path) -> None:
    text = script(COMMANDS)  # type: ignore[operator]  # from a table of functions
    assert "completion" in text
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    (tmp_path / "script").write_text(text)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True, capture_output=True)

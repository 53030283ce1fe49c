"""Where the program is that this package came with, and what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from typing import List, Sequence

__all__ = ["GputraceError", "find", "run"]


class GputraceError(Exception):
    """The program refused: its one line, which names the file, what is wrong and what to do."""


def find() -> str:
    """The path of the program: GPUTRACE, else where pip put it beside this package, else what PATH has."""
    named = os.environ.get("GPUTRACE")
    if named:
        return named
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [
        # Of the environment that runs, and of `pip install --user`.
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", scheme=f"{os.name}_user"),
        # Of `pip install --target`, and of `--prefix`.
        os.path.join(here, "..", "bin"),
        os.path.join(here, "..", "..", "..", "..", "bin"),
    ]
    for folder in folders:
        path = os.path.join(folder or "", "gputrace")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.normpath(path)
    found = shutil.which("gputrace")
    if found:
        return found
    raise GputraceError(
        "the program gputrace was not found beside this package nor in PATH: `pip install --force-reinstall gputrace`, "
        "or name it in the variable GPUTRACE"
    )


def run(arguments: Sequence[str]) -> bytes:
    """What the program prints.

    Raises `GputraceError` with the program's own line where it refuses.
    """
    command: List[str] = [find(), *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    except OSError as error:
        raise GputraceError(f"{command[0]} cannot be started: {error}") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise GputraceError(said or f"{' '.join(command)} ended with status {done.returncode}")
    return done.stdout


def main() -> None:
    """Becomes the program: what `python -m gputrace` does."""
    try:
        program = find()
        os.execv(program, [program, *sys.argv[1:]])
    except (GputraceError, OSError) as error:
        sys.exit(f"gputrace: {error}")

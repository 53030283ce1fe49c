"""A recording in Python: what the program says of it, and its tables as frames.

Nothing is computed here. `analysis` is the program's JSON (`gputrace analyze --json`), and tables are its Parquet files, read by
whichever of pyarrow, pandas and Polars is installed.
"""

from __future__ import annotations

import builtins
import glob
import html
import json
import os
import subprocess
import tempfile
import threading
import weakref
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, TypedDict, Union

from ._program import GputraceError, find, run

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from matplotlib.axes import Axes

__all__ = ["Analysis", "Path", "Recording", "Table", "Tables", "View", "open"]

#: A path of a recording or a trace.
Path = Union[str, "os.PathLike[str]"]


class Analysis(TypedDict, total=False):
    """What `gputrace analyze --json` writes, by its first level. docs/measures.md in gputrace's repository defines each number."""

    schema: str
    source: str
    device: str
    step: Optional[Dict[str, Any]]
    ranks: List[Dict[str, Any]]
    collectives: List[Dict[str, Any]]
    findings: List[Dict[str, Any]]
    losses: List[Dict[str, Any]]
    measures: List[Dict[str, Any]]


class Table:
    """A table of a recording, as Parquet files."""

    def __init__(self, name: str, files: Sequence[str]) -> None:
        self.name = name
        #: Where they are, as long as the recording is in use.
        self.files = list(files)

    def arrow(self) -> pyarrow.Table:
        """As a table of pyarrow."""
        import pyarrow
        import pyarrow.parquet

        # Each file by itself: a folder's name is no column.
        return pyarrow.concat_tables([pyarrow.parquet.ParquetFile(file).read() for file in self.files]).unify_dictionaries()

    def pandas(self) -> pandas.DataFrame:
        """As a frame of pandas, with pyarrow's types: integers stay integers where some are missing."""
        import pandas

        frames = [pandas.read_parquet(file, dtype_backend="pyarrow", engine="pyarrow", partitioning=None) for file in self.files]
        return frames[0] if len(frames) == 1 else pandas.concat(frames, ignore_index=True)

    def polars(self) -> polars.DataFrame:
        """As a frame of Polars."""
        import polars

        return polars.read_parquet(self.files, hive_partitioning=False)

    def __repr__(self) -> str:
        return f"<table {self.name}: .arrow(), .pandas() or .polars()>"


class Tables(Mapping[str, Table]):
    """Tables by their names."""

    def __init__(self, files: Mapping[str, Sequence[str]]) -> None:
        self._tables = {name: Table(name, files[name]) for name in sorted(files)}

    def __getitem__(self, name: str) -> Table:
        try:
            return self._tables[name]
        except KeyError:
            raise KeyError(f"no table {name!r}: there are {', '.join(self._tables)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        return f"<tables {', '.join(self._tables)}>"


class View:
    """The page of a recording, served until `close` or the end of this process."""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        #: With its token: whoever has it can look.
        self.url = url
        self._end = weakref.finalize(self, _end, process)

    def close(self) -> None:
        """Ends the server."""
        self._end()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def _repr_html_(self) -> str:
        url = html.escape(self.url)
        return f'<a href="{url}" target="_blank" rel="noopener noreferrer">{url}</a>'

    def __repr__(self) -> str:
        return self.url


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()
    if process.stdout:
        process.stdout.close()


class Report:
    """One page with everything in it, shown in a notebook's cell."""

    def __init__(self, page: str) -> None:
        self.page = page

    def _repr_html_(self) -> str:
        # Scripts of the page run in an origin of their own, and reach nothing of the notebook.
        inside = html.escape(self.page, quote=True)
        return f'<iframe sandbox="allow-scripts" srcdoc="{inside}" style="width: 100%; height: 40em; border: 0"></iframe>'


class Recording:
    """A recording, or traces of others that the program reads: the same paths as on the command line."""

    def __init__(self, *paths: Path) -> None:
        if not paths:
            raise TypeError("a recording needs a path")
        self.paths = [os.fspath(path) for path in paths]
        self._analysis: Optional[Analysis] = None
        self._lock = threading.Lock()
        self._folder: Optional[tempfile.TemporaryDirectory[str]] = None

    @property
    def analysis(self) -> Analysis:
        """What `gputrace analyze --json` says."""
        if self._analysis is None:
            self._analysis = json.loads(run(["analyze", "--json", "--", *self.paths]))
        return self._analysis

    @property
    def events(self) -> Tables:
        """What was recorded, event by event: kernels, copies, collectives, ... (`gputrace export --format parquet`)."""
        if len(self.paths) != 1:
            raise GputraceError("tables of events are those of one path: put parts together with `gputrace merge` first")
        folder = self._made("events", ["export", self.paths[0], "--format", "parquet", "-o"])
        names = [name for name in os.listdir(folder) if name != "derived" and os.path.isdir(os.path.join(folder, name))]
        return Tables({name: sorted(glob.glob(os.path.join(glob.escape(folder), name, "*.parquet"))) for name in names})

    @property
    def summary(self) -> Tables:
        """The analysis as tables: ranks, steps, kernels by name, idle_causes, ... (`gputrace analyze --tables`)."""
        folder = self._made("summary", ["analyze", *self.paths, "--json", "--tables"])
        files = glob.glob(os.path.join(glob.escape(folder), "*.parquet"))
        return Tables({os.path.basename(file)[: -len(".parquet")]: [file] for file in files})

    def view(self) -> View:
        """Serves the page on this machine, at a free port, and gives its address. A notebook shows it as a link."""
        command = [find(), "view", "--no-open", "--", *self.paths]
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said)
            assert process.stdout is not None
            url = process.stdout.readline().decode().strip()
            if url:
                return View(url, process)
            _end(process)
            said.seek(0)
            raise GputraceError(said.read().decode("utf-8", "replace").strip() or "gputrace view gave no address")

    def report(self) -> Report:
        """The page as one file (`gputrace export --format html`), which a notebook shows in its cell."""
        if len(self.paths) != 1:
            raise GputraceError("a report is of one path: put parts together with `gputrace merge` first")
        with tempfile.TemporaryDirectory(prefix="gputrace-") as folder:
            path = os.path.join(folder, "report.html")
            run(["export", self.paths[0], "--format", "html", "-o", path])
            with builtins.open(path, encoding="utf-8") as file:
                return Report(file.read())

    def plot(self, rank: Optional[int] = None, ax: Optional[Axes] = None) -> Axes:
        """Where the time goes, by rank, or by step of one rank (on its first GPU). Needs matplotlib; a notebook shows it in its cell."""
        from . import plots

        return plots.draw(self.analysis, rank, ax)

    def _made(self, name: str, command: Sequence[str]) -> str:
        """The folder of tables `name`, made once, by the command that ends with its path."""
        with self._lock:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="gputrace-")
            folder = os.path.join(self._folder.name, name)
            if not os.path.exists(folder):
                run([*command, folder])
            return folder

    def __repr__(self) -> str:
        return f"gputrace.open({', '.join(repr(path) for path in self.paths)})"


def open(*paths: Path) -> Recording:
    """A recording of `gputrace record`, or traces: PyTorch's, Nsight Systems' exports. Nothing is read before it is asked for."""
    for path in paths:
        if not os.path.exists(path):
            raise FileNotFoundError(f"{os.fspath(path)}: no such file or folder")
    return Recording(*paths)

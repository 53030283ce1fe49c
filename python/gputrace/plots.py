"""Where the time goes, as a picture, by matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .recording import Analysis

# The parts that a span or a step is made of, each moment in one, in the page's order and colours.
_PARTS = {"compute": "#4a86c5", "hidden": "#d9b48f", "exposed": "#e2823a", "copies": "#4b9a70", "idle": "#d5d3ca"}


def draw(analysis: Analysis, rank: Optional[int], ax: Optional[Axes]) -> Axes:
    """Stacked bars: each rank's span, or each step of one rank, in milliseconds."""
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.figure(figsize=(9, 3.5)).subplots()
    title, bars = _ranks(analysis) if rank is None else _steps(analysis, rank)
    names = [name for name, _ in bars]
    places = range(len(bars))
    below = [0.0] * len(bars)
    for part, colour in _PARTS.items():
        heights = [parts[part] / 1e6 for _, parts in bars]
        ax.bar(places, heights, bottom=below, color=colour, label=part, width=0.8)
        below = [bottom + height for bottom, height in zip(below, heights)]
    # As many names as fit.
    every = max(1, len(names) // 16)
    ax.set_xticks(list(places)[::every], names[::every])
    ax.set_ylabel("ms")
    ax.set_title(f"{title} (SIMULATED GPUs)" if analysis["device"] == "sim" else title)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, reverse=True)
    ax.figure.tight_layout()
    return ax


def _ranks(analysis: Analysis) -> Tuple[str, List[Tuple[str, Dict[str, int]]]]:
    several = len({entry["rank"] for entry in analysis["ranks"]}) < len(analysis["ranks"])
    bars = [(_name(entry, several), entry["parts"]) for entry in analysis["ranks"]]
    if not bars:
        raise ValueError("no operation of a GPU was recorded")
    return "Where the time goes, by rank", bars


def _steps(analysis: Analysis, rank: int) -> Tuple[str, List[Tuple[str, Dict[str, int]]]]:
    found = [entry for entry in analysis["ranks"] if entry["rank"] == rank]
    if not found:
        known = ", ".join(str(entry["rank"]) for entry in analysis["ranks"])
        raise ValueError(f"no rank {rank}: there are {known}")
    steps = found[0]["steps"]
    if not steps:
        raise ValueError(f"rank {rank} has no steps")
    bars = [(step["name"].replace("step ", "").replace("ProfilerStep#", ""), step["parts"]) for step in steps]
    device = f", GPU {found[0]['device_index']}" if len(found) > 1 else ""
    return f"Where the time goes, by step of rank {rank}{device}", bars


def _name(entry: Dict[str, Any], several: bool) -> str:
    rank = "-" if entry["rank"] is None else str(entry["rank"])
    return f"{rank}/{entry['device_index']}" if several else rank

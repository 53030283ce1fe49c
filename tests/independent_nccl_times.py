#!/usr/bin/env python3
"""NCCL's time model written down a second time, from its description alone, against what `times` printed.

usage: independent_nccl_times.py PRINTED

Each line of PRINTED is one JSON object of simgpu's example `times`. For each the algorithm and the protocol with the
least time are found here, and the time: both must be those printed, the time within 1 %. Where two choices are within
a thousandth of each other, either is right.
"""

import json
import math
import sys

# Microseconds, by protocol: LL, LL128, Simple.
BASE = {"TREE": (6.8, 14.0, 8.4), "RING": (6.6, 14.0, 8.4)}
HARDWARE = {
    ("TREE", "nvlink"): (0.6, 1.25, 4.0),
    ("RING", "nvlink"): (0.6, 1.9, 3.4),
    ("TREE", "pci"): (1.0, 1.9, 4.0),
    ("RING", "pci"): (1.0, 2.5, 5.7),
    ("TREE", "net"): (5.0, 8.5, 14.0),
    ("RING", "net"): (2.7, 4.0, 14.0),
}
PROTOCOLS = ("LL", "LL128", "SIMPLE")
# GB/s
LL_LIMIT = {1: 141.0, 2: 39.0}
TREE_LIMIT = {1: 38.7, 2: 41.4}
LL128_CHANNEL = 36.7
NVLINK_OF_A_GPU = 18 * 20.6

# What trees reach, by log2(bytes / 64).
CORRECTION = {
    "LL": "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1",
    "LL128": "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1",
    "SIMPLE": ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9",
}
CORRECTION = {protocol: [float(word) for word in words.split()] for protocol, words in CORRECTION.items()}


class Box:
    """Ranks on one or two nodes, and the channels that they have."""

    def __init__(self, topology, ranks):
        self.ranks = ranks
        self.nodes = 2 if topology == "two-nodes" else 1
        self.per_node = ranks // self.nodes
        self.link = "pci" if topology == "pcie" else "nvlink"
        if topology == "hgx":
            self.channels, self.speed = 12, 30.0
        elif topology == "two-nodes":
            # One adapter of 400 Gb/s a GPU.
            self.channels, self.speed = self.per_node, 48.0
        else:
            # Within one socket of four GPUs 5/6 of PCIe's 48 GB/s; between sockets what joins them.
            self.channels, self.speed = 1, 40.0 if ranks <= 4 else 20.0

    def nvls(self):
        """Channels and GB/s of each, or nothing where there is no NVSwitch or there are too few GPUs behind it."""
        if self.link != "nvlink" or self.per_node < (2 if self.nodes == 1 else 3):
            return None
        candidates = (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3)
        if self.nodes > 1:
            candidates = (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15)
        fitting = [speed for speed in candidates if speed * self.per_node <= NVLINK_OF_A_GPU]
        return self.per_node, float(fitting[0])


def ring(box, operation, protocol):
    column = PROTOCOLS.index(protocol)
    total = box.channels * box.speed
    bus = {
        "LL": min(LL_LIMIT[box.nodes], total / 2),
        "LL128": min(0.92 * total, box.channels * LL128_CHANNEL),
        "SIMPLE": total,
    }[protocol]
    n = box.ranks
    steps = {"AllReduce": 2 * (n - 1), "AllGather": n - 1, "ReduceScatter": n - 1}.get(operation, n)
    inside = HARDWARE["RING", box.link][column]
    if operation in ("Broadcast", "Reduce"):
        if box.nodes == 1:
            latency = BASE["RING"][column] + inside
        else:
            # The order of ranks differs between channels: every step pays. Simple has the tree's latency.
            row = "TREE" if protocol == "SIMPLE" else "RING"
            latency = BASE["RING"][column] + steps * HARDWARE[row, "net"][column]
    else:
        between = 0
        if box.nodes > 1:
            between = (2 if operation == "AllReduce" else 1) * (box.nodes - 1)
            inside = max(inside, 3.0 if protocol == "SIMPLE" else 1.0)
        row = "TREE" if box.per_node == 1 else "RING"
        latency = (
            BASE["RING"][column] + (steps - between) * inside + between * HARDWARE[row, "net"][column]
        )
    return latency, bus * n / steps


def tree(box, protocol):
    column = PROTOCOLS.index(protocol)
    speed = box.speed
    if box.link == "nvlink" and box.ranks == 2 and box.nodes == 1:
        speed *= 2  # a chain of two uses each link in one direction only
    bus = min(0.92 * box.channels * speed, box.channels * TREE_LIMIT[box.nodes])
    if protocol == "LL":
        bus = min(bus / 3.8, LL_LIMIT[box.nodes])
    elif protocol == "LL128":
        share = 7 / 9 if box.nodes == 1 else 120 / 128
        bus = min(bus * share, box.channels * LL128_CHANNEL)
    if box.nodes > 1:
        bus *= 0.85
    inside = (box.per_node - 1) * HARDWARE["TREE", box.link][column]
    between = int(math.log2(box.nodes)) * HARDWARE["TREE", "net"][column]
    return BASE["TREE"][column] + 2 * (inside + between), bus / 2


def nvls(box, operation):
    """NVLS on one node, NVLSTree on more: latency and the algorithm's bandwidth."""
    found = box.nvls()
    if found is None:
        return None
    channels, speed = found
    multicast = speed * 0.85 * (channels - 1) / channels
    steps_share = box.ranks / (2 * (box.ranks - 1))
    if box.nodes == 1:
        if operation == "AllReduce":
            return 25.0, channels * min(2 * multicast, 60.0) * steps_share
        return 25.0, channels * min(multicast * (box.per_node - 1) / box.per_node, 60.0)
    if operation != "AllReduce":
        return None
    bus = channels * min(2 * multicast, 2 * 48.0, 57.7)
    return 25.0 + 2 * 20.9 * int(math.log2(box.nodes)), bus * steps_share


def pat(box):
    return 8.0 + int(math.log2(box.nodes)) * 14.0 / 3.5 + 2.8 * box.ranks, box.channels * box.speed * 0.75


def collective_times(box, operation, size, scale):
    """All (microseconds, algorithm, protocol)."""
    times = []

    def add(algorithm, protocol, latency, bandwidth):
        times.append((latency + size * scale / (1000 * bandwidth), algorithm, protocol))

    for protocol in PROTOCOLS:
        if protocol == "LL128" and box.link == "pci":
            continue
        latency, bandwidth = ring(box, operation, protocol)
        if (
            operation == "AllReduce"
            and protocol == "SIMPLE"
            and box.nodes > 1
            and size / (2 * box.channels * box.ranks) >= 64
        ):
            latency *= 1.4
        add("RING", protocol, latency, bandwidth)
        if operation == "AllReduce":
            latency, bandwidth = tree(box, protocol)
            power = int(math.log2(size / 64))
            if power < len(CORRECTION[protocol]):
                bandwidth *= CORRECTION[protocol][power]
            add("TREE", protocol, latency, bandwidth)
    if operation in ("AllReduce", "AllGather", "ReduceScatter"):
        found = nvls(box, operation)
        if found is not None:
            add("NVLS" if box.nodes == 1 else "NVLS_TREE", "SIMPLE", *found)
        if operation != "AllReduce" and box.nodes == box.ranks:
            add("PAT", "SIMPLE", *pat(box))
    return sorted(times)


def pair_time(box, size, scale):
    """A send with its receive between the first and the last rank."""
    if box.nodes > 1:
        path, channels = 48.0, 2
    elif box.link == "nvlink":
        path, channels = NVLINK_OF_A_GPU, 32
    else:
        path, channels = box.speed, 2
    little = size <= channels * 16384
    time = (7.0 if little else 12.0) + size * scale / (1000 * 0.85 * min(path, 20.6 * channels))
    return [(time, "RING", "LL" if little else "SIMPLE")]


# Which choice NCCL's own search prints for HGX boxes at full speed: operation, ranks, from bytes, to bytes, choice.
MIB = 1 << 20
PUBLISHED = [
    ("AllReduce", 8, 128, MIB, ("RING", "LL")),
    ("AllReduce", 8, 2 * MIB, 1024 * MIB, ("NVLS", "SIMPLE")),
    ("AllGather", 8, 128, 4 * MIB, ("RING", "LL")),
    ("AllGather", 8, 8 * MIB, 16 * MIB, ("RING", "LL128")),
    ("AllGather", 8, 32 * MIB, 1024 * MIB, ("RING", "SIMPLE")),
    ("ReduceScatter", 8, 128, 4 * MIB, ("RING", "LL")),
    ("ReduceScatter", 8, 8 * MIB, 16 * MIB, ("RING", "LL128")),
    ("ReduceScatter", 8, 32 * MIB, 1024 * MIB, ("RING", "SIMPLE")),
    ("AllReduce", 4, 128, 2 * MIB, ("RING", "LL")),
    ("AllReduce", 4, 4 * MIB, 4 * MIB, ("RING", "LL128")),
    ("AllReduce", 4, 16 * MIB, 1024 * MIB, ("RING", "SIMPLE")),
    ("AllReduce", 2, 128, MIB, ("RING", "LL")),
    ("AllReduce", 2, 2 * MIB, 1024 * MIB, ("RING", "SIMPLE")),
]


def published(line):
    if line["topology"] != "hgx" or line["scale"] != 1:
        return None
    for operation, ranks, least, most, choice in PUBLISHED:
        if (line["operation"], line["ranks"]) == (operation, ranks) and least <= line["bytes"] <= most:
            return choice
    return None


def main():
    wrong, compared, by_table = [], 0, 0
    with open(sys.argv[1], encoding="utf-8") as lines:
        for text in lines:
            line = json.loads(text)
            box = Box(line["topology"], line["ranks"])
            if line["operation"] == "SendRecv":
                times = pair_time(box, line["bytes"], line["scale"])
            else:
                times = collective_times(box, line["operation"], line["bytes"], line["scale"])
            least = times[0][0]
            chosen = (line["algorithm"], line["protocol"])
            right = {(algorithm, protocol) for time, algorithm, protocol in times if time <= least * 1.001}
            if abs(line["us"] / least - 1) > 0.01 or chosen not in right:
                wrong.append(f"{text.strip()}: expected {times[0]}")
            table = published(line)
            if table is not None:
                by_table += 1
                if chosen != table:
                    wrong.append(f"{text.strip()}: NCCL's search chooses {table}")
            compared += 1
    for one in wrong[:20]:
        print(one)
    print(f"{compared} times compared, {by_table} choices with the published ones, {len(wrong)} wrong")
    sys.exit(bool(wrong) or compared == 0)


if __name__ == "__main__":
    main()

"""Connected components: edges per second and peak memory, against scipy's.

    python benchmarks/components.py [--edges 100_000_000] [--nodes 20_000_000] [--scipy-python PYTHON]

Each is a process of its own that loads the same edges from disk: numbered nodes of 32 bits, either duplicates as
deduplication finds them (groups of many sizes, scattered over all nodes) or edges between random nodes. Time is that of
the call, and what it took of a core, which is compared: it depends less on what else the machine does. Memory is the
peak of the process less what it had with the edges loaded. The labels of both are compared. Prints also how long it
takes with sparse 64-bit ids, and with a budget of memory so small that the nodes go to disk.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

WORKER = """
import json, sys, time
import numpy as np
way, folder, node_count = sys.argv[1], sys.argv[2], int(sys.argv[3])
left, right = (np.load(f"{folder}/{name}.npy") for name in ("left", "right"))

def memory(field):
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) * 1024

if way == "scipy":
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    def run():
        matrix = coo_array((np.ones(len(left), np.int8), (left, right)), shape=(node_count, node_count))
        return connected_components(matrix, directed=False)[1]
else:
    from tamis.kernels.components import Components, components_of, connected_components
    components_of(left[:1000], right[:1000], node_count)
    if way != "numbered":  # ids that look like hashes, in the order of the numbers
        ids = np.sort(np.random.default_rng(1).integers(0, 2**64, node_count, np.uint64))
        left, right = ids[left], ids[right]
        connected_components(left[:1000], right[:1000])
    def run():
        if way == "numbered":
            return components_of(left, right, node_count)
        if way == "sparse":
            return connected_components(left, right)[1]
        with Components(node_count * 64 // 8, folder) as components:
            for start in range(0, len(left), 2**20):
                components.add(left[start : start + 2**20], right[start : start + 2**20])
            return sum(len(nodes) for nodes, _ in components.members())

open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
before, began, busy = memory("VmRSS"), time.perf_counter(), time.process_time()
labels = run()
seconds, busy = time.perf_counter() - began, time.process_time() - busy
print(json.dumps({"seconds": seconds, "busy": busy, "bytes": memory("VmHWM") - before}))
if way in ("numbered", "scipy"):
    np.save(f"{folder}/{way}.npy", labels)
"""


def write_edges(folder: Path, kind: str, nodes: int, edges: int) -> None:
    """Write the ends of edges to two files."""
    chance = np.random.default_rng(0)
    ends = [np.lib.format.open_memmap(folder / f"{n}.npy", "w+", np.int32, (edges,)) for n in ("left", "right")]
    scattered = chance.permutation(nodes).astype(np.int32)
    sizes = np.minimum(chance.pareto(1.2, nodes // 3) + 2, 10_000).astype(np.int64)
    firsts = np.cumsum(sizes) - sizes
    firsts = firsts[: np.searchsorted(firsts, nodes)]
    for start in range(0, edges, 10_000_000):
        count = min(10_000_000, edges - start)
        one = chance.integers(0, nodes, count)
        if kind == "random":
            other = chance.integers(0, nodes, count)
        else:
            group = np.searchsorted(firsts, one, side="right") - 1
            other = np.minimum(firsts[group] + chance.integers(0, sizes[group]), nodes - 1)
        ends[0][start : start + count], ends[1][start : start + count] = scattered[one], scattered[other]


def measure(way: str, folder: Path, nodes: int, python: str) -> dict[str, float]:
    """Seconds and bytes of one way."""
    import json

    done = subprocess.run(
        [python, "-c", WORKER, way, str(folder), str(nodes)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{way} failed:\n{done.stderr}")
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def are_the_same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Whether labels stand for the same components: ours are the smallest nodes."""
    smallest = np.empty(int(theirs.max()) + 1, np.int32)
    smallest[theirs[::-1]] = np.arange(len(theirs) - 1, -1, -1, dtype=np.int32)
    return bool((smallest[theirs] == ours).all())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--nodes", type=int, default=20_000_000)
    parser.add_argument("--scipy-python", default=sys.executable, help="a Python that has scipy")
    parser.add_argument("--kinds", default="duplicates,random")
    parser.add_argument("--ways", default="numbered,scipy,sparse,on disk")
    arguments = parser.parse_args()
    for kind in arguments.kinds.split(","):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_edges(folder, kind, arguments.nodes, arguments.edges)
            print(f"{kind}: {arguments.edges:,} edges, {arguments.nodes:,} nodes")
            found = {}
            for way in arguments.ways.split(","):
                python = arguments.scipy_python if way == "scipy" else sys.executable
                found[way] = measure(way, folder, arguments.nodes, python)
                seconds, busy, nbytes = (found[way][name] for name in ("seconds", "busy", "bytes"))
                rate, memory = arguments.edges / busy / 1e6, nbytes / 2**20
                print(
                    f"  {way:9} {seconds:7.2f} s, {busy:7.2f} of a core, {rate:6.1f} M edges/s, {memory:7,.0f} MiB",
                    flush=True,
                )
            if {"numbered", "scipy"} <= found.keys():
                ours, theirs = found["numbered"], found["scipy"]
                same = are_the_same(np.load(folder / "numbered.npy"), np.load(folder / "scipy.npy"))
                print(f"  {theirs['busy'] / ours['busy']:.1f} x scipy's speed, same components: {same}")
                print(f"  {ours['bytes'] / theirs['bytes']:.3f} of its memory")


if __name__ == "__main__":
    main()

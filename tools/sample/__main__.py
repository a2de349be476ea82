"""The command line: ``python -m tools.sample``, run in the root of the repository."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from .dirt import broken_lines, make_dirty
from .extract import extract
from .packages import BuildError, Packages
from .rows import Library
from .sources_md import sources_md
from .write import data_files, differences, dirt_json

OUT = Path(__file__).resolve().parents[2] / "src" / "tamis" / "quickstart" / "sample"


def build(cache: Path, unpacked: Path, any_version: bool) -> dict[str, bytes]:
    """Make all files of the sample, by name."""
    packages = Packages(cache, unpacked, any_version)
    library = Library(packages.root)
    sample = extract(library)
    make_dirty(sample, library)
    files, broken = data_files(sample, broken_lines(sample, library))
    return {**files, "dirt.json": dirt_json(sample, broken), "SOURCES.md": sources_md(sample, packages, broken)}


def arguments() -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.sample",
        description="Rebuild the quickstart sample from Debian 12 packages (run `apt-get update` first).",
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder to write to (default: %(default)s)")
    parser.add_argument("--cache", type=Path, help="folder that keeps the downloaded packages")
    parser.add_argument("--any-version", action="store_true", help="take the packages apt offers, pinned or not")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the folder holds another sample")
    return parser.parse_args()


def main() -> int:
    """Build the sample, and write it or compare it."""
    args = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or Path(scratch, "packages")
        cache.mkdir(parents=True, exist_ok=True)
        try:
            made = build(cache.resolve(), Path(scratch, "unpacked"), args.any_version)
        except BuildError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    if args.check:
        wrong = differences(made, args.out)
        print(f"differ: {', '.join(wrong)}" if wrong else "the sample is up to date")
        return 1 if wrong else 0
    args.out.mkdir(parents=True, exist_ok=True)
    for name, data in made.items():
        (args.out / name).write_bytes(data)
        print(f"{len(data):9} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

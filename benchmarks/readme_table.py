"""The benchmark's part of the READMEs, made again from result files; no measurement is run.

    python benchmarks/readme_table.py results/bench.json [results/opt-125m/bench.json] [--readme README.md …]

Replaces what stands between ``<!-- bench:begin -->`` and ``<!-- bench:end -->``.  ``README.ko.md`` gets the same
figures under Korean headings.  A second run changes nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from everystep.bench.passes import BenchFailed
from everystep.bench.readme import read_result, write_readme

ROOT = Path(__file__).parents[1]
READMES = [ROOT / "README.md", ROOT / "README.ko.md"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--readme", type=Path, nargs="+", default=READMES)
    given = parser.parse_args()
    try:
        results = [read_result(path) for path in given.results]
        for readme in given.readme:
            write_readme(readme, results)
    except BenchFailed as error:
        raise SystemExit(error.message) from error


if __name__ == "__main__":
    main()

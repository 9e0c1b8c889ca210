"""`python -m benchmarks NAME [options]`."""

from __future__ import annotations

import argparse

from benchmarks import calibration, noise, packing, peers

__all__ = ["main"]


def main() -> None:
    """Run one benchmark; exit status 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = parser.add_subparsers(dest="name", required=True)
    calibration.arguments(names.add_parser("calibration", help="seconds of the accountant"))
    noise.arguments(names.add_parser("noise", help="draws per second of integer noise"))
    packing.arguments(names.add_parser("packing", help="elements per second of bit packing"))
    peers.arguments(names.add_parser("peers", help="epsilon beside other accountants"))
    asked = parser.parse_args()
    raise SystemExit(asked.run(asked))


if __name__ == "__main__":
    main()

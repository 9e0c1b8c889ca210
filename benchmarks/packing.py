"""`python -m benchmarks packing`: residues to the exact number of bits and back, beside numpy's packbits."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks.report import Row, show
from cosilo.lattice import pack, unpack

__all__ = ["arguments"]

Residues = np.ndarray[tuple[int], np.dtype[np.uint64]]

_ELEMENTS = 1_000_000
_SHOWN = (8, 13, 16, 20, 32, 47, 64)
_BAR = 1e9 / 3  # elements a second: 3 ns each
_REPEATS = 7


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options and what to run."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    return show("packing", _rows(), ("numpy", "numba"), as_json=asked.json)


def _per_second(call: Callable[[], object]) -> float:
    """Median of repeated calls after one that compiles."""
    call()
    seconds = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return _ELEMENTS / statistics.median(seconds)


def _peer_pack(values: Residues, bits: int) -> bytes:
    octets = values.view(np.uint8).reshape(-1, 8)
    return np.packbits(np.unpackbits(octets, axis=1, count=bits, bitorder="little"), bitorder="little").tobytes()


def _peer_unpack(data: bytes, bits: int) -> Residues:
    stream = np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=_ELEMENTS * bits, bitorder="little")
    octets = np.zeros((_ELEMENTS, 8), dtype=np.uint8)
    octets[:, : (bits + 7) // 8] = np.packbits(stream.reshape(_ELEMENTS, bits), axis=1, bitorder="little")
    return octets.view(np.uint64).ravel()


def _row(what: str, ours: float, peer: float | None) -> Row:
    ratio = None if peer is None else ours / peer
    name = None if peer is None else "numpy packbits"
    return Row(what=what, unit="elem/s", ours=ours, peer=peer, peer_name=name, ratio=ratio, bar=_BAR, ok=ours >= _BAR)


def _rows() -> list[Row]:
    """Two rows a shown width, and the slowest of all widths each way; ours and the peer's bytes are compared."""
    rows, slowest = [], {"pack": np.inf, "unpack": np.inf}
    for bits in range(8, 65):
        values = np.random.default_rng(bits).integers(0, (1 << bits) - 1, _ELEMENTS, dtype=np.uint64, endpoint=True)
        data = pack(values, bits)
        if not np.array_equal(unpack(data, _ELEMENTS, bits), values):
            raise AssertionError(f"{bits} bits do not come back")
        packed = _per_second(lambda values=values, bits=bits: pack(values, bits))  # type: ignore[misc]
        unpacked = _per_second(lambda data=data, bits=bits: unpack(data, _ELEMENTS, bits))  # type: ignore[misc]
        slowest = {"pack": min(slowest["pack"], packed), "unpack": min(slowest["unpack"], unpacked)}
        if bits in _SHOWN:
            if _peer_pack(values, bits) != data:
                raise AssertionError(f"numpy packs {bits} bits to other bytes")
            peer = _per_second(lambda values=values, bits=bits: _peer_pack(values, bits))  # type: ignore[misc]
            rows.append(_row(f"pack {bits} bits", packed, peer))
            peer = _per_second(lambda data=data, bits=bits: _peer_unpack(data, bits))  # type: ignore[misc]
            rows.append(_row(f"unpack {bits} bits", unpacked, peer))
    return [*rows, *(_row(f"slowest {way} of 8..64 bits", rate, None) for way, rate in slowest.items())]

"""The lattice: real vectors as integers in a ring, packed to the exact number of bits. Pure; torch is not used."""

from cosilo.lattice.codec import decode, encode, integer_sensitivity
from cosilo.lattice.lattice import Lattice, coordinates_of
from cosilo.lattice.packing import pack, packed_bytes, unpack
from cosilo.lattice.ring import add, fits, require_fit, smallest_ring, unwrap, wrap

__all__ = [
    "Lattice",
    "add",
    "coordinates_of",
    "decode",
    "encode",
    "fits",
    "integer_sensitivity",
    "pack",
    "packed_bytes",
    "require_fit",
    "smallest_ring",
    "unpack",
    "unwrap",
    "wrap",
]

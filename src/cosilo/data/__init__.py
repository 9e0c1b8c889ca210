"""Rows of every silo: catalogue data, tables through a public schema, loaders, arrays in memory."""

from cosilo.data.catalogue import CATALOGUE, Entry
from cosilo.data.encoding import Encoded, Encoding
from cosilo.data.load import from_arrays, load
from cosilo.data.rows import Counts, FederatedRows, Rows
from cosilo.data.tables import read_table

__all__ = [
    "CATALOGUE",
    "Counts",
    "Encoded",
    "Encoding",
    "Entry",
    "FederatedRows",
    "Rows",
    "from_arrays",
    "load",
    "read_table",
]

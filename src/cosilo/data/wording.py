"""Names as sentences show them: keys as TOML writes them, and the name that was probably meant."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["closest", "listing", "toml_key"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_NAMED = 3  # names in a sentence; more hide what it says


def toml_key(name: str) -> str:
    """`name` as a TOML key, quoted where a bare key would not be TOML: UA, "St. Mary", "?"."""
    if _BARE_KEY.fullmatch(name):
        return name
    # JSON's escapes are all TOML's; the one character TOML escapes and JSON does not is DEL.
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")


def closest(name: str, among: Iterable[str]) -> str | None:
    """The one of `among` that `name` resembles most, upper and lower case alike; None when none does."""
    folded = {other.casefold(): other for other in among}
    found = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[found[0]] if found else None


def listing(names: Iterable[str]) -> str:
    """The first names in their order: "'a', 'b', 'c' and more"."""
    quoted = [repr(name) for name in sorted(names)]
    return ", ".join(quoted[:_NAMED]) + (" and more" if len(quoted) > _NAMED else "")

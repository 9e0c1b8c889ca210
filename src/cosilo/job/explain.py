"""Turns a validation failure into the key, the value, and what to write instead."""

from __future__ import annotations

import difflib
import types
import typing
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

__all__ = ["explain"]

_LIMITS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
_TYPES = {
    "float_type": "a number such as 1.0",
    "int_type": "a whole number such as 10",
    "int_from_float": "a whole number such as 10",
    "string_type": 'a text in quotes such as "name"',
    "bool_type": "true or false",
    "dict_type": "a table",
    "tuple_type": "a list such as [1, 2]",
    "model_type": "a table such as [section]",
    "model_attributes_type": "a table such as [section]",
}


def explain(error: ValidationError, root: type[BaseModel]) -> tuple[str, str]:
    """(what, fix) for the first fault of a document; a count of the others is added."""
    faults = error.errors(include_url=False)
    what, fix = _sentence(faults[0], root)
    more = len(faults) - 1
    return what, fix + (f" ({more} more {'fault' if more == 1 else 'faults'} after this one.)" if more else "")


def _sentence(fault: ErrorDetails, root: type[BaseModel]) -> tuple[str, str]:
    path, owner = _locate(root, [str(part) for part in fault["loc"]])
    name = ".".join(path) or "The job"
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(path, value, owner)
    if kind == "missing":
        table = f"[{'.'.join(path[:-1])}]" if path[:-1] else "the job file"
        return f"{name} is missing.", f"Add {path[-1]} to {table}."
    if kind == "value_error":
        reason, _, fix = str(context["error"]).partition("; ")
        return f"{name}: {reason}.", f"{fix[:1].upper()}{fix[1:]}."
    if kind in ("literal_error", "union_tag_invalid"):
        expected = context.get("expected") or context.get("expected_tags", "")
        return f"{name} = {_show(context.get('tag', value))} is not a choice.", f"Write {expected}."
    if kind in _TYPES:
        return f"{name} = {_show(value)} has the wrong type.", f"Write {_TYPES[kind]}."
    return _out_of_bounds(fault, name, owner)


def _out_of_bounds(fault: ErrorDetails, name: str, owner: type[BaseModel] | None) -> tuple[str, str]:
    value, context = fault["input"], fault.get("ctx", {})
    if fault["type"] == "string_pattern_mismatch":
        key = name.rpartition(".")[2]
        return f"{name} = {_show(value)} is not of the right form.", f"Write {_form(key, owner)}."
    limits = [f"{words} {context[key]:g}" for key, words in _LIMITS.items() if key in context]
    rule = f"It must be {limits[0]}" if limits else fault["msg"].replace("Input should", "It must")
    return f"{name} = {_show(value)} is out of bounds.", f"{rule}."


def _form(key: str, owner: type[BaseModel] | None) -> str:
    """A field's own description of its form, wherever it stands in the annotation."""
    field = owner.model_fields.get(key) if owner is not None else None
    if field is None:
        return "another text"
    inner = [m for part in typing.get_args(field.annotation) for m in getattr(part, "__metadata__", ())]
    found = [m.description for m in (field, *inner) if getattr(m, "description", None)]
    return str(found[0]) if found else "another text"


def _unknown_key(path: list[str], value: Any, owner: type[BaseModel] | None) -> tuple[str, str]:  # noqa: ANN401 - any TOML value
    table = f"[{'.'.join(path[:-1])}]" if path[:-1] else "the job file"
    valid = _keys(owner) if owner is not None else []
    near = difflib.get_close_matches(path[-1], valid, n=1)
    fix = f"Did you mean {near[0]!r}?" if near else f"Valid keys there: {', '.join(valid)}."
    return f"Unknown key {path[-1]!r} (value {_show(value)}) in {table}.", fix


def _locate(root: type[BaseModel], location: list[str]) -> tuple[list[str], type[BaseModel] | None]:
    """The location in the file's own words (union tags left out), and the model that owns its last key."""
    path: list[str] = []
    owner: type[BaseModel] | None = None
    here: Any = root
    for part in location:
        here = _choose(here, part)
        if isinstance(here, _Tagged):
            here = here.model
            continue
        path.append(part)
        if isinstance(here, type) and issubclass(here, BaseModel):
            owner = here
            field = next((f for n, f in here.model_fields.items() if part == (f.alias or n)), None)
            here = field.annotation if field else None
        elif typing.get_origin(here) is dict:
            here = typing.get_args(here)[1]
        else:
            here = None
    return path, owner


class _Tagged:
    """A union member chosen by its tag, which is not a key of the file."""

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model


def _choose(annotation: Any, part: str) -> Any:  # noqa: ANN401 - typing's own objects
    """Strip None from a union; pick the member whose tag is `part`."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    members = [m for m in typing.get_args(annotation) if m is not type(None)]
    members = [typing.get_args(m)[0] if typing.get_origin(m) is typing.Annotated else m for m in members]
    for member in members:
        tag = getattr(member, "model_fields", {}).get("name")
        if tag is not None and part in typing.get_args(tag.annotation):
            return _Tagged(member)
    return members[0]


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _show(value: Any) -> str:  # noqa: ANN401 - any TOML value
    """The value as TOML would write it, short enough for one line of a terminal."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, dict):
        text = "a table"
    else:
        text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004

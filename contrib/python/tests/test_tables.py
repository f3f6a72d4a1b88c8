"""The tables of events, exit codes, faults and options are what the references in docs/ say."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import typing
from typing import Any, Dict, List, Optional, Tuple

import pytest
from conftest import REPOSITORY

import longhaul
from longhaul import _events, _exits, _options

DOCS = REPOSITORY / "docs"
Rows = Dict[str, str]


def _sections(text: str) -> Dict[str, str]:
    parts = re.split(r"^## (.*)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def _rows(section: str) -> List[List[str]]:
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def _events_of_docs() -> Dict[str, Rows]:
    """The fields of each event at the top of its object, with their types."""
    sections = _sections((DOCS / "EVENTS.md").read_text())
    assert sections.pop("Every event")
    found = {}
    for heading, section in sections.items():
        fields = {row[0].strip("`"): row[1] for row in _rows(section)}
        found[heading.replace("`", "")] = {name: kind for name, kind in fields.items() if not re.search(r"[.\[]", name)}
    return found


SCALARS: Dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}


def _type_of(kind: str) -> Any:
    """The annotation of a field that has such a type in the docs."""
    scalar = kind.replace(", or absent", "").replace(" or null", "")
    optional, kind = scalar != kind, scalar
    found: Any = SCALARS.get(kind)
    if found is None and kind.startswith("array of "):
        found = Tuple[str, ...] if kind == "array of strings" else Tuple[_events.Object, ...]
    if found is None and kind.startswith("object"):
        found = _events.Object
    assert found is not None, kind
    return Optional[found] if optional else found


@pytest.mark.parametrize("name", sorted(_events.TYPES))
def test_a_typed_event_has_the_fields_of_the_docs_in_their_order(name: str) -> None:
    documented = dict(_events_of_docs()[name])
    ours = _events.TYPES[name]
    hints = typing.get_type_hints(ours)
    names = {field.name for field in dataclasses.fields(ours) if field.metadata.get("name")}
    for plain in names:
        assert documented.pop(f"{plain}_b64") == documented[plain] == "string, or absent", plain
    fields = [field.name for field in dataclasses.fields(ours) if field.name != "raw"]
    assert fields == list(documented)
    for field, kind in documented.items():
        allowed = (str, Optional[str]) if field in names else (_type_of(kind),)
        assert hints[field] in allowed, field


def test_every_event_of_the_docs_is_typed_or_named_as_untyped() -> None:
    unknown = [
        name
        for name in _events_of_docs()
        if name not in _events.TYPES
        and name not in _events.UNTYPED
        and not name.startswith(_events.UNTYPED_PREFIXES)
        and not name.startswith("summary of")
    ]
    assert unknown == []
    assert set(_events.TYPES) | set(_events.UNTYPED) <= set(_events_of_docs())


def test_exit_codes_are_those_of_the_docs() -> None:
    rows = _rows(_sections((DOCS / "EXIT-CODES.md").read_text())["Codes"])
    documented = {int(row[0]): (row[1].strip("`"), row[3] == "yes") for row in rows}
    assert {code: (row.status, row.resumable) for code, row in _exits.EXITS.items()} == documented


def test_faults_are_those_of_the_docs() -> None:
    rows = _rows(_sections((DOCS / "EXIT-CODES.md").read_text())["Faults"])
    documented = {row[0].strip("`"): (row[2] == "yes", int(row[3].split()[0])) for row in rows}
    assert {code: tuple(row) for code, row in _exits.FAULTS.items()} == documented


def test_every_option_of_the_table_is_in_the_docs() -> None:
    section = _sections((DOCS / "CLI.md").read_text())["`longhaul push`"]
    assert [option.flag for option in _options.TRANSFER.values() if f"`{option.flag}" not in section] == []


@pytest.mark.parametrize("command", ["push", "pull", "copy", "ls"])
def test_every_option_of_the_table_is_one_of_the_program(command: str) -> None:
    shown = subprocess.run([longhaul.find_binary(), command, "--help"], check=True, capture_output=True, text=True)
    flags = set(re.findall(r"--[a-z-]+", shown.stdout))
    table = _options.KEYS if command == "ls" else _options.TRANSFER
    assert {option.flag for option in table.values()} <= flags


def test_the_typed_keywords_are_those_of_the_table() -> None:
    def names(typed: Any) -> set[str]:
        return {
            name
            for base in (typed, *getattr(typed, "__orig_bases__", ()))
            for name in getattr(base, "__annotations__", {})
        }

    assert names(longhaul.TransferOptions) == set(_options.TRANSFER)
    assert names(longhaul.KeyOptions) == set(_options.KEYS)


def test_every_exit_code_but_success_has_an_exception() -> None:
    for code, row in _exits.EXITS.items():
        error = _exits.failure(code, [], longhaul.Summary(status=row.status, exit=code), "")
        assert type(error) is row.error and error.exit == code
        assert error.resumable == row.resumable

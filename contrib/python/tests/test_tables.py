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
import longhaul.aio
from longhaul import _events, _exits, _options

DOCS = REPOSITORY / "docs"
Rows = Dict[str, str]


def _sections(text: str) -> Dict[str, str]:
    parts = re.split(r"^## (.*)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def _rows(section: str) -> List[List[str]]:
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def _all_of_docs() -> Dict[str, Rows]:
    """The fields of each event, also those of the objects in it, with their types."""
    sections = _sections((DOCS / "EVENTS.md").read_text())
    assert sections.pop("Every event")
    return {
        heading.replace("`", ""): {row[0].strip("`"): row[1] for row in _rows(section)}
        for heading, section in sections.items()
    }


def _at_the_top(fields: Rows) -> Rows:
    return {name: kind for name, kind in fields.items() if not re.search(r"[.\[]", name)}


def _events_of_docs() -> Dict[str, Rows]:
    """The fields of each event at the top of its object, with their types."""
    return {name: _at_the_top(fields) for name, fields in _all_of_docs().items()}


def _beneath(fields: Rows, name: str) -> Rows:
    """The fields of the object, or of the objects in the array, that a field is."""
    parts = [f"{name}.", f"{name}[]."]
    return {field[len(part) :]: kind for field, kind in fields.items() for part in parts if field.startswith(part)}


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


CLASSES: Dict[str, Any] = {**_events.TYPES, "summary of job": _events.JobSummary}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_typed_event_has_the_fields_of_the_docs_in_their_order(name: str) -> None:
    _compare(CLASSES[name], _all_of_docs()[name])


def _compare(ours: Any, all_documented: Rows) -> None:
    """Compares an event, or a part of one, with its rows. A word of Python has an underscore behind it."""
    documented = _at_the_top(all_documented)
    hints = {name.rstrip("_"): hint for name, hint in typing.get_type_hints(ours).items()}
    names = {field.name for field in dataclasses.fields(ours) if field.metadata.get("name")}
    for plain in names:
        assert documented.pop(f"{plain}_b64") == documented[plain] == "string, or absent", plain
    fields = [field.name.rstrip("_") for field in dataclasses.fields(ours) if field.name != "raw"]
    assert fields == list(documented)
    for field, kind in documented.items():
        part = _part(hints[field])
        if part is not None:
            forms = {"object": part, "object or null": Optional[part], "array of objects": Tuple[part, ...]}
            assert forms.get(kind) == hints[field], field
            _compare(part, _beneath(all_documented, field))
            continue
        allowed = (str, Optional[str]) if field in names else (_type_of(kind),)
        assert hints[field] in allowed, field


def _part(hint: Any) -> Any:
    """The class of the object, or of the objects in a tuple, whose fields are typed."""
    kind = typing.get_args(hint)[0] if typing.get_origin(hint) in (tuple, typing.Union) else hint
    return kind if isinstance(kind, type) and issubclass(kind, _events.Part) else None


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


TABLES: Dict[str, Dict[str, _options.Option]] = {
    "push": _options.TRANSFER,
    "pull": _options.TRANSFER,
    "copy": _options.TRANSFER,
    "ls": _options.KEYS,
    "job add": _options.FAMILY,
    "job plan": {**_options.PLAN, **_options.PARTS},
    "job ls": _options.QUEUE,
    "job show": _options.QUEUE,
    "job left": _options.QUEUE,
    "job wait": _options.WAIT,
    "job watch": _options.WATCH,
    "job hold": _options.QUEUE,
    "job release": _options.QUEUE,
    "job cancel": _options.QUEUE,
    "job retry": _options.RETRY,
    "job report": _options.QUEUE,
    "job set": _options.SET,
    "job site": _options.SITE,
    "job link": _options.LINK,
    "job run": _options.MOVER,
    "job verify": _options.VERIFY,
    "admin status": _options.ADMIN,
    "admin sessions": _options.ADMIN,
    "admin clients": _options.ADMIN,
    "admin reload": _options.ADMIN,
    "admin drain": _options.ADMIN_DRAIN,
    "admin set-rate": _options.ADMIN_RATE,
    "admin kick": _options.ADMIN,
    "admin revoke": _options.ADMIN,
}


def _flags(text: str) -> set[str]:
    """The options that a help or a page lists, each at the beginning of a line."""
    return set(re.findall(r"^(?:\s*-\w,?|\s*- `-\w`,)?\s*(?:- )?`?(--[a-z0-9-]+)", text, flags=re.M))


@pytest.mark.parametrize("command", TABLES)
def test_every_option_of_the_table_is_one_of_the_program(command: str) -> None:
    args = [longhaul.find_binary(), *command.split(), "--help"]
    shown = subprocess.run(args, check=True, capture_output=True, text=True)
    assert {option.flag for option in TABLES[command].values()} <= _flags(shown.stdout)


@pytest.mark.parametrize("command", [command for command in TABLES if command.startswith("job ")])
def test_a_job_command_has_a_keyword_for_each_option_of_its_own(command: str) -> None:
    section = _sections((DOCS / "CLI.md").read_text())[f"`longhaul {command}`"]
    own = re.split(r"^### ", section, flags=re.M)
    (options,) = (part for part in own if part.startswith("Options\n"))
    assert _flags(options) <= {option.flag for option in TABLES[command].values()}


def test_there_is_a_function_for_each_job_command() -> None:
    commands = set(re.findall(r"^## `longhaul job (\w+)`$", (DOCS / "CLI.md").read_text(), flags=re.M))
    assert commands == {command.split()[1] for command in TABLES if command.startswith("job ")}
    for module in (longhaul.jobs, longhaul.aio.jobs):
        assert commands | {"add_all", "links", "parts", "sites"} == {name for name in module.__all__ if name.islower()}


def test_there_is_a_function_for_each_admin_command() -> None:
    commands = set(re.findall(r"^## `longhaul admin ([\w-]+)`$", (DOCS / "CLI.md").read_text(), flags=re.M))
    assert commands == {command.split()[1] for command in TABLES if command.startswith("admin ")}
    for module in (longhaul.admin, longhaul.aio.admin):
        # A drain is ended by a function of its own.
        assert {command.replace("-", "_") for command in commands} | {"end_drain"} == set(module.__all__)


def test_the_typed_keywords_are_those_of_the_table() -> None:
    def names(typed: Any) -> set[str]:
        return {
            name
            for base in (typed, *getattr(typed, "__orig_bases__", ()))
            for name in getattr(base, "__annotations__", {})
        }

    assert names(longhaul.TransferOptions) == set(_options.TRANSFER)
    assert names(longhaul.KeyOptions) == set(_options.KEYS)
    assert names(_options.TrustOptions) == set(_options.TRUST)
    assert names(_options.CampaignOptions) | {"queue"} == set(_options.CAMPAIGN)
    assert names(_options.PartsOptions) | {"shards", "out"} == set(_options.PARTS)


def test_every_exit_code_but_success_has_an_exception() -> None:
    for code, row in _exits.EXITS.items():
        error = _exits.failure(code, [], longhaul.Summary(status=row.status, exit=code), "")
        assert type(error) is row.error and error.exit == code
        assert error.resumable == row.resumable

"""docs/PYTHON.md: what a user types there is run, in the order of the page, and prints what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import List, Optional, Tuple

import pytest
from conftest import REPOSITORY, Daemon, large, tree

from longhaul import _exits, _options
from longhaul.rucio import Default

TEXT = (REPOSITORY / "docs" / "PYTHON.md").read_text()


def _blocks() -> List[Tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, flags=re.M | re.S)


def test_each_block_runs_and_prints_what_the_page_says(place: Daemon, tmp_path: Path) -> None:
    tree(tmp_path)
    large(tmp_path)
    (tmp_path / "scratch").mkdir()
    blocks, ran = _blocks(), 0
    for at, (language, code) in enumerate(blocks):
        if language != "python":
            continue
        follows: Tuple[str, Optional[str]] = blocks[at + 1] if at + 1 < len(blocks) else ("", None)
        expected = follows[1] if follows[0] == "text" else ""
        code = code.replace("lh://node.example/data/", place.at())
        code = code.replace('endswith("/data/none")', 'endswith("/none")')
        # As of a script: the start of each process is a new one.
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", "-c", code],
            cwd=tmp_path,
            env={**os.environ, "LONGHAUL_SOCKET": str(place.socket)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{code}\n{done.stderr}"
        lines = [sorted(text.splitlines()) for text in (done.stdout, expected or "")]
        assert lines[0] == lines[1], code
        ran += 1
    assert ran >= 8


def test_the_commands_of_the_page_are_those_that_the_tests_were_built_by() -> None:
    commands = [line for language, code in _blocks() if language == "sh" for line in code.splitlines()]
    assert commands == ["pip wheel ./contrib/python", "pip install longhaul-*.whl"]
    script = (REPOSITORY / "contrib" / "python" / "test").read_text()
    assert re.search(r'pip" wheel .*\./contrib/python', script) and re.search(r'pip" install .*"\$wheel"', script)


def test_keywords_are_flags_with_underscores_as_the_page_says() -> None:
    for name, option in _options.TRANSFER.items():
        assert option.flag == "--" + name.replace("_", "-")


def test_the_exceptions_of_the_page_are_those_of_the_table() -> None:
    rows = re.findall(r"^\| `(\w+Error)` \| (.*?) \|$", TEXT, flags=re.M)
    told = {int(code): name for name, codes in rows for code in re.findall(r"\d+", codes)}
    assert told == {code: row.error.__name__ for code, row in _exits.EXITS.items() if code}
    assert {name for name, _ in rows} == {name for name in dir(_exits) if name.endswith("Error")}


def test_the_settings_for_rucio_work(place: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "rucio.cfg"
    config.write_text("[client]\naccount = tests\n")
    monkeypatch.setenv("RUCIO_CONFIG", os.fspath(config))
    ((_, block),) = [pair for pair in _blocks() if pair[0] == "json"]
    settings = json.loads(block)
    assert settings["impl"] == f"{Default.__module__}.{Default.__name__}"
    assert settings["prefix"].startswith("/data/")
    host, port = place.addr.split(":")
    settings.update(hostname=host, port=int(port), prefix=f"/data/{place.root.name}/", auth_token=None)
    protocol = Default(settings, {"rse": "X", "deterministic": True, "protocols": [settings]})
    (tmp_path / "f").write_bytes(b"raw")
    protocol.put("f", protocol.path2pfn("f"), source_dir=os.fspath(tmp_path))
    assert (place.root / "f").read_bytes() == b"raw"

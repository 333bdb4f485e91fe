"""The documents name tests; a name that no test has is a promise nobody holds."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_that_a_document_names_exists() -> None:
    there = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    named = {name for path in (ROOT / "docs").glob("*.md") for name in re.findall(r"`(test_\w+)`", path.read_text())}
    assert named and not named - there

"""JSON that every reader of JSON understands."""

from __future__ import annotations

import json
import math

from shadowgraph.view.json_text import json_text


def refuse(text: str) -> None:
    raise AssertionError(text)


def test_what_is_no_finite_number_is_a_text_that_reads_as_one() -> None:
    values = [math.nan, math.inf, -math.inf, 1.5, -0.0, 5e-324, 1.7976931348623157e308]
    text = json_text({"a": values, "b": {"c": (math.inf, 3, None, "ä", True)}})
    found = json.loads(text, parse_constant=refuse)
    assert found["a"][:3] == ["NaN", "Infinity", "-Infinity"]
    assert [repr(float(value)) for value in found["a"]] == [repr(value) for value in values]
    assert found["b"]["c"] == ["Infinity", 3, None, "ä", True]
    assert "ä" in text and "\n" not in text


def test_all_else_is_as_it_was() -> None:
    content = {"a": [1, 2.5, None], "b": {"c": "text"}}
    assert json_text(content) == json.dumps(content)
    assert json_text(content, indent=1) == json.dumps(content, indent=1)

"""layout.py says what the C headers say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]

HEADER = """
#include <stdint.h>
#define SG_TOP (1ull << 63)
#define SG_BELOW_ZERO -3
#define SG_TEXT "not a number"
#define SG_CALL(x) (x)
#define SG_ATTRIBUTE __attribute__((unused))
enum sg_colour { SG_RED, SG_BLUE = 7 };
struct sg_inner { uint32_t a; _Atomic uint64_t b; };
struct sg_outer {
    struct sg_inner inner[3];
    union { uint8_t x; uint32_t y; };
    void *pointer;
    enum sg_colour colour;
    char name[16];
    double ratio;
    uint64_t rest[];
};
#define SG_OUTER_SIZE sizeof(struct sg_outer)
"""


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_layout", ROOT / "native" / "generate_layout.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_checked_in_layout_is_what_the_headers_say(generator: ModuleType) -> None:
    assert generator.OUTPUT.read_text() == generator.generate(), "run native/generate_layout.py"


def test_macros_enumerators_and_structs_of_any_shape_are_understood(generator: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "shadowgraph").mkdir()
    (tmp_path / "shadowgraph" / "sample.h").write_text(HEADER)
    names: dict[str, object] = {}
    exec(generator.generate(tmp_path), names)
    assert names["TOP"] == 1 << 63
    assert names["BELOW_ZERO"] == -3
    assert (names["RED"], names["BLUE"]) == (0, 7)
    assert names["OUTER_SIZE"] == 96
    assert not {"TEXT", "CALL", "ATTRIBUTE"} & names.keys()
    outer = names["outer_dtype"]
    assert isinstance(outer, np.dtype)
    assert outer.itemsize == 96
    assert outer.fields is not None
    offsets = {name: field[1] for name, field in outer.fields.items()}
    assert offsets == {"inner": 0, "x": 48, "y": 48, "pointer": 56, "colour": 64, "name": 68, "ratio": 88, "rest": 96}
    assert outer["inner"].shape == (3,)
    assert outer["name"] == np.dtype("S16")

"""Nobody jumps into overwritten bytes: a slow decoder of all code looks for what the fast search must have found."""

from __future__ import annotations

import random
import shutil
from functools import cache
from pathlib import Path

import capstone
import numpy as np
import pytest

from shadowgraph.image import FunctionTable, Image, open_image, read_functions
from shadowgraph.patch import ModulePlan, PlanFlag, plan_module
from shadowgraph.patch.jumps import confirmed, find_jumps
from shadowgraph.patch.owners import Owners
from shadowgraph.patch.text import Text
from tests.support.hook_bench import HERE, build
from tests.support.random_functions import random_functions

LIGHT = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)


def programs() -> list[str]:
    found = [shutil.which(name) for name in ("bash", "sqlite3", "perl")]
    libraries = Path("/usr/lib/x86_64-linux-gnu").glob("libsqlite3.so.0")
    return sorted({str(Path(path).resolve()) for path in [*found, *libraries] if path})


def own_programs() -> list[Path]:
    fixed = ("-static", "-no-pie", "-Wl,-Ttext-segment=0x10000000", "-Wl,-e,0")
    return [
        build(HERE / "shapes.S", "shapes", *fixed),
        build(random_functions(7, 80), "jumps-os", "-Os"),
        build(random_functions(8, 80), "jumps-o2", "-O2", "-fno-align-functions", "-fno-align-loops"),
    ]


def direct_branches(image: Image, functions: FunctionTable) -> list[tuple[int, int, int]]:
    """(address, end, target) of every direct branch in every function and left-out piece, by linear decoding."""
    pieces = list(zip(functions.start.tolist(), functions.size.tolist(), strict=True))
    pieces += [(part.start, part.size) for part in functions.parts]
    found = []
    for start, size in pieces:
        code = image.rest_of_segment(start)[:size].tobytes()
        for address, length, mnemonic, operands in LIGHT.disasm_lite(code, start):
            if mnemonic[0] in "jlcx" and operands.startswith("0x"):
                found.append((address, address + length, int(operands, 16)))
    return found


@pytest.mark.parametrize("path", [*programs(), *own_programs()], ids=lambda path: Path(path).name)
def test_no_branch_leads_into_overwritten_bytes(path: str | Path) -> None:
    image = open_image(path)
    functions = read_functions(image)
    plan = plan_module(image, functions)
    led = {int(address) + 4 for address in plan.redirects["address"]}
    overwritten = _overwritten(plan)
    for address, end, target in direct_branches(image, functions):
        patch = overwritten.get(target)
        if patch is None or end in led:
            continue
        displaced = patch[0] <= address and end <= patch[0] + patch[1]
        assert displaced, f"{address:#x} jumps to {target:#x}, which is overwritten"


def _overwritten(plan: ModulePlan) -> dict[int, tuple[int, int]]:
    """Each byte that changes, save for the first of a patch: to the patch address and the bytes displaced there."""
    bytes_of: dict[int, tuple[int, int]] = {}
    for row in np.flatnonzero(plan.hookable).tolist():
        patch, displaced = int(plan.patch_address[row]), int(plan.displaced[row])
        for offset in range(1, int(plan.overwritten[row])):
            bytes_of[patch + offset] = (patch, displaced)
        if plan.flags[row] & PlanFlag.LENDS:
            for offset in range(5, 10):
                bytes_of[patch + offset] = (patch, displaced)
        elif plan.hole[row] and plan.lender[row] < 0:
            for offset in range(5):
                bytes_of[int(plan.hole[row]) + offset] = (0, 0)
    return bytes_of


@pytest.mark.parametrize("path", own_programs(), ids=lambda path: path.name)
def test_the_search_finds_exactly_the_branches_there_are(path: Path) -> None:
    image = open_image(path)
    functions = read_functions(image)
    text = Text(image)
    owners = Owners(text, functions)
    chance = random.Random(5)
    branches = direct_branches(image, functions)
    targets = sorted({target - text.base for _, _, target in branches if 0 <= target - text.base < text.size})
    chosen = set(chance.sample(targets, len(targets) // 2))
    marks = text.marks()
    marks[list(chosen)] = 1
    candidates = find_jumps(text, owners, marks)
    found = candidates.take(confirmed(text, owners, candidates))
    branch = found.kind < 3  # not `lea`
    got = set(zip((found.end[branch] + text.base).tolist(), (found.target[branch] + text.base).tolist(), strict=True))
    expected = {(end, target) for _, end, target in branches if target - text.base in chosen}
    assert got == expected


def test_hidden_bytes_that_look_like_jumps_are_none() -> None:
    source = """
        .text
        .globl victim
        .type victim, @function
        .p2align 4
victim: push %rbx
        mov %rdi, %rbx
        mov $0xeb, %eax
        add $0xf7eb9090, %ecx   # holds eb f7, which would lead into the first bytes
        pop %rbx
        ret
        .size victim, . - victim
    """
    image, functions, plan = _planned(source, "hidden")
    row = functions.find_name("victim")[0]
    assert b"\xeb\xf7" in image.read(int(functions.start[row]), int(functions.size[row]))
    assert plan.hookable[row]


@pytest.mark.parametrize(("doubt", "hookable"), [(".byte 0x06", False), ("nop", True)])
def test_behind_undecodable_bytes_what_may_be_a_jump_is_taken_for_one(doubt: str, hookable: bool) -> None:
    """A short jump hides in the constant of a `mov`; behind bytes that are no instruction nothing is known for sure."""
    source = f"""
        .globl doubtful
        .type doubtful, @function
        .p2align 4
doubtful: nop
        mov %rdi, %rax
        lea 1(%rax), %rax
        ret
        {doubt}
        .byte 0xb8, 0xeb, doubtful + 1 - . - 1, 0, 0
        ret
        .size doubtful, . - doubtful
    """
    _, functions, plan = _planned(source, f"doubtful-{hookable}")
    assert bool(plan.hookable[functions.find_name("doubtful")[0]]) is hookable


@pytest.mark.parametrize(
    ("between", "hookable"),
    [
        (".byte 0xeb, behind + 1 - . - 1", False),  # to an instruction
        (".byte 0xeb, behind + 2 - . - 1", True),  # into one: that is data
        (".byte 0x90", True),
    ],
)
def test_between_functions_what_may_be_a_jump_is_taken_for_one(between: str, hookable: bool) -> None:
    source = f"""
        .globl before
        .type before, @function
before: ret
        .size before, . - before
        {between}
        .globl behind
        .type behind, @function
behind: push %rbx
        mov %rdi, %rbx
        mov %rbx, %rax
        pop %rbx
        ret
        .size behind, . - behind
    """
    _, functions, plan = _planned(source, f"between-{abs(hash(between))}")
    row = functions.find_name("behind")[0]
    assert bool(plan.hookable[row]) is hookable or plan.flags[row] & PlanFlag.SHORT_JUMP


@cache
def _planned(source: str, name: str) -> tuple[Image, FunctionTable, ModulePlan]:
    image = open_image(build(source, name))
    functions = read_functions(image)
    return image, functions, plan_module(image, functions)

"""What is refused and why, what a subset costs, and the promises of the plan's columns."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from shadowgraph.image import FunctionTable, Image, Reason, open_image, read_functions
from shadowgraph.patch import ModulePlan, PlanFlag, plan_module
from tests.support.hook_bench import DATA, HERE, Bench, build, random_state
from tests.support.lending import LENDING

FIXED = ("-static", "-no-pie", "-Wl,-Ttext-segment=0x10000000", "-Wl,-e,0")


def planned(source: str, name: str, *flags: str) -> tuple[Image, FunctionTable, ModulePlan]:
    image = open_image(build(source, name, *flags))
    functions = read_functions(image)
    return image, functions, plan_module(image, functions)


def function(name: str, body: str, size: str = "") -> str:
    return f"""
        .p2align 4, 0x90
        .globl {name}
        .type {name}, @function
{name}: .cfi_startproc
        {body}
        .cfi_endproc
        .size {name}, {size or f". - {name}"}
    """


def reason_of(source: str, name: str, label: str) -> Reason:
    _, functions, plan = planned(source, label)
    row = functions.find_name(name)[0]
    assert bool(plan.hookable[row]) == (plan.reason[row] == 0)
    return Reason(plan.reason[row])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("mov %rdi, %rax\n ret", Reason.NONE),
        (".byte 0x06, 0x06, 0x06, 0x06, 0x06\n ret", Reason.UNDECODABLE),
        ("int3\n nop\n nop\n nop\n nop\n ret", Reason.NOT_RELOCATABLE),
        (".byte 0x67, 0x48, 0x8b, 0x05, 0, 0, 0, 0\n ret", Reason.NOT_RELOCATABLE),
        (".byte 0x66, 0xe9, 0, 0, 0, 0\n ret", Reason.NOT_RELOCATABLE),
        ("xbegin 1f\n 1: ret", Reason.NONE),
        ("call *8(%rsp)\n nop\n ret", Reason.NOT_RELOCATABLE),
        ("pop %rax\n push %rax\n push %rax\n pop %rax\n nop\n ret", Reason.LOOKS_AT_RETURN_ADDRESS),
        ("push %rax\n pop %rax\n lea 1(%rdi), %rax\n ret", Reason.NONE),
    ],
)
def test_first_instructions(body: str, reason: Reason) -> None:
    source = function("f", body) + function("g", "nop\n nop\n nop\n nop\n ret")
    assert reason_of(source, "f", f"first-{abs(hash(body))}") == reason


@pytest.mark.parametrize(
    ("behind", "reason"),
    [
        (".byte 0x90, 0x90, 0x90, 0x90", Reason.NONE),
        (".byte 0xcc, 0xcc, 0xcc, 0xcc", Reason.NONE),
        (".nops 12", Reason.NONE),
        (".byte 0, 0, 0, 0", Reason.NONE),
        (".skip 40", Reason.TOO_SHORT),  # so many zeros are data
        (".byte 1, 2, 3, 4", Reason.TOO_SHORT),
        (".byte 0x90, 0x90, 0x90", Reason.TOO_SHORT),  # one byte short
        (".byte 0x90, 0x90, 0x90, 0x48", Reason.TOO_SHORT),
    ],
)
def test_functions_of_one_byte_need_padding_behind(behind: str, reason: Reason) -> None:
    source = (
        f"{function('f', 'ret')}\n {behind}\n .globl g\n .type g, @function\ng: mov %rdi, %rax\n ret\n .size g, . - g"
    )
    assert reason_of(source, "f", f"padding-{abs(hash(behind))}") == reason


def test_a_short_function_that_runs_on_is_not_hooked_over_padding() -> None:
    source = function("f", "mov %rdi, %rax", size="3") + "\n" + function("g", "lea 1(%rax), %rax\n ret")
    assert reason_of(source, "f", "runs-on") == Reason.TOO_SHORT


def test_padding_that_somebody_jumps_to_is_not_overwritten() -> None:
    padding = "1: nop\n nop\n nop\n nop\n nop\n nop\n"
    source = f"{function('f', 'ret')}\n {padding} {function('g', 'test %edi, %edi; jne 1b; ret')}"
    assert reason_of(source, "f", "padding-entered") in (Reason.JUMPED_INTO, Reason.TOO_SHORT)


def test_a_loop_without_unwind_information_is_not_trusted() -> None:
    body = "push %rdi\n dec %rdi\n jmp *%rcx\n 1: jmp f"
    with_unwind = function("f", body)
    without = with_unwind.replace(".cfi_startproc", "").replace(".cfi_endproc", "")
    assert reason_of(with_unwind, "f", "loop-unwind") == Reason.NONE
    assert reason_of(without, "f", "loop-no-unwind") == Reason.JUMPED_INTO


def test_a_loop_around_values_below_rsp_is_not_hooked_at_its_head() -> None:
    body = "lea 1(%rdi), %rax\n mov %rax, -48(%rsp)\n test %edi, %edi\n je 1f\n lea 2f(%rip), %rdx\n jmp *%rdx\n"
    body += "2: jmp f\n 1: mov -48(%rsp), %rax\n ret"
    assert reason_of(function("f", body), "f", "red-zone") == Reason.JUMPED_INTO


def test_cold_parts_are_known_by_who_jumps_to_them(tmp_path: Path) -> None:
    parts = ".cfi_startproc\n xor %eax, %eax\n ret\n .cfi_endproc\n"
    source = (
        f".p2align 4\n .cfi_startproc\n test %edi, %edi\n je 1f\n lea 5(%rdi), %rax\n ret\n .cfi_endproc\n"
        f".p2align 4\n 1: {parts} .p2align 4\n 2: {parts} .globl main\n .type main, @function\n"
        "main: .cfi_startproc\n call 2b\n ret\n .cfi_endproc\n .size main, . - main\n"
    )
    _, functions, plan = planned(source, "cold")
    reasons = {functions.name(row): Reason(plan.reason[row]) for row in range(len(functions))}
    assert sorted(reasons.values()) == [Reason.NONE, Reason.NONE, Reason.NONE, Reason.COLD_PART]
    assert reasons["main"] == Reason.NONE


def test_a_name_keeps_what_looks_like_a_cold_part_a_function() -> None:
    source = function("f", "xor %eax, %eax\n nop\n nop\n nop\n ret") + function(
        "g", "test %edi, %edi\n je f\n lea 1(%rdi), %rax\n ret"
    )
    assert reason_of(source, "f", "named-part") == Reason.NONE


def test_rows_that_were_not_asked_for_are_not_planned() -> None:
    bench = Bench(build(HERE / "shapes.S", "shapes", *FIXED))
    chosen = [bench.row("rip_lea"), bench.row("call_first")]
    plan = plan_module(bench.image, bench.functions, only=chosen)
    assert np.flatnonzero(plan.hookable).tolist() == sorted(chosen)
    others = np.setdiff1d(np.arange(len(bench.functions)), chosen)
    assert set(plan.reason[others].tolist()) <= {Reason.NOT_CHOSEN}
    for row in chosen:
        assert plan.displaced[row] == bench.plan.displaced[row]


def test_a_subset_is_planned_as_the_whole_is() -> None:
    bench = Bench(build(HERE / "shapes.S", "shapes", *FIXED))
    for row in range(len(bench.functions)):
        plan = plan_module(bench.image, bench.functions, only=[row])
        # What depends on others may depend on whether they are chosen too.
        if bench.plan.lender[row] < 0 and not bench.plan.flags[row] & (PlanFlag.LENDS | PlanFlag.REDIRECTED):
            assert plan.hookable[row] == bench.plan.hookable[row], bench.functions.name(row)
            assert plan.flags[row] == bench.plan.flags[row]


def test_a_plan_grows_and_keeps_what_it_said() -> None:
    bench = Bench(build(HERE / "shapes.S", "shapes", *FIXED))
    chance = random.Random(3)
    for _ in range(5):
        rows = list(range(len(bench.functions)))
        chance.shuffle(rows)
        plan = None
        for first in range(0, len(rows), 12):
            chosen = rows[first : first + 12]
            grown = plan_module(bench.image, bench.functions, only=chosen, previous=plan)
            if plan is not None:
                said = np.flatnonzero(plan.reason != Reason.NOT_CHOSEN)
                for name in ("reason", "flags", "displaced", "hole", "lender", "recipe"):
                    assert (getattr(grown, name)[said] == getattr(plan, name)[said]).all()
                assert set(plan.redirects["address"].tolist()) <= set(grown.redirects["address"].tolist())
            assert not (grown.reason[chosen] == Reason.NOT_CHOSEN).any()
            plan = grown
        assert plan is not None
        bench.plan = plan
        calls = [
            (int(start), random_state(7, rdi=3, rdx=DATA, rcx=int(bench.functions.start[bench.row("callee")])))
            for start in bench.functions.start
            if bench.functions.name(bench.functions.find(int(start))) != "inner_frame"
        ]
        plain, hooked = bench.run(calls), bench.run(calls, bench.hookable())
        assert [outcome.effect for outcome in plain] == [outcome.effect for outcome in hooked]


def test_a_neighbour_lends_what_it_displaces() -> None:
    _, functions, plan = planned(LENDING, "lending")
    lender, borrower = functions.find_name("lender")[0], functions.find_name("borrower")[0]
    assert plan.hookable[borrower]
    assert plan.lender[borrower] == lender
    assert plan.hole[borrower] == plan.patch_address[lender] + 5
    assert plan.displaced[lender] >= 10
    assert plan.flags[lender] & PlanFlag.LENDS
    assert plan.with_lenders([borrower]).tolist() == [borrower, lender]
    assert plan.with_lenders([lender, borrower]).tolist() == [lender, borrower]


def test_a_lender_that_was_not_asked_for_is_planned_for_the_borrower() -> None:
    image, functions, _ = planned(LENDING, "lending")
    borrower = functions.find_name("borrower")[0]
    plan = plan_module(image, functions, only=[borrower])
    assert np.flatnonzero(plan.hookable).tolist() == sorted(plan.with_lenders([borrower]).tolist())
    assert plan.hookable[borrower]


def test_displaced_bytes_that_are_jumped_into_are_not_lent() -> None:
    entered = LENDING.replace("call lender", "test %edi, %edi\n jne lender + 8\n call lender")
    _, functions, plan = planned(entered, "lending-entered")
    borrower = functions.find_name("borrower")[0]
    assert plan.lender[borrower] != functions.find_name("lender")[0]


def test_columns_agree_with_each_other() -> None:
    bench = Bench(build(HERE / "shapes.S", "shapes", *FIXED))
    plan = bench.plan
    for row in range(len(bench.functions)):
        assert (
            bool(plan.hookable[row]) == (plan.reason[row] == 0) == (plan.recipe[row] >= 0) == (plan.displaced[row] > 0)
        )
        if plan.hookable[row]:
            assert plan.displaced[row] == plan.recipes[plan.recipe[row]].displaced
            assert plan.window[row] == max(plan.displaced[row], plan.overwritten[row])
            skipped = int(plan.patch_address[row]) - int(bench.functions.start[row])
            assert skipped == (4 if plan.flags[row] & PlanFlag.BEHIND_ENDBR64 else 0)
        in_file = bench.image.rest_of_segment(int(plan.patch_address[row]))[:5].tobytes()
        assert plan.original[row].tobytes() == in_file.ljust(5, b"\0")


def test_an_image_without_functions_has_an_empty_plan() -> None:
    path = build(".globl data\n .data\ndata: .quad 1", "no-functions")
    image = open_image(path)
    plan = plan_module(image, read_functions(image))
    assert not len(plan.hookable) or not plan.hookable.any()

"""Function starts of every shape, with and without a hook: same registers, flags, memory, stack; hooked once a call."""

from __future__ import annotations

from functools import cache

import pytest

from shadowgraph.image import Reason
from shadowgraph.patch import PlanFlag
from tests.support.hook_bench import DATA, HERE, Bench, Outcome, State, build, random_state

FIXED = ("-static", "-no-pie", "-Wl,-Ttext-segment=0x10000000", "-Wl,-e,0")
CASES = 12

# What a call enters, given rdi; shapes that are not named enter themselves and nothing else.
ENTERED = {
    "call_first": ["call_first", "callee"],
    "call_after_push": ["call_after_push", "callee"],
    "call_memory": ["call_memory", "callee"],
    "call_memory_third": ["call_memory_third", "callee"],
    "call_memory_first": ["call_memory_first", "callee"],
    "call_after_frame": ["call_after_frame", "callee"],
    "call_third": ["call_third", "callee"],
    "call_register_third": ["call_register_third", "callee"],
    "call_register": ["call_register", "callee"],
    "call_flags": ["call_flags", "takes_carry"],
    "jump_first": ["jump_first", "callee"],
    "jump_memory_first": ["jump_memory_first", "callee"],
    "jumps_shortly": ["jumps_shortly", "returns_argument"],
    "packed_2": ["packed_2", "packed_3"],
    # Whoever falls into a second entry passes its hook: a tail call.
    "outer_entry": ["outer_entry", "inner_entry"],
    "entry_in_window": ["entry_in_window", "second_in_window"],
    # Calls in a loop around the entry are tail calls to itself; loops that are none are not (the others).
    "loop_around_call": lambda n: ["loop_around_call", "callee"] * n + ["loop_around_call"],
    "loop_with_call_behind_1": None,  # depends on rax
    "loop_with_call_behind_4": lambda n: ["loop_with_call_behind_4"] + ["callee"] * n,
    "conditional_far_first": None,  # depends on flags
}
REFUSED = {
    "call_register_early": Reason.NOT_RELOCATABLE,
    "breakpoint_first": Reason.NOT_RELOCATABLE,
    "pops_return_address": Reason.LOOKS_AT_RETURN_ADDRESS,
    "reads_return_address": Reason.LOOKS_AT_RETURN_ADDRESS,
    "packed_1": Reason.TOO_SHORT,
    "loop_entered_late": Reason.JUMPED_INTO,
    "entered_shortly_behind_1": Reason.JUMPED_INTO,
    "entered_from_window": Reason.JUMPED_INTO,
    "inner_frame": Reason.FRAME_IN_PROGRESS,
}
FLAGS = {
    "endbr_first": PlanFlag.BEHIND_ENDBR64,
    "nops_5": PlanFlag.MULTI_INSTRUCTION,
    "rip_lea": PlanFlag.NONE,
    "returns_only": PlanFlag.PADDING,
    "call_first": PlanFlag.EMULATED_CALL,
    "call_after_frame": PlanFlag.CALL_IN_PLACE,
    "call_memory": PlanFlag.CALL_IN_PLACE,
    "call_memory_third": PlanFlag.CALL_IN_PLACE,
    "call_memory_first": PlanFlag.CALL_IN_PLACE | PlanFlag.SHORT_JUMP,
    "call_after_push": PlanFlag.CALL_IN_PLACE | PlanFlag.SHORT_JUMP,
    "call_third": PlanFlag.SHORT_JUMP,
    "loop_head_first": PlanFlag.WHOLE_LOOP,
    "loop_head_second": PlanFlag.WHOLE_LOOP,
    "loop_in_red_zone": PlanFlag.WHOLE_LOOP,
    "loop_around_call": PlanFlag.SELF_JUMP,
    "entered_behind_3": PlanFlag.SHORT_JUMP,
    "loop_with_call_behind_4": PlanFlag.SHORT_JUMP,
    "table_to_window": PlanFlag.SHORT_JUMP,
    "packed_2": PlanFlag.SHORT_JUMP,
    "entered_behind_1": PlanFlag.REDIRECTED,
    "loop_with_call_behind_1": PlanFlag.REDIRECTED,
}


@cache
def bench(far: bool) -> Bench:
    return Bench(build(HERE / "shapes.S", "shapes", *FIXED), far=far)


@cache
def calls() -> list[tuple[int, State]]:
    shapes = bench(False)
    made = []
    callee = int(shapes.functions.start[shapes.row("callee")])
    for row in range(len(shapes.functions)):
        for case in range(CASES):
            state = random_state(row * 100 + case, rdi=case + 1, rdx=DATA + 64, rcx=callee)
            made.append((int(shapes.functions.start[row]), state))
    return made


@cache
def plain() -> list[Outcome]:
    return bench(False).run(calls())


def names() -> list[str]:
    shapes = bench(False)
    return [shapes.functions.name(row) for row in range(len(shapes.functions))]


@pytest.mark.parametrize("far", [False, True], ids=["agent near", "agent far"])
def test_all_shapes_do_the_same_when_all_are_hooked(far: bool) -> None:
    shapes = bench(far)
    hooked = shapes.run(calls(), shapes.hookable())
    for (address, _), before, after in zip(calls(), plain(), hooked, strict=True):
        assert after.effect == before.effect, shapes.functions.name(shapes.functions.find(address))


def test_all_shapes_do_the_same_with_calls_from_thunks() -> None:
    shapes = Bench(build(HERE / "shapes.S", "shapes", *FIXED), real_calls=True)
    row = shapes.row("call_register_early")
    assert shapes.plan.flags[row] & PlanFlag.REAL_CALL
    assert shapes.plan.flags[shapes.row("call_first")] & PlanFlag.REAL_CALL
    assert not shapes.plan.flags[shapes.row("call_next")] & (PlanFlag.REAL_CALL | PlanFlag.EMULATED_CALL)
    hooked = shapes.run(calls(), shapes.hookable())
    for (address, _), before, after in zip(calls(), plain(), hooked, strict=True):
        assert after.effect == before.effect, shapes.functions.name(shapes.functions.find(address))


@pytest.mark.parametrize("name", names())
def test_a_shape_does_the_same_when_it_alone_is_hooked(name: str) -> None:
    shapes = bench(False)
    row = shapes.row(name)
    if not shapes.plan.hookable[row]:
        assert name in REFUSED
        return
    hooked = shapes.run(calls(), [row])
    assert [outcome.effect for outcome in hooked] == [outcome.effect for outcome in plain()]


@pytest.mark.parametrize("name", sorted(set(names()) - set(REFUSED)))
def test_a_call_enters_the_hook_once(name: str) -> None:
    shapes = bench(False)
    address = int(shapes.functions.start[shapes.row(name)])
    chosen = [call for call in calls() if call[0] == address]
    hooked = shapes.run(chosen, shapes.hookable())
    for (_, state), outcome in zip(chosen, hooked, strict=True):
        expected = ENTERED.get(name, [name])
        if callable(expected):
            expected = expected(state.registers[7])
        entered = [shapes.functions.name(row) for row in outcome.entered]
        assert expected is None or entered == expected[:32]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_hooked_has_its_reason(name: str) -> None:
    shapes = bench(False)
    assert Reason(shapes.plan.reason[shapes.row(name)]) == REFUSED[name]


@pytest.mark.parametrize("name", FLAGS)
def test_the_patcher_is_told_what_is_special(name: str) -> None:
    shapes = bench(False)
    flags = PlanFlag(int(shapes.plan.flags[shapes.row(name)]))
    assert FLAGS[name] in flags
    if FLAGS[name] == PlanFlag.NONE:
        assert flags == PlanFlag.NONE


def test_no_shape_is_refused_beyond_those_that_must_be() -> None:
    shapes = bench(False)
    refused = {shapes.functions.name(row) for row in range(len(shapes.functions)) if not shapes.plan.hookable[row]}
    assert refused <= set(REFUSED)

"""Functions that must not be hooked are known by name, by their code, and each reason has its sentence."""

from __future__ import annotations

import pytest

from shadowgraph.image import SENTENCES, FunctionTable, Reason, open_image, read_functions, reason_by_name
from tests.support.elf_files import compile_text, copy_of, installed, run, symbol_addresses

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"


def refusal(functions: FunctionTable, name: str) -> Reason:
    (row,) = functions.find_name(name)
    return Reason(int(functions.refused[row]))


def test_every_reason_has_a_sentence():
    assert set(SENTENCES) == set(Reason)
    for sentence in SENTENCES.values():
        assert sentence[0].islower() and not sentence.endswith("."), "sentences are read after 'because'"
    assert len(set(SENTENCES.values())) == len(SENTENCES)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("_setjmp", Reason.RETURNS_TWICE),
        ("vfork", Reason.RETURNS_TWICE),
        ("swapcontext", Reason.SWITCHES_STACKS),
        ("dlsym", Reason.LOOKS_AT_RETURN_ADDRESS),
        ("__restore_rt", Reason.SIGNAL_RETURN),
        ("_dl_runtime_resolve_xsavec", Reason.DYNAMIC_LINKER),
        ("_Unwind_RaiseException", Reason.UNWINDER),
        ("__fentry__", Reason.COMPILER_HOOK),
        ("___interceptor_malloc", Reason.LOOKS_AT_RETURN_ADDRESS),
        ("_ZN6__asan13AsanThread_fooEv", Reason.LOOKS_AT_RETURN_ADDRESS),
        ("__x86_indirect_thunk_r11", Reason.OWN_CONVENTION),
        ("Builtins_ArrayPrototypePush", Reason.MANAGED_STACK),
        ("_ZN2v88internal11Runtime_AddEiPmPNS0_7IsolateE", Reason.CALLED_BY_RUNTIME),
        ("camlStdlib__List__map_507", Reason.MANAGED_STACK),
        ("camlStdlib.List.map_507", Reason.MANAGED_STACK),
    ],
)
def test_special_names_are_known(name, reason):
    assert reason_by_name(name) == reason


@pytest.mark.parametrize(
    "name",
    [
        "main",
        "malloc",
        "fork",
        "setjmp_helper",
        "my_setjmp",
        "vforks",
        "camlot",
        "caml_alloc_string",
        "_ZN2v88internal7Factory9NewStringEv",
        "_ZN6__asanX3fooEv",
        "pthread_exit",
        "__cxa_throw",
        "",
    ],
)
def test_ordinary_names_are_not(name):
    assert reason_by_name(name) == Reason.NONE


def test_the_sieve_loses_no_special_name():
    """One function for each special name, beside ordinary ones: the table refuses exactly those."""
    names = ["setjmp", "vfork", "dlsym", "mcount", "_start_not", "Builtins_Add", "__asan_init", "g", "se", "setjmp_not"]
    source = ".text\n" + "".join(f".globl {n}\n.type {n},@function\n{n}: ret\n.size {n},1\n" for n in names)
    functions = read_functions(open_image(compile_text(source, "-shared -nostdlib", "as")))
    refused = {functions.name(row) for row in range(len(functions)) if functions.refused[row]}
    assert refused == {"setjmp", "vfork", "dlsym", "mcount", "Builtins_Add", "__asan_init"}


def test_libc_is_vetted():
    functions = read_functions(open_image(installed(LIBC)))
    assert refusal(functions, "_setjmp") == Reason.RETURNS_TWICE
    assert refusal(functions, "vfork") == Reason.RETURNS_TWICE
    assert refusal(functions, "getcontext") == Reason.RETURNS_TWICE
    assert refusal(functions, "dlopen") == Reason.LOOKS_AT_RETURN_ADDRESS
    for name in ("malloc", "fork", "printf", "pthread_create", "pthread_exit", "qsort", "execve"):
        assert refusal(functions, name) == Reason.NONE
    assert (functions.refused != 0).sum() < 60


READERS = """
#include <stdio.h>
#include <stdlib.h>
extern int sink(void *where, const char *what);
__attribute__((noinline)) int plain(int x) {
    char room[64];
    snprintf(room, sizeof room, "%d", x);
    return sink(room, room);
}
__attribute__((noinline)) int asks(int x) {
    char room[200];
    snprintf(room, sizeof room, "%d", x);
    return sink(__builtin_return_address(0), room);
}
__attribute__((noinline)) int asks_at_once(int x) { return sink(__builtin_return_address(0), "x") + x; }
__attribute__((noinline)) int many(int a, int b, int c, int d, int e, int f, int g, int h) {
    return sink(&g, "stack arguments are near the return address") + g + h + a;
}
int sink(void *where, const char *what) { return where != 0 && what != 0; }
int main(int count, char **words) {
    return plain(count) + asks(count) + asks_at_once(count) + many(1, 2, 3, 4, 5, 6, count, 8);
}
"""


@pytest.mark.parametrize(
    "flags", ["-O0", "-O1", "-O2", "-Os", "-O2 -fno-omit-frame-pointer", "-O2 -fcf-protection=full"]
)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("strip", [False, True])
def test_who_reads_his_return_address_is_found_by_code(flags, compiler, strip):
    whole = compile_text(READERS, f"{flags} -fno-inline", compiler)
    path = whole
    if strip:
        path = copy_of(whole)
        run("strip", path)
    functions, addresses = read_functions(open_image(path)), symbol_addresses(whole)
    names = ("plain", "asks", "asks_at_once", "many", "main", "sink")
    refused = {name for name in names if functions.refused[functions.find(addresses[name])]}
    assert refused == {"asks", "asks_at_once"}


def test_a_stripped_unwinder_is_found_by_code():
    """uw_init_context_1 is static in libgcc: without symbols only its code tells what it is."""
    functions = read_functions(open_image(installed("/lib/x86_64-linux-gnu/libgcc_s.so.1")))
    nameless = [row for row in range(len(functions)) if functions.name(row).startswith(("sub_", "uw_init_context"))]
    reasons = {Reason(int(functions.refused[row])) for row in nameless}
    assert reasons & {Reason.LOOKS_AT_RETURN_ADDRESS, Reason.UNWINDER}


def test_a_return_address_kept_in_a_register_is_noticed():
    source = """
        .text
        .globl main, keeps
        .type main, @function
        .type keeps, @function
main:   .cfi_startproc
        ret
        .cfi_endproc
keeps:  .cfi_startproc
        pop %rdi
        .cfi_adjust_cfa_offset -8
        .cfi_register %rip, %rdi
        push %rdi
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rip, -8
        ret
        .cfi_endproc
        .section .note.GNU-stack, "", @progbits
    """
    functions = read_functions(open_image(compile_text(source, "", "as")))
    assert refusal(functions, "keeps") == Reason.LOOKS_AT_RETURN_ADDRESS
    assert refusal(functions, "main") == Reason.NONE


@pytest.mark.parametrize("flags", ["-O1 -finstrument-functions", "-O1 -fsanitize=thread"])
def test_instrumented_programs_are_not_refused_for_their_instrumentation(flags):
    path = compile_text(READERS, flags)
    functions = read_functions(open_image(path))
    assert refusal(functions, "plain") == refusal(functions, "main") == Reason.NONE


def test_common_programs_lose_no_function_to_a_false_alarm():
    for path in ("/usr/bin/bash", "/usr/bin/perl", "/usr/bin/git", "/usr/bin/python3"):
        functions = read_functions(open_image(installed(path)), debug_roots=())
        refused = [functions.name(row) for row in range(len(functions)) if functions.refused[row]]
        assert len(refused) == 1, f"{path}: only _start has no caller, but {refused}"


def assembled(names: list[str], flags: str = "-shared -nostdlib") -> FunctionTable:
    source = ".text\n" + "".join(f'.globl "{n}"\n.type "{n}",@function\n"{n}": ret\n.size "{n}",1\n' for n in names)
    return read_functions(open_image(compile_text(source, flags, "as")))


def refused_names(functions: FunctionTable, reason: Reason) -> set[str]:
    return {functions.name(row) for row in range(len(functions)) if functions.refused[row] == reason}


def test_go_code_is_refused_by_its_place():
    functions = assembled(["c_before", "runtime.text", "main.add", "runtime.gopanic", "runtime.etext", "c_after"])
    assert refused_names(functions, Reason.MANAGED_STACK) == {"runtime.text", "main.add", "runtime.gopanic"}


def test_haskell_code_is_refused_by_its_names():
    functions = assembled(
        ["stg_upd_frame_info", "base_GHCziBase_map_info", "Main_main1_entry", "hs_init", "rts_info_print"]
    )
    haskell = {"stg_upd_frame_info", "base_GHCziBase_map_info", "Main_main1_entry"}
    assert refused_names(functions, Reason.MANAGED_STACK) == haskell
    assert refused_names(assembled(["get_info", "main_entry"]), Reason.MANAGED_STACK) == set()


def test_functions_that_javascript_calls_are_known_by_their_parameters():
    called = [
        "_ZN4node2fs4ReadERKN2v820FunctionCallbackInfoINS1_5ValueEEE",
        "_ZN2v88internal11GCExtension2GCERKNS_20FunctionCallbackInfoINS_5ValueEEE",
        "_ZN4node9EnvGetterEN2v85LocalINS0_4NameEEERKNS0_20PropertyCallbackInfoINS0_5ValueEEE",
    ]
    ordinary = ["_ZN4node2fs8InternalEPNS_11EnvironmentE", "FunctionCallbackInfo", f"_GLOBAL__sub_I_{called[0]}"]
    assert refused_names(assembled([*called, *ordinary]), Reason.CALLED_BY_RUNTIME) == set(called)


def test_the_entry_point_is_refused_whatever_its_name():
    functions = assembled(["begin", "other"], "-static -nostdlib -no-pie -Wl,-e,begin")
    assert refused_names(functions, Reason.NO_CALLER) == {"begin"}
    library = assembled(["begin", "other"], "-shared -nostdlib -Wl,-e,begin")
    assert refused_names(library, Reason.NO_CALLER) == set()

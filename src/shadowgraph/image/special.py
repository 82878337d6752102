"""Functions that must not be hooked because of what they are, known by name.

A hooked call finds our return site in the place of its return address until it returns, and comes back through that
site once. Each group below breaks one half of this, and its comment says how. Tail calls matter too: if a hooked
function *jumps* to one of these, the site stands in its slot all the same.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import numpy.typing as npt

from shadowgraph.image.reasons import Reason
from shadowgraph.image.symbols import SymbolTable

__all__ = ["reason_by_name", "special_symbols"]

_BY_NAME: list[tuple[Reason, str]] = [
    # They store their return address and stack pointer for a second return, long after the first has given the frame
    # back. vfork's child returns first, on its parent's stack, and the parent returns through the same slot again.
    (
        Reason.RETURNS_TWICE,
        """setjmp _setjmp __setjmp sigsetjmp __sigsetjmp __sigsetjmp_cancel savectx
        vfork __vfork __libc_vfork getcontext __getcontext""",
    ),
    # They load another stack pointer and leave by what lies there. A context saved by swapcontext may be resumed any
    # number of times; the coroutine switches of Boost (PHP's fibers), libcoro (Perl), Ruby, libco and greenlet resume
    # once, but on a stack that may be freed, or copied elsewhere and back (greenlet), before they return.
    (
        Reason.SWITCHES_STACKS,
        """longjmp _longjmp __longjmp siglongjmp __libc_longjmp __libc_siglongjmp __longjmp_chk ____longjmp_chk
        setcontext __setcontext swapcontext __swapcontext __start_context
        jump_fcontext ontop_fcontext coro_transfer coroutine_transfer co_swap co_switch slp_switch""",
    ),
    # The dynamic linker's interface finds out which object calls it, by return address: RTLD_NEXT, $ORIGIN and RUNPATH
    # in dlopen, and the namespace of dlmopen would be those of our agent.
    (
        Reason.LOOKS_AT_RETURN_ADDRESS,
        """dlsym __dlsym ___dlsym dlvsym __dlvsym ___dlvsym dlopen __dlopen ___dlopen dlmopen __dlmopen ___dlmopen
        __libc_dlopen_mode dl_iterate_phdr __dl_iterate_phdr ___dl_iterate_phdr""",
    ),
    # Unwinders start from the return address of their own entry point (libgcc's uw_init_context_1 looks up its
    # caller's frame with it) and end by jumping into a handler. Contexts captured for unwinding name the caller.
    (
        Reason.UNWINDER,
        """_Unwind_RaiseException _Unwind_ForcedUnwind _Unwind_Resume _Unwind_Resume_or_Rethrow _Unwind_Backtrace
        uw_init_context_1 unw_getcontext __unw_getcontext _Ux86_64_getcontext _ULx86_64_getcontext breakpad_getcontext
        _Ux86_64_getcontext_trace _Ux86_64_setcontext _x86_64_setcontext
        __libunwind_Registers_x86_64_jumpto __libunwind_Registers_x86_64_jumpto_ssp""",
    ),
    # Entered by the kernel, not by a call: there is nothing to return to, and the stack holds argc or a signal frame.
    (Reason.NO_CALLER, "_start __start _dl_start_user _rt0_amd64_linux"),
    (Reason.SIGNAL_RETURN, "__restore_rt __restore __libc_restore_rt __kernel_rt_sigreturn"),
    # The PLT jumps here with two words pushed on the stack; these find the function that was called and jump to it.
    (
        Reason.DYNAMIC_LINKER,
        """_dl_runtime_resolve _dl_runtime_resolve_fxsave _dl_runtime_resolve_xsave _dl_runtime_resolve_xsavec
        _dl_runtime_resolve_opt _dl_runtime_resolve_sse _dl_runtime_resolve_avx _dl_runtime_resolve_avx512
        _dl_runtime_profile _dl_runtime_profile_sse _dl_runtime_profile_avx _dl_runtime_profile_avx512""",
    ),
    # TLS descriptors are called with every register live and from places where the stack need not be aligned.
    # __morestack parses the code behind its return address and runs its caller's caller on another stack. Retpoline
    # thunks are jumped to in the middle of functions, where the word on top of the stack is no return address. Stack
    # probes are called from unfinished prologues. glibc's cancellable system call compares the pc of an interrupted
    # thread with its own bounds, so that not one instruction of it may run elsewhere.
    (
        Reason.OWN_CONVENTION,
        """_dl_tlsdesc_return _dl_tlsdesc_undefweak _dl_tlsdesc_dynamic _dl_tlsdesc_dynamic_fxsave
        _dl_tlsdesc_dynamic_xsave _dl_tlsdesc_dynamic_xsavec __tlsdesc_static __tlsdesc_dynamic
        __morestack __morestack_non_split __morestack_large_model
        __x86_return_thunk __llvm_retpoline_r11 __llvm_lvi_thunk_r11
        __rust_probestack __probestack __syscall_cancel_arch __syscall_cp_asm __syscall_cp_c
        __cp_begin __cp_end __cp_cancel""",
    ),
    # Called by every function that was compiled to do so. mcount and __fentry__ read their own return address to learn
    # who calls, and the frame above it; the others are given both. XRay's are entered by jumps and calls alike.
    (
        Reason.COMPILER_HOOK,
        """mcount _mcount __mcount __fentry__ __return__ __cyg_profile_func_enter __cyg_profile_func_exit
        __xray_FunctionEntry __xray_FunctionExit __xray_FunctionTailExit __xray_ArgLoggerEntry __xray_CustomEvent
        __xray_TypedEvent""",
    ),
    # OCaml's assembly: the collector scans OCaml frames from the return address that these were called with.
    (
        Reason.MANAGED_STACK,
        """caml_call_gc caml_alloc1 caml_alloc2 caml_alloc3 caml_allocN caml_alloc_small_dispatch caml_c_call
        caml_c_call_stack_args caml_raise_exn caml_reraise_exn caml_raise_exception caml_start_program
        caml_callback_asm caml_callback2_asm caml_callback3_asm caml_ml_array_bound_error caml_perform caml_reperform
        caml_resume caml_runstack caml_system__code_begin caml_system__code_end caml_assert_stack_invariants""",
    ),
]

# Names by pattern: a literal beginning (what the sieve looks for), then a regular expression for all of the rest.
_BY_PATTERN: list[tuple[Reason, str, str]] = [
    # Sanitizer runtimes: each interceptor (malloc in libasan is one, by alias) takes the stack of its caller from its
    # own return address and frame, for reports, suppressions and "called from an ignored library" decisions.
    (Reason.LOOKS_AT_RETURN_ADDRESS, "__interceptor_", ".*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "___interceptor_", ".*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "__sanitizer_", ".*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "__asan_", ".*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "__hwasan_", ".*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "__lsan_", ".*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "__msan_", ".*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "__tsan_", ".*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "__ubsan_", ".*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "__memprof_", ".*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "_ZN11__sanitizer", r"\d.*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "_ZN6__asan", r"\d.*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "_ZN6__lsan", r"\d.*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "_ZN6__msan", r"\d.*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "_ZN6__tsan", r"\d.*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "_ZN7__ubsan", r"\d.*"),
    (Reason.LOOKS_AT_RETURN_ADDRESS, "_ZN8__hwasan", r"\d.*"),
    # Retpoline thunks of gcc (one a register) and of the kernel's conventions.
    (Reason.OWN_CONVENTION, "__x86_indirect_", r"(?:call_|jump_)?thunk.*"),
    (Reason.OWN_CONVENTION, "__llvm_external_retpoline_", ".*"),
    # V8's builtins are JavaScript-side code: the collector and the stack walker look up every return address on their
    # frames and end the process at one they do not know; and bytecode handlers are entered by jumps. The C++ functions
    # that builtins call leave their return address where the walk starts (ExitFrame::ComputePCAddress in frames.cc).
    # Those that embedders hand to V8 are found by their parameters (runtimes.py).
    (Reason.MANAGED_STACK, "Builtins_", ".*"),
    (
        Reason.CALLED_BY_RUNTIME,
        "_ZN2v88internal",
        r"L?\d+(?:Builtin_|Runtime_|Stats_Runtime_|Builtin_Impl_|__RT_impl_).*",
    ),
    # OCaml's compiled functions: camlModule__name_123 (4.x) and camlModule.name_123 (5.x).
    (Reason.MANAGED_STACK, "caml", r"[A-Z][\w.]*(?:__|\.)\w+"),
]

_KEY_BYTES = 8


def reason_by_name(name: str) -> Reason:
    """What speaks against hooking a function of this name (as the file spells it); NONE if nothing does."""
    return _reason(name.encode("utf-8", "surrogateescape"))


def special_symbols(
    symbols: SymbolTable, rows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Which of these rows of a symbol table have special names: positions in ``rows``, and the reason for each.

    A sieve on the first eight bytes of the names leaves some hundred of 150,000 to be decoded.
    """
    positions = np.flatnonzero(_sieve(_first_bytes(symbols, rows)))
    names = symbols.raw_names(rows[positions].tolist())
    reasons = np.array([_reason(name) for name in names], np.uint8)
    return positions[reasons != 0], reasons[reasons != 0]


def _reason(raw: bytes) -> Reason:
    exact, pattern, reasons = _tables()
    name = raw.split(b"@", 1)[0] if b"@" in raw else raw
    if name in exact:
        return exact[name]
    matched = pattern.match(name)
    return reasons[matched.lastindex or 0] if matched else Reason.NONE


@cache
def _tables() -> tuple[dict[bytes, Reason], re.Pattern[bytes], list[Reason]]:
    """Reasons by name; all patterns in one, a group each; the reasons by the number of the group."""
    exact = {name.encode(): reason for reason, names in _BY_NAME for name in names.split()}
    groups = "|".join(f"({re.escape(start)}{rest})" for _, start, rest in _BY_PATTERN)
    whole = re.compile(rf"(?:{groups})\Z".encode(), re.DOTALL)
    return exact, whole, [Reason.NONE, *(reason for reason, _, _ in _BY_PATTERN)]


@cache
def _beginnings() -> dict[int, npt.NDArray[np.uint64]]:
    """The beginnings to look for, as little-endian numbers of eight bytes filled up with zeros, by length."""
    beginnings: dict[int, set[int]] = {_KEY_BYTES: set()}
    for name in _tables()[0]:
        # A version may follow the name: ask for no more than the name itself.
        beginnings.setdefault(min(len(name), _KEY_BYTES), set()).add(_number(name))
    for _, start, _ in _BY_PATTERN:
        beginnings.setdefault(min(len(start), _KEY_BYTES), set()).add(_number(start.encode()))
    return {length: np.array(sorted(numbers), np.uint64) for length, numbers in beginnings.items()}


def _number(text: bytes) -> int:
    return int.from_bytes(text[:_KEY_BYTES], "little")


def _first_bytes(symbols: SymbolTable, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """uint64[len(rows)]: the first eight bytes of each name; what lies behind a shorter name is still in it."""
    padded = np.append(symbols.strings, np.zeros(_KEY_BYTES, np.uint8))
    starts = np.minimum(symbols.rows["name"][rows].astype(np.int64), len(symbols.strings))
    windows = np.lib.stride_tricks.sliding_window_view(padded, _KEY_BYTES)
    return np.ascontiguousarray(windows[starts]).view("<u8")[:, 0]


def _sieve(first: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    kept = np.zeros(len(first), np.bool_)
    for length, numbers in _beginnings().items():
        mask = np.uint64((1 << (8 * length)) - 1)
        kept |= np.isin(first & mask, numbers)
    return kept

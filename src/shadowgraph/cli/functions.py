"""`shadowgraph functions PROGRAM`: what can be hooked in a program or library, and why the rest cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from shadowgraph.cli._patterns import patterns_option

if TYPE_CHECKING:
    from shadowgraph.image import FunctionTable, Image
    from shadowgraph.patch import ModulePlan
    from shadowgraph.view.terminal import Output

__all__ = ["command"]


@dataclass(frozen=True, slots=True)
class _Function:
    """A line: ``names`` are all that it goes by, the shown one first; ``reason`` is empty if it is hookable."""

    names: Sequence[str]
    address: int
    size: int
    reason: str


@click.command("functions")
@click.argument("program")
@patterns_option("Only functions that match: a glob, or re: and a regular expression.")
@click.option("--refused", is_flag=True, help="Only functions that cannot be hooked.")
@click.option("--raw-names", is_flag=True, help="Show names as they are in the file, not demangled.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(program: str, *, patterns: Sequence[str], refused: bool, raw_names: bool, as_json: bool) -> None:
    """Show what can be hooked in a program or library, and why the rest cannot.

    PROGRAM is a path, or a name that is found in PATH. A script stands for its interpreter.
    """
    import os

    from shadowgraph.cli._program_file import find_program_file
    from shadowgraph.image import open_image, read_functions
    from shadowgraph.patch import plan_module
    from shadowgraph.view.terminal import Output

    path, notes = find_program_file(program)
    for note in notes:
        click.echo(f"shadowgraph: {note}", err=True)
    image = open_image(path)
    functions = read_functions(image)
    plan = plan_module(image, functions)
    listed = _functions(functions, plan, raw_names=raw_names)
    if patterns:
        listed = _matching(listed, patterns, path)
    output, module = Output(), os.path.basename(path)
    shown = [function for function in listed if function.reason] if refused else listed
    if as_json:
        _write_json(output, module, listed, shown)
    else:
        _write_text(output, module, listed, shown)
        _write_left_out(output, image, functions, plan)
    output.flush()


def _functions(functions: FunctionTable, plan: ModulePlan, *, raw_names: bool) -> list[_Function]:
    """All functions by address; cold parts are none."""
    from shadowgraph.image import SENTENCES, Reason
    from shadowgraph.image.demangle import demangle
    from shadowgraph.ops.readable_forms import readable_forms

    listed = []
    columns = (functions.preferred_names, functions.start.tolist(), functions.size.tolist(), plan.reason.tolist())
    for row, (name, start, size, reason) in enumerate(zip(*columns, strict=True)):
        if reason == Reason.COLD_PART:
            continue
        names = [name, *(other for other in functions.names(row) if other != name)]
        readable = [form for other in demangle(names) for form in readable_forms(other)]
        shown = [*names, *readable] if raw_names else [*readable, *names]
        listed.append(_Function(shown, start, size, SENTENCES[Reason(reason)] if reason else ""))
    return listed


def _matching(listed: list[_Function], patterns: Sequence[str], path: str) -> list[_Function]:
    """Those of which any name matches any pattern; UsageError with the nearest names if there are none."""
    import os

    from shadowgraph.errors import UsageError
    from shadowgraph.ops.selection import function_rule, nearest_names
    from shadowgraph.ops.suggestions import nameless

    rules, module = [function_rule(pattern, include=True) for pattern in patterns], os.path.basename(path)
    here = [rule.function for rule in rules if rule.wants_module(module)]
    if not here:
        named = " or ".join(rule.module_text for rule in rules)
        raise UsageError(f"{path}: functions of {named} are not in this file; name the library's file instead of it")
    found = [function for function in listed if any(matches(name) for matches in here for name in function.names)]
    if not found:
        names = (name for function in listed for name in function.names)
        hint = nearest_names(patterns, names) + nameless(module, [function.names[0] for function in listed])
        raise UsageError(f"{path}: no function matches {' or '.join(patterns)}{hint}")
    return found


def _write_json(output: Output, module: str, listed: list[_Function], shown: list[_Function]) -> None:
    """Counts are those of ``listed``; ``shown`` are written, one a line."""
    from shadowgraph.view.json_text import json_text

    hookable = sum(not function.reason for function in listed)
    output.line(f'{{"total": {len(listed)}, "hookable": {hookable}, "functions": [')
    for number, function in enumerate(shown):
        fields = {
            "function": function.names[0],
            "module": module,
            "address": function.address,
            "size": function.size,
            "hookable": not function.reason,
            "reason": function.reason or None,
        }
        output.line(json_text(fields) + ("," if number + 1 < len(shown) else ""))
    output.line("]}")


def _write_text(output: Output, module: str, listed: list[_Function], shown: list[_Function]) -> None:
    from shadowgraph.view.units import count_of

    digits = max((len(f"{function.address:x}") for function in shown), default=1) + 2
    wide = max((len(str(function.size)) for function in shown), default=1)
    wide = max(wide, len("SIZE"))
    output.line(output.bold(f"{'ADDRESS'.rjust(digits)}  {'SIZE'.rjust(wide)}  FUNCTION"))
    for function in shown:
        line = f"{function.address:#{digits}x}  {function.size:{wide}}  {function.names[0]}"
        output.line(f"{line}  — not hookable: {function.reason}" if function.reason else line)
    total, hookable = len(listed), sum(not function.reason for function in listed)
    share = f" ({_percent(hookable, total)} %)" if total else ""
    output.line()
    output.line(output.bold(f"{module}: {count_of(total, 'function')}, {hookable:,} can be hooked{share}"))
    counts = Counter(function.reason for function in listed if function.reason)
    for reason, count in counts.most_common():
        output.line(f"{count:7,}  cannot: {reason}")


def _percent(part: int, whole: int) -> str:
    """With two decimals, and 100 only for all of it."""
    return "100" if part == whole else f"{min(100 * part / whole, 99.99):.2f}"


def _write_left_out(output: Output, image: Image, functions: FunctionTable, plan: ModulePlan) -> None:
    """What was not counted, and what could not be read."""
    from shadowgraph.image import SENTENCES, Reason

    counts = Counter({Reason(reason): count for reason, count in functions.left_out().items()})
    counts[Reason.COLD_PART] += int((plan.reason == Reason.COLD_PART).sum())
    for reason, count in counts.most_common():
        if count:
            output.line(f"{count:7,}  not counted: {SENTENCES[reason]}")
    for remark in image.elf.remarks:
        output.line(f"{'':7}  {remark}")

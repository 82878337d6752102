"""From what is wanted of a module to what is to be hooked there: numbers, flags, and values to capture."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.hooks import Hooks, Request
from shadowgraph.image import Reason
from shadowgraph.ops.choices import Choice, EnteredProcess
from shadowgraph.ops.function_ids import Numbers
from shadowgraph.ops.refusals import Refusals
from shadowgraph.ops.values import Capture, Signature, native_values, spool_row
from shadowgraph.patch import ModulePlan

__all__ = ["count_hooks", "request_hooks"]


def request_hooks(
    choice: Choice,
    capture: Capture,
    ids: Numbers,
    refused: Refusals,
    known: Mapping[int, int] | None = None,
) -> Request | None:
    """What to hook of one module, with numbers and flags; notes what cannot be. None if nothing is left.

    ``known`` has the numbers of functions that are hooked already, by the address of their jump.
    """
    wanted = np.fromiter(choice.flags, np.int64, len(choice.flags))
    plan = choice.known.plan(wanted)
    possible = plan.hookable[wanted]
    for row, refusal in choice.refused.items():
        refused.add(choice, row, refusal)
    for row in wanted[~possible].tolist():
        reason = Reason(int(plan.reason[row]))
        if not choice.flags[row] & layout.FLAG_SILENT and reason is not Reason.COLD_PART:  # that is no function
            refused.add(choice, row, reason)
    rows = np.sort(plan.with_lenders(wanted[possible]))
    if not len(rows):
        return None
    for row in set(rows.tolist()) - choice.flags.keys():  # lends the place for another one's jump
        choice.flags[row] = layout.FLAG_SILENT
    if known:
        rows = _new_rows(choice, rows, plan, known, ids, refused)
        if capture:
            _capture_present(choice, capture, ids)
    flags = np.array([choice.flags[row] for row in rows.tolist()], np.int64)
    variants = np.array([choice.variants.get(row, 0) for row in rows.tolist()], np.int64)
    if not (flags & layout.FLAG_SILENT).all():
        ids.traced_modules.add(choice.module.path)
    if not len(rows):
        return None
    numbers = _number(choice, rows, ids)
    traced = flags & layout.FLAG_SILENT == 0
    choice.numbers.update(zip(rows[traced].tolist(), numbers[traced].tolist(), strict=True))
    return Request(rows, numbers, flags, variants, _values(choice, rows, numbers, capture, ids) if capture else {})


def _new_rows(
    choice: Choice,
    rows: npt.NDArray[np.int64],
    plan: ModulePlan,
    known: Mapping[int, int],
    ids: Numbers,
    refused: Refusals,
) -> npt.NDArray[np.int64]:
    """The rows that are not hooked yet; notes the numbers of those that are, and what is asked of them besides."""
    bias, path = choice.known.bias(choice.module), choice.module.path
    numbers = [known.get(address + bias, 0) for address in plan.patch_address[rows].tolist()]
    table = choice.known.functions
    names = _names(choice, rows)
    ids.module(path, choice.module.name)
    for row, number in zip(rows.tolist(), numbers, strict=True):
        flags = choice.flags[row]
        if number and not flags & layout.FLAG_SILENT:
            choice.numbers[row] = number
            name = names(row)
            ids.adopt(number, path, int(table.start[row]), name, int(table.size[row]))
        if number:
            choice.present[number] = flags & ~(layout.FLAG_SILENT | layout.FLAG_CALLER)
            if row in choice.variants:
                choice.present_variants[number] = choice.variants[row]
    is_known = np.array(numbers, np.int64) != 0
    # A short function's jump leads through bytes of a longer one, which are written together with that one's jump.
    stuck = ~is_known & np.isin(plan.lender[rows], rows[is_known])
    for row in rows[stuck].tolist():
        refused.add(choice, row, Reason.PLACE_IN_USE)
    new: npt.NDArray[np.int64] = rows[~is_known & ~stuck]
    return new


def _capture_present(choice: Choice, capture: Capture, ids: Numbers) -> None:
    """What to capture of functions that others have hooked."""
    present = sorted((row, number) for row, number in choice.numbers.items() if number in choice.present)
    rows, numbers = (np.array([pair[at] for pair in present], np.int64) for at in (0, 1))
    values = _values(choice, rows, numbers, capture, ids)
    choice.present_values = {int(numbers[index]): items for index, items in values.items()}


def count_hooks(hooks: Hooks, choice: Choice, request: Request, process: EnteredProcess) -> None:
    """Note what has been hooked of a module, and what the running process has refused."""
    for row, reason in hooks.refused.items():
        if not choice.flags[row] & layout.FLAG_SILENT:
            process.refused.add(choice, row, reason)
    traced = ((request.flags & layout.FLAG_SILENT) == 0) & ~np.isin(request.rows, list(hooks.refused))
    process.traced.update(request.ids[traced].tolist())
    process.hooks.append(hooks)


def _number(choice: Choice, rows: npt.NDArray[np.int64], ids: Numbers) -> npt.NDArray[np.int64]:
    """The ids of these rows."""
    table, module = choice.known.functions, choice.module
    ids.module(module.path, module.name)
    names = map(_names(choice, rows), rows.tolist())
    return ids.functions(module.path, table.start[rows].tolist(), list(names), table.size[rows].tolist())


def _names(choice: Choice, rows: npt.NDArray[np.int64]) -> Callable[[int], str]:
    """What to call each of these rows."""
    table, own = choice.known.functions, choice.names
    all_names = table.preferred_names if len(rows) > len(table) // 4 else None
    return lambda row: own.get(row) or (all_names[row] if all_names is not None else table.name(row))


def _values(
    choice: Choice, rows: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], capture: Capture, ids: Numbers
) -> dict[int, bytes]:
    """What to capture of the calls of each row, by its index among the rows."""
    found: dict[int, bytes] = {}
    from_source = _debug_signatures(choice, rows) if capture.automatic else {}
    for index, row in enumerate(rows.tolist()):
        if choice.flags[row] & layout.FLAG_SILENT:
            continue
        names = choice.known.names(row) if capture.rules else []
        if row in choice.names:
            names = [choice.names[row], *names]
        signature = capture.signature(choice.module.name, names) or from_source.get(index)
        if signature is not None:
            found[index] = native_values(signature)
            ids.new_values.append(spool_row(ids.in_trace(int(numbers[index])), signature))
    return found


def _debug_signatures(choice: Choice, rows: npt.NDArray[np.int64]) -> dict[int, Signature]:
    """Signatures from debug information, by index among the rows."""
    from shadowgraph.image.signatures import has_source_signature
    from shadowgraph.ops.debug_values import from_debug_information

    table, functions = choice.known.signatures, choice.known.functions
    found = {}
    for index, source in enumerate(table.find(functions.start[rows])):
        signature = from_debug_information(source) if source is not None else None
        if signature is not None and has_source_signature(functions.name(int(rows[index]))):
            found[index] = signature
    return found

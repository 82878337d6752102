"""Types as debug information describes them, turned into :class:`ValueType`."""

from __future__ import annotations

from dataclasses import replace

from shadowgraph.image.dwarf_codes import At, Tag
from shadowgraph.image.libdw import (
    Die,
    children,
    entry_attribute,
    has_attribute,
    name_of,
    number_attribute,
    size_of,
    tag_of,
)
from shadowgraph.image.value_types import PassedAs, ValueKind, ValueType, merged

__all__ = ["VOID", "TypeReader"]

_QUALIFIERS: dict[int, str] = {
    Tag.CONST: "const",
    Tag.VOLATILE: "volatile",
    Tag.RESTRICT: "restrict",
    Tag.ATOMIC: "_Atomic",
}
_ADDRESSES: dict[int, str] = {Tag.POINTER: "*", Tag.REFERENCE: "&", Tag.RVALUE_REFERENCE: "&&"}
_BLOCKS = (Tag.STRUCTURE, Tag.CLASS, Tag.UNION)
_ENCODINGS = {
    0x02: ValueKind.BOOL,
    0x04: ValueKind.FLOAT,
    0x05: ValueKind.SIGNED,
    0x06: ValueKind.CHARACTER,
    0x07: ValueKind.UNSIGNED,
    0x08: ValueKind.UNSIGNED,
    0x10: ValueKind.CHARACTER,
}
DW_ATE_COMPLEX_FLOAT, DW_CC_PASS_BY_REFERENCE = 0x03, 0x04
DEEPEST = 32
LARGEST_IN_REGISTERS = 16
_INTEGER, _SSE = (PassedAs.INTEGER,), (PassedAs.SSE,)
VOID = ValueType(ValueKind.VOID, "void", 0, ())


class TypeReader:
    """Reads types and remembers them: programs use few, often."""

    def __init__(self) -> None:
        self._known: dict[int, ValueType] = {}

    def of(self, die: Die, attribute: int = At.TYPE) -> ValueType:
        """The type that an entry refers to; VOID where it refers to none."""
        target = entry_attribute(die, attribute)
        return self.read(target) if target is not None else VOID

    def read(self, die: Die, depth: int = 0) -> ValueType:
        """The type that an entry is."""
        key = int(die.addr or 0)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._read(die, depth)
        return found

    def _read(self, die: Die, depth: int) -> ValueType:
        tag, name = tag_of(die), name_of(die)
        if depth > DEEPEST:
            return ValueType(ValueKind.UNKNOWN, name, 0, ())
        if tag == Tag.BASE:
            return _base_type(die, name)
        if tag == Tag.TYPEDEF:
            return replace(self._target(die, depth), name=name)
        if tag in _QUALIFIERS:
            inner = self._target(die, depth)
            is_address = inner.kind in (ValueKind.POINTER, ValueKind.STRING)
            return inner if is_address else replace(inner, name=f"{_QUALIFIERS[tag]} {inner.name}")
        if tag in _ADDRESSES:
            return self._address(die, _ADDRESSES[tag], depth)
        if tag == Tag.ENUM:
            return _enum_type(die, name)
        if tag in _BLOCKS:
            return self._block(die, name, depth)
        if tag == Tag.ARRAY:
            return self._array(die, depth)
        if tag == Tag.POINTER_TO_MEMBER:
            size = size_of(die) or 16
            return ValueType(ValueKind.UNKNOWN, name or "pointer to member", size, _INTEGER * (size // 8))
        if tag == Tag.UNSPECIFIED:  # decltype(nullptr)
            return ValueType(ValueKind.POINTER, name, 8, _INTEGER)
        return ValueType(ValueKind.UNKNOWN, name, size_of(die), ())

    def _target(self, die: Die, depth: int) -> ValueType:
        target = entry_attribute(die, At.TYPE)
        return self.read(target, depth + 1) if target is not None else VOID

    def _address(self, die: Die, sign: str, depth: int) -> ValueType:
        """A pointer or reference. What it points to is looked at for its name only, and not further down."""
        target = entry_attribute(die, At.TYPE)
        name, is_text = ("void", False) if target is None else _pointed(target, depth)
        kind = ValueKind.STRING if is_text and sign == "*" else ValueKind.POINTER
        return ValueType(kind, f"{name} {sign}" if name[-1:] not in "*&" else f"{name}{sign}", 8, _INTEGER)

    def _array(self, die: Die, depth: int) -> ValueType:
        """An array within a struct, or a vector (``__m256``), which travels whole in one register."""
        element, size = self._target(die, depth), size_of(die)
        name = f"{element.name} [{size // element.size if element.size else 0}]"
        if has_attribute(die, At.GNU_VECTOR):
            passed = (PassedAs.SSE, *[PassedAs.SSEUP] * (size // 8 - 1)) if size >= 8 else _SSE
            return ValueType(ValueKind.BLOCK, name, size, passed, size)
        return ValueType(ValueKind.BLOCK, name, size, self._classes(die, size, depth), element.alignment)

    def _block(self, die: Die, name: str, depth: int) -> ValueType:
        size, shown = size_of(die), name or "struct"
        if has_attribute(die, At.DECLARATION):
            # Compilers describe a class in one object file alone (gcc: where its vtable is) and name it in the others.
            return ValueType(ValueKind.UNKNOWN, shown, 0, ())
        if self._is_passed_by_reference(die, depth):
            return ValueType(ValueKind.BLOCK, shown, size, _INTEGER, by_reference=True)
        return ValueType(ValueKind.BLOCK, shown, size, self._classes(die, size, depth), self._alignment(die, depth))

    def _alignment(self, die: Die, depth: int) -> int:
        """What the source says, else the largest alignment of any field; 1 where a field is packed."""
        said, largest = number_attribute(die, At.ALIGNMENT), 1
        for child in children(die) if depth < DEEPEST else ():
            target = entry_attribute(child, At.TYPE) if tag_of(child) in (Tag.MEMBER, Tag.INHERITANCE) else None
            if target is None or has_attribute(child, At.EXTERNAL):
                continue
            alignment = self.read(target, depth + 1).alignment
            if (number_attribute(child, At.DATA_MEMBER_LOCATION) or 0) % max(alignment, 1):
                return said or 1
            largest = max(largest, alignment)
        return said or largest

    def _is_passed_by_reference(self, die: Die, depth: int) -> bool:
        """Whether C++ passes the class by invisible reference: it cannot be copied or destroyed bit by bit.

        clang says it (DW_AT_calling_convention). gcc does not; there it shows in a destructor or copy constructor of
        the author's own, in virtual functions, or in a base or member of this kind (Itanium C++ ABI, 3.1.2.3).
        """
        convention = number_attribute(die, At.CALLING_CONVENTION)
        if convention is not None:
            return convention == DW_CC_PASS_BY_REFERENCE
        for child in children(die):
            tag = tag_of(child)
            if tag == Tag.MEMBER and name_of(child).startswith("_vptr"):
                return True
            if tag == Tag.SUBPROGRAM and _is_authors_own(child) and _copies_or_destroys(child, die):
                return True
            if tag in (Tag.MEMBER, Tag.INHERITANCE) and not has_attribute(child, At.EXTERNAL):
                target = entry_attribute(child, At.TYPE)
                if target is not None and self.read(_without_names(target), depth + 1).by_reference:
                    return True
        return False

    def _classes(self, die: Die, size: int, depth: int) -> tuple[PassedAs, ...]:
        """The class of each eight bytes of a struct, union or array (System V ABI, AMD64 supplement, 3.2.3)."""
        if size == 0:
            return ()
        if size > LARGEST_IN_REGISTERS:
            return self._large(die, size, depth)
        classes = [PassedAs.NOTHING] * ((size + 7) // 8)
        if not self._merge(die, 0, classes, depth) or PassedAs.MEMORY in classes:
            return (PassedAs.MEMORY,)
        return tuple(classes)

    def _large(self, die: Die, size: int, depth: int) -> tuple[PassedAs, ...]:
        """More than sixteen bytes go to memory, unless all of it is a single vector."""
        members = [child for child in children(die) if tag_of(child) == Tag.MEMBER]
        if len(members) == 1 and size in (32, 64):
            inner = self._target(members[0], depth)
            if inner.size == size and inner.passed[1:2] == (PassedAs.SSEUP,):
                return inner.passed
        return (PassedAs.MEMORY,)

    def _merge(self, die: Die, base: int, classes: list[PassedAs], depth: int) -> bool:
        """Merge the classes of all fields of the type at byte ``base``; False if a field lies across its alignment."""
        if tag_of(die) == Tag.ARRAY:
            element = entry_attribute(die, At.TYPE)
            inner = self._target(die, depth)
            count = size_of(die) // inner.size if inner.size else 0
            return element is None or all(
                self._merge_field(element, base + i * inner.size, classes, depth) for i in range(count)
            )
        for child in children(die):
            if tag_of(child) not in (Tag.MEMBER, Tag.INHERITANCE):
                continue
            if has_attribute(child, At.EXTERNAL):  # a static member
                continue
            target = entry_attribute(child, At.TYPE)
            if target is None or not self._merge_member(child, target, base, classes, depth):
                return False
        return True

    def _merge_member(self, child: Die, target: Die, base: int, classes: list[PassedAs], depth: int) -> bool:
        bits = number_attribute(child, At.BIT_SIZE)
        if bits is None:
            offset = number_attribute(child, At.DATA_MEMBER_LOCATION) or 0
            return self._merge_field(target, base + offset, classes, depth)
        first = base * 8 + (number_attribute(child, At.DATA_BIT_OFFSET) or 0)
        first += 8 * (number_attribute(child, At.DATA_MEMBER_LOCATION) or 0)
        for place in {first // 64, (first + max(bits, 1) - 1) // 64}:
            if place < len(classes):
                classes[place] = merged(classes[place], PassedAs.INTEGER)
        return True

    def _merge_field(self, target: Die, offset: int, classes: list[PassedAs], depth: int) -> bool:
        plain = _without_names(target)
        kind = self.read(plain, depth + 1)
        if kind.size == 0:
            return True
        if tag_of(plain) in (*_BLOCKS, Tag.ARRAY) and PassedAs.SSEUP not in kind.passed:
            return depth < DEEPEST and not kind.by_reference and self._merge(plain, offset, classes, depth + 1)
        if not kind.passed or offset % max(kind.alignment, 1):
            return False
        for i, passed in enumerate(kind.passed):
            place = offset // 8 + i
            if place >= len(classes):
                return False
            classes[place] = merged(classes[place], passed)
        return True


def _is_authors_own(member: Die) -> bool:
    return not has_attribute(member, At.ARTIFICIAL) and not has_attribute(member, At.DEFAULTED)


def _copies_or_destroys(member: Die, owner: Die) -> bool:
    """Whether a member function is the destructor, or a constructor from another object of the class."""
    name = name_of(member)
    if name.startswith("~"):
        return True
    if name != name_of(owner).split("<", 1)[0]:
        return False
    parameters = [child for child in children(member) if tag_of(child) == Tag.FORMAL_PARAMETER]
    if len(parameters) != 2:
        return False
    reference = entry_attribute(parameters[1], At.TYPE)
    if reference is None or tag_of(reference) not in (Tag.REFERENCE, Tag.RVALUE_REFERENCE):
        return False
    target = entry_attribute(reference, At.TYPE)
    return target is not None and _without_names(target).addr == owner.addr


def _base_type(die: Die, name: str) -> ValueType:
    size, encoding = size_of(die), number_attribute(die, At.ENCODING) or 0
    if encoding == DW_ATE_COMPLEX_FLOAT:
        passed = {8: _SSE, 16: _SSE * 2}.get(size, (PassedAs.X87,) * (size // 8))
        return ValueType(ValueKind.BLOCK, name, size, passed, size // 2)
    kind = _ENCODINGS.get(encoding, ValueKind.UNKNOWN)
    if kind == ValueKind.FLOAT:
        is_x87 = size == 16 and "128" not in name
        passed = (PassedAs.X87, PassedAs.X87) if is_x87 else (PassedAs.SSE, PassedAs.SSEUP)[: (size + 7) // 8]
        return ValueType(kind, name, size, passed, size)
    return ValueType(kind, name, size, _INTEGER * ((size + 7) // 8), size)


def _enum_type(die: Die, name: str) -> ValueType:
    names: dict[int, str] = {}
    for child in children(die):
        value = number_attribute(child, At.CONST_VALUE)
        if tag_of(child) == Tag.ENUMERATOR and value is not None:
            names.setdefault(value, name_of(child))
    size = size_of(die)
    return ValueType(ValueKind.ENUM, name or "enum", size, _INTEGER, size, enumerators=names)


def _pointed(die: Die, depth: int) -> tuple[str, bool]:
    """The name of a type that is pointed to, and whether it is char."""
    tag, name = tag_of(die), name_of(die)
    if tag in _QUALIFIERS or tag in _ADDRESSES:
        target = entry_attribute(die, At.TYPE)
        inner, is_text = ("void", False) if target is None or depth > DEEPEST else _pointed(target, depth + 1)
        if tag in _ADDRESSES:
            return f"{inner} {_ADDRESSES[tag]}" if inner[-1:] not in "*&" else f"{inner}{_ADDRESSES[tag]}", False
        return f"{_QUALIFIERS[tag]} {inner}", is_text
    is_char = tag == Tag.BASE and name == "char" and size_of(die) == 1
    return name or ("function" if tag not in _BLOCKS else "struct"), is_char


def _without_names(die: Die) -> Die:
    """The type behind typedefs and qualifiers."""
    for _ in range(DEEPEST):
        if tag_of(die) != Tag.TYPEDEF and tag_of(die) not in _QUALIFIERS:
            return die
        target = entry_attribute(die, At.TYPE)
        if target is None:
            return die
        die = target
    return die

"""The numbers of DWARF 5, section 7.5, that are used here."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["At", "Tag"]


class Tag(IntEnum):
    """DW_TAG_…: what an entry describes."""

    ARRAY = 0x01
    CLASS = 0x02
    ENUM = 0x04
    FORMAL_PARAMETER = 0x05
    MEMBER = 0x0D
    POINTER = 0x0F
    REFERENCE = 0x10
    STRUCTURE = 0x13
    TYPEDEF = 0x16
    UNION = 0x17
    UNSPECIFIED_PARAMETERS = 0x18
    INHERITANCE = 0x1C
    POINTER_TO_MEMBER = 0x1F
    BASE = 0x24
    CONST = 0x26
    ENUMERATOR = 0x28
    SUBPROGRAM = 0x2E
    VOLATILE = 0x35
    RESTRICT = 0x37
    UNSPECIFIED = 0x3B
    RVALUE_REFERENCE = 0x42
    ATOMIC = 0x47


class At(IntEnum):
    """DW_AT_…: what an attribute says. GNU_VECTOR is an extension of the vendor range."""

    BIT_SIZE = 0x0D
    CONST_VALUE = 0x1C
    ARTIFICIAL = 0x34
    CALLING_CONVENTION = 0x36
    DATA_MEMBER_LOCATION = 0x38
    DECLARATION = 0x3C
    ENCODING = 0x3E
    EXTERNAL = 0x3F
    TYPE = 0x49
    DATA_BIT_OFFSET = 0x6B
    ALIGNMENT = 0x88
    DEFAULTED = 0x8B
    GNU_VECTOR = 0x2107

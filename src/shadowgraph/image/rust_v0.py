"""Rust's newer mangling (v0), as RFC 2603 and the rustc book's chapter "Symbol Mangling" define it.

Printed in the short form: without the hashes of crates and without the types of constants.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["demangle_rust_v0"]

DEEPEST = 200
LONGEST_OUTPUT = 1 << 16

_BASIC = {
    "a": "i8",
    "b": "bool",
    "c": "char",
    "d": "f64",
    "e": "str",
    "f": "f32",
    "h": "u8",
    "i": "isize",
    "j": "usize",
    "l": "i32",
    "m": "u32",
    "n": "i128",
    "o": "u128",
    "p": "_",
    "s": "i16",
    "t": "u16",
    "u": "()",
    "v": "...",
    "x": "i64",
    "y": "u64",
    "z": "!",
}
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def demangle_rust_v0(name: str) -> str:
    """The readable path of a ``_R…`` name; "" if it is damaged or of a later version."""
    if not name.startswith("_R") or name[2:3].isdigit() or not name.isascii():
        return ""
    body = name[2:].split(".", 1)[0].split("$", 1)[0]
    try:
        return _Demangler(body).symbol()
    except (_NotUnderstood, IndexError, ValueError, OverflowError):
        return ""


class _NotUnderstood(Exception):
    pass


class _Demangler:
    """A recursive-descent reader that prints as it goes; ``lifetimes`` counts those bound around the current place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.lifetimes = 0
        self.printed = 0

    def symbol(self) -> str:
        path = self.path(in_value=True)
        if self.at < len(self.text):
            self.path(in_value=False)  # the crate that the function was instantiated in
        if self.at < len(self.text):
            raise _NotUnderstood
        return path

    # --- characters and numbers ---

    def take(self) -> str:
        letter = self.text[self.at]
        self.at += 1
        return letter

    def eat(self, letter: str) -> bool:
        if self.text[self.at : self.at + 1] != letter:
            return False
        self.at += 1
        return True

    def base62(self) -> int:
        """A number in base 62: "_" is 0, and digits stand for their value plus one."""
        value = 0
        if self.eat("_"):
            return 0
        while not self.eat("_"):
            value = value * 62 + _DIGITS.index(self.take())
            if value >= 1 << 64:
                raise _NotUnderstood
        return value + 1

    def optional_base62(self, letter: str) -> int:
        """0 without the letter, else one more than the number behind it."""
        return self.base62() + 1 if self.eat(letter) else 0

    def decimal(self) -> int:
        """A length. None begins with 0 but 0 itself: in ``00`` there are two empty names."""
        if self.eat("0"):
            return 0
        start = self.at
        while self.text[self.at : self.at + 1].isdigit():
            self.at += 1
        if not 0 < self.at - start <= 6:
            raise _NotUnderstood
        return int(self.text[start : self.at])

    def identifier(self) -> tuple[str, int]:
        """A name and its disambiguator."""
        disambiguator = self.optional_base62("s")
        encoded = self.eat("u")
        size = self.decimal()
        self.eat("_")
        raw = self.text[self.at : self.at + size]
        if len(raw) != size:
            raise _NotUnderstood
        self.at += size
        return (_from_punycode(raw) if encoded else raw), disambiguator

    # --- nesting and references back ---

    def nested(self, what: Callable[[], str]) -> str:
        """What ``what`` prints, unless it is too deep or too long to be a name that a compiler made."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise _NotUnderstood
        text = what()
        self.depth -= 1
        self.printed += len(text)
        if self.printed > LONGEST_OUTPUT * 16 or len(text) > LONGEST_OUTPUT:
            raise _NotUnderstood
        return text

    def back_reference(self, what: Callable[[], str]) -> str:
        """Print again what stands at an earlier place."""
        here = self.at - 1
        target = self.base62()
        if target >= here:
            raise _NotUnderstood
        back, self.at = self.at, target
        text = what()
        self.at = back
        return text

    def until_end(self, what: Callable[[], str]) -> list[str]:
        """Repeat up to the closing E."""
        items = []
        while not self.eat("E"):
            items.append(what())
        return items

    # --- paths ---

    def path(self, in_value: bool) -> str:
        return self.nested(lambda: self._path(in_value))

    def _path(self, in_value: bool) -> str:
        kind = self.take()
        if kind == "C":
            return self.identifier()[0]
        if kind == "N":
            return self._nested_path(in_value)
        if kind in "MXY":
            return self._implementation(kind)
        if kind == "I":
            base = self.path(in_value)
            arguments = ", ".join(self.until_end(self.generic_argument))
            return f"{base}::<{arguments}>" if in_value else f"{base}<{arguments}>"
        if kind == "B":
            return self.back_reference(lambda: self.path(in_value))
        raise _NotUnderstood

    def _nested_path(self, in_value: bool) -> str:
        namespace = self.take()
        base = self.path(in_value)
        name, disambiguator = self.identifier()
        if not namespace.isalpha():
            raise _NotUnderstood
        if namespace.islower():
            return f"{base}::{name}" if name else base
        special = {"C": "closure", "S": "shim"}.get(namespace, namespace)
        return f"{base}::{{{special}:{name}#{disambiguator}}}" if name else f"{base}::{{{special}#{disambiguator}}}"

    def _implementation(self, kind: str) -> str:
        """<Type>, or <Type as Trait>; the path of the impl block itself (kinds M and X) is not shown."""
        if kind != "Y":
            self.optional_base62("s")
            self.path(in_value=False)
        subject = self.type()
        if kind == "M":
            return f"<{subject}>"
        return f"<{subject} as {self.path(in_value=False)}>"

    def generic_argument(self) -> str:
        if self.eat("L"):
            return self.lifetime(self.base62())
        return self.constant() if self.eat("K") else self.type()

    # --- lifetimes ---

    def lifetime(self, index: int) -> str:
        """Index 0 is erased; others count from the innermost binder outwards."""
        if index == 0:
            return "'_"
        depth = self.lifetimes - index
        if depth < 0:
            raise _NotUnderstood
        return f"'{chr(ord('a') + depth)}" if depth < 26 else f"'_{depth}"

    def bound(self, what: Callable[[], str]) -> str:
        """``for<'a, …>`` in front of what stands within a binder."""
        count = self.optional_base62("G")
        if count > 1000:
            raise _NotUnderstood
        outside = self.lifetimes
        self.lifetimes += count
        names = [self.lifetime(count - i) for i in range(count)]
        text = what()
        self.lifetimes = outside
        return f"for<{', '.join(names)}> {text}" if names else text

    # --- types ---

    def type(self) -> str:
        return self.nested(self._type)

    def _type(self) -> str:
        kind = self.take()
        if kind in _BASIC:
            return _BASIC[kind]
        if kind in "RQ":
            lifetime = self.base62() if self.eat("L") else 0
            shown = f"{self.lifetime(lifetime)} " if lifetime else ""
            return f"&{shown}{'mut ' if kind == 'Q' else ''}{self.type()}"
        if kind in "PO":
            return f"*{'const' if kind == 'P' else 'mut'} {self.type()}"
        if kind == "A":
            return f"[{self.type()}; {self.constant()}]"
        if kind == "S":
            return f"[{self.type()}]"
        if kind == "T":
            items = self.until_end(self.type)
            return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
        if kind == "F":
            return self.bound(self._function)
        if kind == "D":
            return self._dynamic()
        if kind == "B":
            return self.back_reference(self.type)
        self.at -= 1
        return self.path(in_value=False)

    def _function(self) -> str:
        prefix = "unsafe " if self.eat("U") else ""
        if self.eat("K"):
            abi = "C" if self.eat("C") else self.identifier()[0].replace("_", "-")
            prefix += f'extern "{abi}" '
        parameters = ", ".join(self.until_end(self.type))
        result = self.type()
        return f"{prefix}fn({parameters})" + (f" -> {result}" if result != "()" else "")

    def _dynamic(self) -> str:
        bounds = self.bound(lambda: " + ".join(self.until_end(self._trait)))
        if not self.eat("L"):
            raise _NotUnderstood
        lifetime = self.base62()
        return f"dyn {bounds}" + (f" + {self.lifetime(lifetime)}" if lifetime else "")

    def _trait(self) -> str:
        """A trait with its associated types, which join the generic arguments in one pair of brackets."""
        path = self.path(in_value=False)
        bindings = []
        while self.eat("p"):
            name = self.identifier()[0]
            bindings.append(f"{name} = {self.type()}")
        if not bindings:
            return path
        return f"{path[:-1]}, {', '.join(bindings)}>" if path.endswith(">") else f"{path}<{', '.join(bindings)}>"

    # --- constants ---

    def constant(self) -> str:
        return self.nested(self._constant)

    def _constant(self) -> str:
        kind = self.take()
        if kind == "B":
            return self.back_reference(self.constant)
        if kind == "p":
            return "_"
        if kind in "hmjyot":
            return str(self.hexadecimal())
        if kind in "alsxni":
            sign = "-" if self.eat("n") else ""
            return f"{sign}{self.hexadecimal()}"
        if kind == "b":
            return {0: "false", 1: "true"}[self.hexadecimal()]
        if kind == "c":
            return _quoted(chr(self.hexadecimal()), "'")
        return "{" + self._composite(kind) + "}" if kind in "eRQATV" else self._no_constant()

    def _composite(self, kind: str) -> str:
        """Constants that are not plain numbers, an addition to v0 (adt_const_params)."""
        if kind == "e":
            return "*" + self._string()
        if kind in "RQ":
            if kind == "R" and self.eat("e"):
                return self._string()
            return ("&mut " if kind == "Q" else "&") + self._bare_constant()
        if kind == "A":
            return f"[{', '.join(self.until_end(self._bare_constant))}]"
        if kind == "T":
            items = self.until_end(self._bare_constant)
            return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
        return self._variant()

    def _variant(self) -> str:
        path, shape = self.path(in_value=True), self.take()
        if shape == "U":
            return path
        if shape == "T":
            return f"{path}({', '.join(self.until_end(self._bare_constant))})"
        if shape == "S":
            fields = self.until_end(lambda: f"{self.identifier()[0]}: {self._bare_constant()}")
            return f"{path} {{ {', '.join(fields)} }}"
        raise _NotUnderstood

    def _bare_constant(self) -> str:
        """A constant within another: braces stand around the outermost only."""
        text = self.constant()
        return text[1:-1] if text.startswith("{") else text

    def _string(self) -> str:
        digits = self._digits()
        return _quoted(bytes.fromhex(digits).decode("utf-8"), '"')

    def _no_constant(self) -> str:
        raise _NotUnderstood

    def hexadecimal(self) -> int:
        digits = self._digits()
        if len(digits) > 32:
            raise _NotUnderstood
        return int(digits or "0", 16)

    def _digits(self) -> str:
        end = self.text.index("_", self.at)
        digits = self.text[self.at : end]
        if any(digit not in "0123456789abcdef" for digit in digits):
            raise _NotUnderstood
        self.at = end + 1
        return digits


def _quoted(text: str, quote: str) -> str:
    escaped = "".join(
        {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", quote: "\\" + quote}.get(letter)
        or (letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}")
        for letter in text
    )
    return f"{quote}{escaped}{quote}"


def _from_punycode(raw: str) -> str:
    """RFC 3492 with "_" in the place of the last "-"."""
    plain, _, coded = raw.rpartition("_")
    return (f"{plain}-{coded}" if plain else coded).encode("ascii").decode("punycode")

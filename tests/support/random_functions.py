"""C functions that a seed makes up: every kind of statement, calls among themselves, nothing undefined or endless.

Each is ``u64 fN(u64 a, u64 b, u64 *data, u64 *more)``; later ones call earlier ones.
"""

from __future__ import annotations

import random

__all__ = ["random_functions"]

_HEAD = """
typedef unsigned long u64;
typedef long s64;
#define FUNCTION __attribute__((noinline, noclone, visibility("default")))
static u64 counter;
static u64 table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
static const unsigned char letters[64] = "the quick brown fox jumps over the lazy dog and runs away again";
"""


def random_functions(seed: int, count: int) -> str:
    """The source of ``count`` functions, f0 to f(count − 1)."""
    maker = _Maker(random.Random(seed))
    return _HEAD + "\n".join(maker.function(number) for number in range(count))


class _Maker:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.number = 0
        self.loops = 0

    def function(self, number: int) -> str:
        self.number, self.loops = number, 0
        shape = self.chance.random()
        head = f"FUNCTION u64 f{number}(u64 a, u64 b, u64 *data, u64 *more)\n{{\n"
        if shape < 0.1:
            return head + f"  (void)a; (void)b; (void)data; (void)more; return {self._simple()};\n}}"
        if shape < 0.2:
            return head + f"  {self._short_loop()}\n}}"
        if shape < 0.3 and number:
            return head + f"  if ({self._expression(1)} & 1) return {self._call()};\n  return {self._call()};\n}}"
        body = "".join(self._statement(2) for _ in range(self.chance.randrange(1, 6)))
        return head + f"  u64 x = {self._expression(1)}, y = b; (void)more;\n{body}  return x ^ y ^ a;\n}}"

    def _simple(self) -> str:
        return self.chance.choice(["0", "a", "1", "a + b", "*data", "(u64)&counter * 0 + 7", "counter", "b ? a : 5"])

    def _short_loop(self) -> str:
        """What an optimiser turns into a loop whose head is the function's first instruction, or near it."""
        return self.chance.choice(
            [
                "u64 n = 0; while (letters[a & 63] > n) { n += 9; a++; } (void)b; (void)data; (void)more; return n;",
                "do { b += a; a >>= 1; } while (a); (void)data; (void)more; return b;",
                "const unsigned char *p = (const unsigned char *)data; while (*p & b) p++; (void)a; (void)more;"
                " return (u64)(p - (const unsigned char *)data);",
                "while (a & 0xff) { *data += b; a--; } (void)more; return *data;",
            ]
        )

    def _call(self) -> str:
        callee = self.chance.randrange(self.number)
        return f"f{callee}({self._expression(0)}, {self._expression(0)}, data, more)"

    def _statement(self, depth: int) -> str:
        kind = self.chance.randrange(10)
        if kind == 0 and depth:
            return f"  if ({self._expression(1)} < {self._expression(1)}) {{ {self._statement(depth - 1)} }}\n"
        if kind == 1 and depth:
            self.loops += 1
            index = f"i{self.loops}"
            bound = f"({self._expression(0)} & 7)"
            return f"  for (u64 {index} = 0; {index} < {bound}; {index}++) {{ {self._statement(depth - 1)} }}\n"
        if kind == 2 and depth:
            cases = "".join(f" case {n}: {self._statement(0)} break;" for n in range(self.chance.randrange(3, 9)))
            return f"  switch ({self._expression(0)} & 15) {{{cases} default: x++; }}\n"
        if kind == 3:
            return f"  data[{self._expression(0)} & 511] += {self._expression(1)};\n"
        if kind == 4:
            return f"  counter += {self._expression(0)}; table[x & 15] ^= y;\n"
        if kind == 5:
            return f"  x += (u64)(s64)((double)({self._expression(0)} & 0xffff) * 1.5);\n"
        if kind == 6 and self.number:
            return f"  y += {self._call()};\n"
        if kind == 7:
            return f"  if ({self._expression(0)} & 64) return x;\n"
        return f"  {self.chance.choice('xy')} = {self._expression(2)};\n"

    def _expression(self, depth: int) -> str:
        if not depth or self.chance.random() < 0.2:
            leaves = ["a", "b", "data[a & 511]", "more[b & 63]", "letters[b & 63]", "table[a & 15]", "counter"]
            return self.chance.choice([*leaves, str(self.chance.getrandbits(31)), str(self.chance.randrange(16))])
        left, right = self._expression(depth - 1), self._expression(depth - 1)
        form = self.chance.choice(["+", "-", "*", "^", "&", "|", "<<", ">>", "/", "<", "?"])
        if form in ("<<", ">>"):
            return f"(({left}) {form} (({right}) & 31))"
        if form == "/":
            return f"(({left}) / ((({right}) & 255) + 1))"
        if form == "?":
            return f"(({left}) & 8 ? ({right}) : a)"
        return f"(u64)(({left}) {form} ({right}))"

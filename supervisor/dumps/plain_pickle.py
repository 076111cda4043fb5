"""Pickles of plain data, read by an interpreter of our own that cannot do anything else.

A pickle is a program. The usual defence, an Unpickler whose `find_class` refuses, still runs everything but the imports: one
opcode with a large memo index makes the C implementation allocate gigabytes. A dump needs none of that: numbers, texts,
lists, tuples and dicts. So this reads the opcodes for these alone, and every other one ends the reading: there is no code path
from a file to an import or a call. Sizes are checked against what the file holds before anything is allocated, and the number of
objects is bounded. Lists may share parts, so a small file can stand for an exponentially large value: whoever walks
the result must take what it needs and no more (flight.py does).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from unknot.supervisor.dumps.errors import DumpError

OBJECTS = 20_000_000
_INT_BYTES = 16
_LINE = 64


class _Mark:
    """Where a run of items begins on the stack."""


_MARK = _Mark()


def load(data: bytes) -> Any:
    """The value of a pickle of plain data. Raises DumpError for anything else."""
    return _Reader(data).read()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self) -> Any:
        steps, data, end = _STEPS, self._data, len(self._data)
        for _ in range(OBJECTS):
            if self._at >= end:
                self._bytes(1)
            code = data[self._at]
            self._at += 1
            if code == _STOP:
                return self._pop()
            step = steps.get(code)
            if step is None:
                raise DumpError(what=f"opcode {code:#04x} at byte {self._at - 1}", expected="a pickle of plain data")
            step(self)
        raise DumpError(what=f"more than {OBJECTS} objects", expected="a dump of a flight recorder")

    # --- bytes ---

    def _bytes(self, n: int) -> bytes:
        piece = self._data[self._at : self._at + n]
        if len(piece) < n:
            raise DumpError(what=f"the file ends at byte {len(self._data)}", expected="a whole pickle")
        self._at += n
        return piece

    def _number(self, n: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._bytes(n), "little", signed=signed)

    def _line(self) -> bytes:
        end = self._data.find(b"\n", self._at, self._at + _LINE)
        if end < 0:
            raise DumpError(what=f"a number without an end at byte {self._at}", expected="a line")
        line = self._data[self._at : end]
        self._at = end + 1
        return line

    # --- stack ---

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise DumpError(what=f"nothing to take at byte {self._at}", expected="a pickle of plain data")
        return self._stack.pop()

    def _top(self, kind: type) -> Any:
        if not self._stack or type(self._stack[-1]) is not kind:
            raise DumpError(what=f"no {kind.__name__} to add to at byte {self._at}", expected="a pickle of plain data")
        return self._stack[-1]

    def _items(self) -> list[Any]:
        """What lies above the last mark."""
        found: list[Any] = []
        while self._stack:
            one = self._stack.pop()
            if one is _MARK:
                return found[::-1]
            found.append(one)
        raise DumpError(what=f"no mark at byte {self._at}", expected="a pickle of plain data")

    def push(self, value: Any) -> None:
        self._stack.append(value)

    # --- what opcodes do ---

    def skip(self, n: int) -> None:
        self._bytes(n)

    def drop(self) -> None:
        self._pop()

    def dup(self) -> None:
        self._stack.append(self._pop())
        self._stack.append(self._stack[-1])

    def integer(self, n: int) -> None:
        self.push(self._number(n, signed=n == 4))

    def long(self, size: int) -> None:
        n = self._number(size)
        if n > _INT_BYTES:
            raise DumpError(what=f"a number of {n} bytes", expected=f"at most {_INT_BYTES}")
        self.push(self._number(n, signed=True))

    def text_number(self, make: Callable[[bytes], Any]) -> None:
        line = self._line()
        try:
            self.push({b"00": False, b"01": True}[line] if line in (b"00", b"01") else make(line.rstrip(b"L")))
        except ValueError as error:
            raise DumpError(what=f"the number {line!r}", expected="digits") from error

    def real(self) -> None:
        self.push(struct.unpack(">d", self._bytes(8))[0])

    def text(self, size: int) -> None:
        self.push(self._bytes(self._number(size)).decode("utf-8", "replace"))

    def raw(self, size: int) -> None:
        self.push(self._bytes(self._number(size)))

    def many(self, make: Callable[[list[Any]], Any]) -> None:
        self.push(make(self._items()))

    def few(self, n: int) -> None:
        items = [self._pop() for _ in range(n)]
        self.push(tuple(items[::-1]))

    def append(self) -> None:
        item = self._pop()
        self._top(list).append(item)

    def appends(self) -> None:
        items = self._items()
        self._top(list).extend(items)

    def set_item(self) -> None:
        value, key = self._pop(), self._pop()
        _set(self._top(dict), [key, value])

    def set_items(self) -> None:
        items = self._items()
        _set(self._top(dict), items)

    def put_short(self) -> None:
        """The most frequent one."""
        if not self._stack or self._stack[-1] is _MARK or self._at >= len(self._data):
            return self.put(self._number(1))
        self._memo[self._data[self._at]] = self._stack[-1]
        self._at += 1
        return None

    def put(self, index: int) -> None:
        if not self._stack or self._stack[-1] is _MARK:
            raise DumpError(what=f"nothing to remember at byte {self._at}", expected="a pickle of plain data")
        self._memo[index] = self._stack[-1]

    def get(self, index: int) -> None:
        if index not in self._memo:
            raise DumpError(what=f"entry {index} of the memo", expected="one that was stored")
        self.push(self._memo[index])

    def line_number(self) -> int:
        line = self._line()
        if not line.isdigit():
            raise DumpError(what=f"the index {line!r}", expected="digits")
        return int(line)

    def number(self, n: int) -> int:
        return self._number(n)

    def memoize(self) -> None:
        self.put(len(self._memo))


def _set(into: dict[Any, Any], items: list[Any]) -> None:
    if len(items) % 2:
        raise DumpError(what="a key without a value", expected="pairs")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, str | int):
            raise DumpError(what=f"a key of type {type(key).__name__}", expected="a text or number")
        into[key] = value


def _dict(items: list[Any]) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    _set(made, items)
    return made


_STOP = ord(".")
_STEPS: dict[int, Callable[[_Reader], None]] = {
    0x80: lambda r: r.skip(1), 0x95: lambda r: r.skip(8), ord("("): lambda r: r.push(_MARK),
    ord("0"): _Reader.drop, ord("2"): _Reader.dup,
    ord("N"): lambda r: r.push(None), 0x88: lambda r: r.push(value=True), 0x89: lambda r: r.push(value=False),
    ord("J"): lambda r: r.integer(4), ord("K"): lambda r: r.integer(1), ord("M"): lambda r: r.integer(2),
    0x8A: lambda r: r.long(1), 0x8B: lambda r: r.long(4),
    ord("I"): lambda r: r.text_number(int), ord("L"): lambda r: r.text_number(int),
    ord("F"): lambda r: r.text_number(float), ord("G"): _Reader.real,
    ord("X"): lambda r: r.text(4), 0x8C: lambda r: r.text(1), 0x8D: lambda r: r.text(8),
    ord("T"): lambda r: r.text(4), ord("U"): lambda r: r.text(1),
    ord("B"): lambda r: r.raw(4), ord("C"): lambda r: r.raw(1), 0x8E: lambda r: r.raw(8),
    ord("]"): lambda r: r.push([]), ord("}"): lambda r: r.push({}), ord(")"): lambda r: r.push(()),
    ord("l"): lambda r: r.many(list), ord("t"): lambda r: r.many(tuple), ord("d"): lambda r: r.many(_dict),
    0x85: lambda r: r.few(1), 0x86: lambda r: r.few(2), 0x87: lambda r: r.few(3),
    ord("a"): _Reader.append, ord("e"): _Reader.appends, ord("s"): _Reader.set_item, ord("u"): _Reader.set_items,
    ord("p"): lambda r: r.put(r.line_number()), ord("q"): _Reader.put_short,
    ord("r"): lambda r: r.put(r.number(4)), 0x94: _Reader.memoize,
    ord("g"): lambda r: r.get(r.line_number()), ord("h"): lambda r: r.get(r.number(1)), ord("j"): lambda r: r.get(r.number(4)),
}  # fmt: skip

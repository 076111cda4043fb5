"""The base of all errors of the package, and the errors of reading traces."""

from __future__ import annotations

from typing import Any


class UnknotError(Exception):
    """Base of every error that Unknot raises.

    A subclass takes its facts as keyword arguments, keeps them as attributes, and builds its own message in
    `describe`; so every message says what, why and what to do, and the error crosses process borders whole.
    """

    def __init__(self, **facts: Any) -> None:
        self.__dict__.update(facts)
        super().__init__(self.describe())

    def describe(self) -> str:
        """The message: what happened, why, and what to do."""
        return type(self).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {key: value for key, value in self.__dict__.items() if not key.startswith("__")}
        return _rebuild, (type(self), facts)


def _rebuild(cls: type[UnknotError], facts: dict[str, Any]) -> UnknotError:
    return cls(**facts)


class TraceError(UnknotError):
    """An event that cannot be: what is wrong, and what was expected."""

    what: str
    expected: str
    line: int | None

    def __init__(self, *, what: str, expected: str, line: int | None = None) -> None:
        super().__init__(what=what, expected=expected, line=line)

    def describe(self) -> str:
        """What is wrong and what was expected, with the line where there is one."""
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.what}; expected {self.expected}"

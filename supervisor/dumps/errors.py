"""What is wrong with a dump."""

from __future__ import annotations

from unknot.graph.errors import UnknotError


class DumpError(UnknotError):
    """A dump that cannot be read: what is wrong, and what was expected."""

    what: str
    expected: str

    def __init__(self, *, what: str, expected: str) -> None:
        super().__init__(what=what, expected=expected)

    def describe(self) -> str:
        """What is wrong and what was expected."""
        return f"{self.what}; expected {self.expected}"

"""The exit codes of the command: one meaning each, the same in every sub-command."""

from __future__ import annotations

from types import MappingProxyType

OK = 0
FOUND = 1
USAGE = 2
UNREACHABLE = 3
INCOMPLETE = 4
FAILED = 5
INTERRUPTED = 130

SENTENCES = MappingProxyType(
    {
        OK: "healthy, or done as asked",
        FOUND: "what was asked about is there: an open deadlock or other proven standstill, a failed member, damage",
        USAGE: "an option, argument, setting or input file cannot be used",
        UNREACHABLE: "no live run is found, or Redis cannot be reached, refuses, or did not answer in time",
        INCOMPLETE: "the data is incomplete, or was written by an incompatible version",
        FAILED: "the action was refused or failed, or the output could not be written",
        INTERRUPTED: "interrupted from the keyboard",
    }
)

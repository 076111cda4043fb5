"""The command, in this process."""

from tests.trace.conftest import supervisor as supervisor

"""The lead among a run's monitors."""

from __future__ import annotations

import os
import secrets
import socket

from unknot.recovery.answers import ask
from unknot.recovery.ports import Store

DEFAULT_LEASE_S = 3.0


class Lease:
    """One monitor's claim on the lead; ask for it well within `lease_s` seconds, again and again.

    Attributes: `holder` (pid@host and a random part), `token` (the fencing token while leading, else None).
    """

    def __init__(self, store: Store, *, holder: str | None = None, lease_s: float = DEFAULT_LEASE_S) -> None:
        self._store = store
        self.holder = holder or f"{os.getpid()}@{socket.gethostname()}:{secrets.token_hex(4)}"
        self.lease_s = lease_s
        self.token: int | None = None

    def acquire(self) -> int | None:
        """Take or renew the lead: the token, which grows with every change of hands; None while another leads.

        Raises:
            StoreUnavailable: Redis cannot be asked; whoever leads must not act until it can.
        """
        answer = ask(self._store, "leader", self.holder, self.lease_s, "acquire")
        self.token = answer.number() if answer.word == "ok" else None
        return self.token

    def release(self) -> None:
        """Give the lead up, so that another monitor need not wait for the lease to end. Idempotent."""
        ask(self._store, "leader", self.holder, self.lease_s, "release")
        self.token = None

    def __repr__(self) -> str:
        state = "not leading" if self.token is None else f"leading with token {self.token}"
        return f"<Lease {self.holder}, {state}>"

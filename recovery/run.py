"""A driver's claim on a run: one driver at a time, found dead by its lease, or at once by whoever can see that its process is gone."""

from __future__ import annotations

import os
import secrets
import socket

from unknot.recovery.answers import Answer, ask
from unknot.recovery.errors import LeaseLost, RunBusy
from unknot.recovery.ports import Store
from unknot.recovery.process_identity import is_gone, this_process

DEFAULT_LEASE_S = 5.0


class RunClaim:
    """A driver's hold on its run; renew it well within `lease_s` seconds.

    Attributes: `driver` (pid@host), `lease_s`, `how` (`new`, or `continued` after a driver that died).
    """

    def __init__(self, store: Store, *, token: str, driver: str, lease_s: float) -> None:
        self._store = store
        self._token = token
        self.driver = driver
        self.lease_s = lease_s
        self.how = ""
        self._identity = this_process()

    @classmethod
    def take(cls, store: Store, *, lease_s: float = DEFAULT_LEASE_S, driver: str | None = None) -> RunClaim:
        """Take the run. One that was closed begins anew; one whose driver died goes on, with members that register anew.

        A driver that died on this host is seen to be gone; one elsewhere is believed dead once its lease has passed.

        Args:
            store: of the run.
            lease_s: seconds without renewal after which another driver may take it.
            driver: how to name this driver to others; None: pid@host.

        Raises:
            RunBusy: another live driver has it.
        """
        name = driver or f"{os.getpid()}@{socket.gethostname()}"
        claim = cls(store, token=secrets.token_hex(8), driver=name, lease_s=lease_s)
        answer = claim._ask("take")
        if answer.word == "busy" and is_gone(answer.text(2)):
            answer = claim._ask("take", gone=answer.text(1))
        if answer.word == "busy":
            raise RunBusy(run=store.run, driver=answer.text())
        claim.how = "new" if answer.text() == "renewed" else answer.text()
        return claim

    def renew(self) -> None:
        """Go on holding the run. LeaseLost when another driver has taken it, or it was closed."""
        answer = self._ask("renew")
        if answer.word == "busy":
            raise LeaseLost(what=f"run {self._store.run}", holder=answer.text())

    def _ask(self, mode: str, *, gone: str = "") -> Answer:
        return ask(self._store, "claim_run", self._token, self.driver, self.lease_s, mode, self._identity, gone)

    def closing(self) -> int:
        """Begin to end the run: members' waits end with RunClosed. How many waits were ended at once."""
        return self._close("closing")

    def close(self) -> int:
        """End the run; nothing when another driver has taken it. How many waits were ended at once."""
        return self._close("closed")

    def _close(self, state: str) -> int:
        answer = ask(self._store, "close_run", self._token, state)
        return answer.number() if answer.word == "ok" else 0

    def __repr__(self) -> str:
        return f"<RunClaim {self._store.run} by {self.driver}>"


def run_state(store: Store) -> str:
    """`live`, `closing`, `closed`, or '' when no driver ever claimed the run."""
    state = store.command("HGET", store.key("run"), "state")
    return state.decode() if state else ""

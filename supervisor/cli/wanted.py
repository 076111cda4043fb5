"""What the common options ask for, as a value."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for. `limit_s`: seconds before Redis counts as not reachable."""

    redis: str | None = None
    run: str | None = None
    config_file: Path | None = None
    limit_s: float = 5.0

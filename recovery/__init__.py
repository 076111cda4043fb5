"""Fencing, locks, mailboxes, published weights and group generations."""

if not __name__.startswith("unknot."):
    raise ImportError("import unknot.recovery")

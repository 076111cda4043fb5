"""Alerts: what is sent, how it is signed and retried, and the outbox that survives a crash."""

"""The command `supervisor`."""

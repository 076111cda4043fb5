"""The monitor: a pure decision core, and the shell that feeds it and carries out what it decides."""

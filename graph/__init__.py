"""The wait-for graph: pure values in, verdicts out; no I/O, no clock, no threads."""

if not __name__.startswith("unknot."):
    raise ImportError("import unknot.graph")

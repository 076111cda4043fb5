"""The in-process recorder, the store, the monitor, incidents, alerts and the command line."""

if not __name__.startswith("unknot."):
    raise ImportError("import unknot.supervisor")

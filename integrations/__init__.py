"""Ray, torch and threading: where Unknot meets what the user's process already uses."""

if not __name__.startswith("unknot."):
    raise ImportError("import unknot.integrations")

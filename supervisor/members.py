"""Words that the driver, the ranks and the monitor agree on."""

# What a wait for a process that Ray still starts is called: slow at most, never an outside service.
STARTING = "start of "

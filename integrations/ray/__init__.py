"""Ray: the driver's run, the decorators, and the loop that enters a member's code."""

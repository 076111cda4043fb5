"""torch.distributed: groups that can be broken and re-formed, and what the flight recorder sees."""

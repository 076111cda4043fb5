"""Redis: where it is, an embedded server, the store over it, and the durable records of the supervisor."""

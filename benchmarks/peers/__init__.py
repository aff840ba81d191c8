"""Other queues on PostgreSQL, each drained on the same server in the same run, from an environment of its own."""

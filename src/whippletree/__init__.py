"""Messages and events on PostgreSQL alone: in order, nothing lost, worked by any number of instances."""

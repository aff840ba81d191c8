"""How fast we are, measured beside what the same server can do at all."""

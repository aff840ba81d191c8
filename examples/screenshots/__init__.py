"""The pictures of the documents: a shop with troubles, and what the operator's commands show of it."""

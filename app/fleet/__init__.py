"""Several processes that act as one server: what administrators decided, and who is there."""

"""The audit record: who called what, what was decided and what became of it, in chained lines."""

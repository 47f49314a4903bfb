"""Runs tools: the one path of a call, whichever door it came through."""

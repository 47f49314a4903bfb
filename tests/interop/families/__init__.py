"""Clients of every family, each in an environment of its own: one program that drives each."""

"""Clients that others wrote, against a server process."""

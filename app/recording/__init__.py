"""Calls that are kept, masked and encrypted, and run again."""

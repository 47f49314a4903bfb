"""The guards by themselves, as tables and properties."""

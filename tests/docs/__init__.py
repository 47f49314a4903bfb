"""Tests that hold the documentation true."""

"""Tests of the example tools: their functions, and each of them as served."""

"""Black-box tests: lines in, lines out, against a server process."""

"""Black-box tests: bytes in, bytes out, against a server process."""

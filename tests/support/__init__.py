"""What the tests share: a server process, a raw HTTP client, schema validation."""

"""``python -m app``: the same as ``mcp-tool-server``."""

from app.cli import main

if __name__ == "__main__":
    main()

"""Cuts what comes in into lines, however it was written. Sans-I/O."""

Line = bytes | None
"""A line without its newline; None: it was too long, and is gone."""


class Lines:
    """The lines of one stream of bytes.

    Args:
        max_bytes: Of a line. What a longer one has beyond that is skipped, never held.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._skips = False

    def feed(self, data: bytes) -> list[Line]:
        """The lines that these bytes complete, and word of a line that has become too long."""
        found: list[Line] = []
        *complete, rest = data.split(b"\n")
        for piece in complete:
            self._add(piece, found)
            if not self._skips:
                found.append(bytes(self._held))
            self._held.clear()
            self._skips = False
        self._add(rest, found)
        return found

    def end(self) -> list[Line]:
        """What stands behind the last newline. A client that ends may leave that one out."""
        rest: list[Line] = [bytes(self._held)] if self._held else []
        self._held.clear()
        return rest

    def _add(self, piece: bytes, found: list[Line]) -> None:
        if self._skips:
            return
        if len(self._held) + len(piece) > self._max_bytes:
            self._skips = True
            self._held.clear()
            found.append(None)
        else:
            self._held += piece

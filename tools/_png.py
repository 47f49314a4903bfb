"""A small canvas that can be saved as a PNG: a helper module, not a tool.

Source: Portable Network Graphics (Third Edition), W3C. One byte per pixel, an index into a
palette of up to 256 colours.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import Final

Colour = tuple[int, int, int]

FONT: Final = {
    "0": "75557",
    "1": "26227",
    "2": "71747",
    "3": "71717",
    "4": "55711",
    "5": "74717",
    "6": "74757",
    "7": "71111",
    "8": "75757",
    "9": "75717",
    "-": "00700",
    "+": "02720",
    ".": "00002",
    "e": "74747",
}
"""Three by five pixels a character. Each digit is a row from the top, its three bits the pixels."""

GLYPH_WIDTH: Final = 3
GLYPH_HEIGHT: Final = 5


class Canvas:
    """Pixels of palette colours, all of the first colour at the start. The origin is top left."""

    def __init__(self, width: int, height: int, palette: Sequence[Colour]) -> None:
        self.width = width
        self.height = height
        self._palette = palette
        self._rows = [bytearray(width) for _ in range(height)]

    def rectangle(self, x: int, y: int, width: int, height: int, colour: int) -> None:
        """Fill a rectangle; what lies outside the canvas is left out."""
        left, right = max(x, 0), min(x + width, self.width)
        if left < right:
            for row in self._rows[max(y, 0) : max(y + height, 0)]:
                row[left:right] = bytes([colour]) * (right - left)

    def text(self, x: int, y: int, text: str, colour: int, *, scale: int = 2) -> None:
        """Write characters of `FONT`."""
        for position, character in enumerate(text):
            start = x + position * (GLYPH_WIDTH + 1) * scale
            for row, bits in enumerate(FONT[character]):
                for column in range(GLYPH_WIDTH):
                    if int(bits) >> (GLYPH_WIDTH - 1 - column) & 1:
                        self.rectangle(
                            start + column * scale, y + row * scale, scale, scale, colour
                        )

    def png(self) -> bytes:
        """The canvas as a PNG file."""
        depth, indexed = 8, 3
        header = struct.pack(">IIBBBBB", self.width, self.height, depth, indexed, 0, 0, 0)
        palette = b"".join(bytes(colour) for colour in self._palette)
        # Each row begins with its filter type: 0, none.
        pixels = b"".join(b"\0" + row for row in self._rows)
        return (
            b"\x89PNG\r\n\x1a\n"
            + _chunk(b"IHDR", header)
            + _chunk(b"PLTE", palette)
            + _chunk(b"IDAT", zlib.compress(pixels, 9))
            + _chunk(b"IEND", b"")
        )


def text_width(text: str, *, scale: int = 2) -> int:
    """Pixels that `Canvas.text` takes for a text."""
    return max(0, len(text) * (GLYPH_WIDTH + 1) - 1) * scale


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

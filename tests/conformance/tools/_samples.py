"""The smallest valid media: what the suite looks at is their shape, not their beauty."""

import io
import struct
import wave
import zlib


def _chunk(kind: bytes, data: bytes) -> bytes:
    """One PNG chunk: length, kind, data, checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def red_pixel() -> bytes:
    """A PNG of one red pixel: 8 bits a channel, RGB, no filter."""
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    row = b"\x00\xff\x00\x00"
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(row)),
            _chunk(b"IEND", b""),
        )
    )


def silence() -> bytes:
    """A WAV file with ten milliseconds of silence: one channel, 16 bits, 8 kHz."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(160))
    return buffer.getvalue()

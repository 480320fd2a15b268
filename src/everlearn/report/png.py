"""Images as PNG, in a page, without a library."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np


def png(image: np.ndarray) -> bytes:
    """An image, uint8 [C, H, W], grey (1 channel) or RGB (3)."""
    channels, height, width = image.shape
    kind = {1: 0, 3: 2}[channels]
    rows = np.ascontiguousarray(np.moveaxis(image, 0, -1)).reshape(height, -1)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)  # each begins with its filter: none
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def uri(image: np.ndarray) -> str:
    """The image itself where an address is expected."""
    return f"data:image/png;base64,{base64.b64encode(png(image)).decode()}"

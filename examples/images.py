"""Image processing: what is no image fails at once, and is put back after the fix."""

import struct
import zlib
from pathlib import Path

from yaoki import RetryPolicy, Yaoki

app = Yaoki("sqlite:///example-images.db")

FOLDER = Path("example-images")
PNG = b"\x89PNG\r\n\x1a\n"


class NotAnImage(Exception):
    """No number of attempts will change that."""


@app.job("thumbnail", retry=RetryPolicy(max_attempts=5, give_up_on=NotAnImage), timeout=60)
def thumbnail(file: str, width: int = 16) -> dict[str, int]:
    content = (FOLDER / file).read_bytes()
    if not content.startswith(PNG):
        raise NotAnImage(f"{file} begins with {content[:8]!r}")
    # Your image library goes here. To run twice must do no harm: it writes the same file again.
    (FOLDER / f"{width}-{file}").write_bytes(grey_png(width, width))
    return {"width": width, "height": width}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "cat.png").write_bytes(grey_png(64, 64))
    (FOLDER / "dog.png").write_bytes(b"<html>404 not found")

    cat, dog = thumbnail.enqueue_many([{"file": "cat.png"}, {"file": "dog.png"}])
    app.run_worker(until_empty=True)
    print(f"cat: {app.get(cat).status}, {app.get(cat).result}")
    print(f"dog: {app.get(dog).status}, after attempt {app.get(dog).attempt}: {app.get(dog).error}")

    (FOLDER / "dog.png").write_bytes(grey_png(64, 64))  # somebody uploads the right file
    app.retry(dog)
    app.run_worker(until_empty=True)
    print(f"dog: {app.get(dog).status}; its history has {len(app.get(dog).errors)} error")


def grey_png(width: int, height: int) -> bytes:
    """A real PNG, without a library: a grey square."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress((b"\0" + b"\x80" * width) * height)
    return PNG + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


if __name__ == "__main__":
    main()

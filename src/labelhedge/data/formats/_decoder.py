"""Decodes JPEG and PNG images out of a zip file or a folder; also a program, of which several run at a time.

    python _decoder.py SOURCE WIDTH HEIGHT OUT OFFSET < names

Several threads are slower than one, for they share the interpreter's lock. The program imports nothing of the package,
so that it starts in a tenth of a second; and it is a file of its own rather than ``multiprocessing``, which would run
the script of a user who has no ``if __name__ == "__main__"`` once more in every process.

It writes the pixels of the named images to OUT one after the other from OFFSET on and prints how many after every few.
If something is wrong, its last line is "errno message" and its exit code 1.
"""

import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = 16 << 20  # bytes of a file
EVERY = 500  # images


def open_source(source: Path) -> Callable[[str], bytes]:
    """A function that reads a file of a zip file or of a folder by its path within."""
    if source.is_dir():
        return lambda name: (source / name).read_bytes()
    archive = zipfile.ZipFile(source)

    def read(name: str) -> bytes:
        try:
            member = archive.getinfo(name)
        except KeyError:
            raise ValueError(f"there is no {name}") from None
        if member.file_size > LIMIT:
            raise ValueError(f"{name} has {member.file_size:,} bytes, too many")
        return archive.read(member)

    return read


def decode(pillow: Any, data: bytes, size: tuple[int, int] | None) -> tuple[bytes, tuple[int, int]]:
    """The pixels of a JPEG or PNG file, red, green and blue, row by row, and its width and height.

    Where no size is expected, a photograph that says how the camera was held is turned upright.
    """
    try:
        image = pillow.open(io.BytesIO(data), formats=("JPEG", "PNG"))
    except pillow.UnidentifiedImageError:
        raise ValueError("it is neither a JPEG nor a PNG file") from None
    with image:
        if size is not None and image.size != size:
            raise ValueError(f"it has {image.size[0]} × {image.size[1]} pixels, expected {size[0]} × {size[1]}")
        if image.format == "PNG":
            with pillow.open(io.BytesIO(data), formats=("PNG",)) as same:
                same.verify()  # decoding looks neither at the checksums of a PNG file nor for its end
        if size is None:
            import PIL.ImageOps

            PIL.ImageOps.exif_transpose(image, in_place=True)
        return in_colour(pillow, image).tobytes(), image.size


def in_colour(pillow: Any, image: Any) -> Any:
    """An image in red, green and blue; what is transparent is white, as on a page."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I"):  # grey of 16 bits, which Pillow would cut off at 255
        image = image.convert("I").point(lambda value: value / 256).convert("L")
        image.info.clear()
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = pillow.alpha_composite(pillow.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def main(source: str, width: str, height: str, out: str, offset: str) -> None:
    """Decode the images that are named on stdin."""
    import PIL.Image

    name = source
    names = sys.stdin.read().splitlines()
    try:
        read = open_source(Path(source))
        with open(out, "r+b") as file:
            file.seek(int(offset))
            for number, name in enumerate(names, 1):
                file.write(decode(PIL.Image, read(name), (int(width), int(height)))[0])
                if number % EVERY == 0:
                    print(EVERY, flush=True)
    except Exception as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        print(getattr(error, "errno", None) or 0, f"{name}: {reason}")
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])

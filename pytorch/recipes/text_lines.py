# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false
"""Text lines as a camera or a scanner shows them: words of documentation, drawn by PIL in fonts of Debian packages.

Each is turned a little, has its own size, colours, blur, noise and loss of detail, and becomes 48 pixels high, as the
recogniser of PP-OCR reads it: values from -1 to 1, zeros right of shorter lines.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from ...models.recognizer import HEIGHT
from ...models.sentences.sources import fetch, paragraphs

FONTS: Final = ("fonts-liberation", "fonts-freefont-ttf", "fonts-open-sans", "fonts-lato")
HELD_OUT_FONTS: Final = (
    *("fonts-roboto-unhinted", "fonts-crosextra-carlito", "fonts-crosextra-caladea", "fonts-inconsolata"),
)
TEXTS: Final = ("debian-policy", "developers-reference", "git-doc", "debian-faq")
HELD_OUT_TEXTS: Final = ("fortunes", "python3.11-doc")
MOST_CHARACTERS: Final = 24
MOST_TEXTS: Final = 400_000
"""Characters of a package that are looked at."""

_ILLEGIBLE = re.compile("Thin|Hairline|Black|LinLibertine_(DR|I|M)|BoldOblique$")


class Lines(NamedTuple):
    """Text lines [lines, 3, HEIGHT, width], what is written, and how wide each is."""

    images: NDArray[np.float32]
    texts: list[str]
    widths: NDArray[np.int64]


def drawn_lines(folder: Path, count: int, characters: str, seed: int, *, held_out: bool) -> Lines:
    """Draw lines of the fonts and texts to train on, or of those held out; packages are fetched to a folder."""
    fonts, texts = (HELD_OUT_FONTS, HELD_OUT_TEXTS) if held_out else (FONTS, TEXTS)
    fetch((*fonts, *texts), folder)
    faces = sorted(
        path for font in fonts for path in (folder / font).rglob("*.[ot]tf") if not _ILLEGIBLE.search(path.stem)
    )
    rng = np.random.default_rng(seed)
    pieces = list(_pieces(texts, folder, set(characters)))
    chosen = [pieces[index] for index in rng.permutation(len(pieces))[:count]]
    drawn = [_drawn(text, faces[int(rng.integers(len(faces)))], rng) for text in chosen]
    widths = np.array([one.shape[1] for one in drawn])
    images = np.zeros((count, 3, HEIGHT, int(widths.max())), np.float32)
    for image, pixels in zip(images, drawn, strict=True):
        image[:, :, : pixels.shape[1]] = pixels.transpose(2, 0, 1) / np.float32(127.5) - 1
    return Lines(images, chosen, widths)


def batches_of(lines: Lines, size: int, seed: int) -> Iterator[tuple[NDArray[np.float32], list[str]]]:
    """Yield batches of lines of about one width, in another order for each seed."""
    rng = np.random.default_rng(seed)
    order = np.argsort(lines.widths + rng.uniform(0, 20, len(lines.widths)), kind="stable")
    parts = [order[at : at + size] for at in range(0, len(order), size)]
    for index in rng.permutation(len(parts)):
        part = parts[index]
        # widths are multiples of what the network divides them by
        width = min(-(-int(lines.widths[part].max()) // 8) * 8, lines.images.shape[-1])
        yield lines.images[part][..., :width], [lines.texts[one] for one in part]


def _pieces(packages: Sequence[str], folder: Path, characters: set[str]) -> Iterator[str]:
    """Yield one to four words that follow each other."""
    for package in packages:
        looked_at = 0
        for paragraph in paragraphs(package, folder):
            looked_at += len(paragraph)
            if looked_at > MOST_TEXTS:
                break
            words = [one for one in paragraph.split() if len(one) <= MOST_CHARACTERS and set(one) <= characters]
            while words:
                count = min(1 + len(words) % 4, len(words))
                piece = " ".join(words[:count])
                words = words[count:]
                if len(piece) <= MOST_CHARACTERS and any(map(str.isalnum, piece)):
                    yield piece


def _drawn(text: str, face: Path, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return pixels [HEIGHT, width, 3]."""
    font = ImageFont.truetype(str(face), int(rng.integers(28, 44)))
    left, top, right, bottom = font.getbbox(text)
    margins = rng.integers(2, 8, 4)
    size = (int(right - left + margins[:2].sum()), int(bottom - top + margins[2:].sum()))
    paper, ink = rng.uniform(120, 255, 3), rng.uniform(0, 90, 3)
    if rng.random() < 0.3:
        paper, ink = ink, paper
    image = Image.new("RGB", size, tuple(int(one) for one in paper))
    place = (int(margins[0] - left), int(margins[2] - top))
    ImageDraw.Draw(image).text(place, text, tuple(int(one) for one in ink), font)
    fill = tuple(int(one) for one in paper)
    image = image.rotate(float(rng.uniform(-2, 2)), Image.Resampling.BICUBIC, expand=len(text) < 12, fillcolor=fill)
    # what is far away has few pixels
    far = float(rng.uniform(0.4, 1.0))
    image = image.resize((max(4, int(far * image.width)), max(4, int(far * image.height))), Image.Resampling.BILINEAR)
    image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 0.7))))
    noisy = np.asarray(image, np.float32) + rng.normal(0, rng.uniform(0, 12), (image.height, image.width, 3))
    image = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
    stored = io.BytesIO()
    image.save(stored, "JPEG", quality=int(rng.integers(25, 90)))
    image = Image.open(stored)
    width = max(HEIGHT // 2, round(image.width * HEIGHT / image.height))
    return np.asarray(image.resize((width, HEIGHT), Image.Resampling.BILINEAR))

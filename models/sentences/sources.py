"""Texts of Debian packages, as paragraphs: training and held-out texts of the sentence encoders.

`fetch` downloads the packages with apt-get and unpacks them, without installing any.
"""

from __future__ import annotations

import gzip
import html
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TRAINING: Final = (
    *("dict-gcide", "dict-foldoc", "dict-jargon", "dict-devil", "postgresql-doc-15", "debian-policy"),
    *("developers-reference", "perl-doc", "debian-handbook", "git-doc", "debian-faq"),
    *("debian-reference-en", "aptitude-doc-en", "linux-doc-6.1", "gnome-user-docs", "libreoffice-help-en-us"),
    *("harden-doc", "octave-doc", "gnucash-docs", "r-doc-html", "manpages", "manpages-dev"),
)
"""Packages whose texts are trained on."""

HELD_OUT: Final = ("fortunes", "fortunes-min", "python3.11-doc", "wordnet-base")
"""Packages of other sources, whose texts are only measured with."""

MANUALS: Final = (
    *("a2ps", "alsa-utils", "argyll", "aspell", "autoconf", "automake", "bc", "bind9-dnsutils", "binutils-common"),
    *("biosquid", "bison", "bsdextrautils", "bsdutils", "bzip2", "cdrdao", "cmake", "coreutils", "cups-client"),
    *("curl", "cvs", "darcs", "dc", "dcmtk", "debhelper", "devscripts", "diffutils", "dpkg", "dpkg-dev", "emboss"),
    *("enscript", "exiv2", "ffmpeg", "findutils", "flac", "flex", "fluidsynth", "fossil", "gawk", "gdal-bin"),
    *("genisoimage", "gettext", "ghostscript", "gnupg-utils", "gpg", "graphviz", "grep", "groff-base", "gzip"),
    *("hdf5-tools", "hmmer", "hunspell", "icu-devtools", "imagemagick-6.q16", "inn2", "ispell", "jack-tools"),
    *("lame", "ldap-utils", "less", "libimage-exiftool-perl", "libtiff-tools", "libtool-bin", "lilypond", "m4"),
    *("mailutils", "man-db", "mercurial-common", "moreutils", "mpg123", "mrtrix3", "mtools", "netpbm", "nmh"),
    *("openssh-client", "plotutils", "poppler-utils", "procps", "psmisc", "psutils", "pulseaudio-utils", "rcs"),
    *("rsync", "samba-common-bin", "samtools", "screen", "sed", "sharutils", "sleuthkit", "slurm-client", "sox"),
    *("subversion", "systemd", "tar", "texlive-binaries", "timidity", "tmux", "units", "unzip", "util-linux"),
    *("vim-common", "vorbis-tools", "w3m", "wget", "wireshark-common", "wodim", "x11-apps", "x11-utils"),
    *("x11-xserver-utils", "xscreensaver", "xz-utils", "zip"),
)
"""Packages whose manual pages of section 1 are a test of retrieval."""

MOST_OF: Final = {"linux-doc-6.1": 110_000}
"""Sentences of one package at most, where it would outweigh the others."""

_BLOCK = re.compile(r"</?(?:p|li|dd|dt|div|td|th|tr|h\d|ul|ol|table|section|title|note|item|br)\b[^>]*>", re.IGNORECASE)
_HIDDEN = re.compile(r"<(script|style|head|pre|screen|code-block|nav)\b.*?</\1>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_MACRO = re.compile(r"^[.'](?:\\\"|[A-Za-z]{0,2}\s?)")


def fetch(packages: tuple[str, ...], folder: Path) -> None:
    """Download and unpack packages into one folder each; those already there stay."""
    for package in packages:
        target = folder / package
        if target.exists():
            continue
        (folder / "archives").mkdir(parents=True, exist_ok=True)
        archives = sorted((folder / "archives").glob(f"{package}_*.deb"))
        if not archives:
            subprocess.run(["apt-get", "-qq", "download", package], cwd=folder / "archives", check=True)
            archives = sorted((folder / "archives").glob(f"{package}_*.deb"))
        part = target.with_suffix(".part")
        subprocess.run(["dpkg", "-x", archives[-1], part], check=True)
        part.rename(target)


def documents(package: str, folder: Path) -> Iterator[list[str]]:
    """Files of a package as paragraphs, each a single line; files in the order of their names."""
    for path in sorted((folder / package).rglob("*")):
        if path.is_symlink() or not path.is_file() or not _is_read(path):
            continue
        text = read(path)
        name = path.name.removesuffix(".gz")
        if name.endswith((".html", ".page", ".xml")):
            pieces = _of_markup(text)
        elif path.name.endswith(".dz"):
            pieces = _of_dictionary(text)
        elif "/man/" in path.as_posix():
            pieces = [body for _, body in manual_sections(text)]
        elif name.endswith(".pod"):
            pieces = [re.sub(r"[A-Z]<+ ?([^<>]*?) ?>+", r"\1", p) for p in text.split("\n\n") if p[:1] not in "= \t"]
        else:
            pieces = text.split("\n\n")
        yield [line for piece in pieces if (line := " ".join(piece.split()))]


def paragraphs(package: str, folder: Path) -> Iterator[str]:
    """Paragraphs of all of a package's texts as single lines."""
    for document in documents(package, folder):
        yield from document


def read(path: Path) -> str:
    """A text file, compressed or not."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return data.decode("utf-8", errors="replace")


def _is_read(path: Path) -> bool:
    """Whether a file holds English prose."""
    where, name = path.as_posix(), path.name.removesuffix(".gz")
    if re.search(r"/(_sources|_static|translations|Documentation|fr|de|es|ja|zh_CN|pt_BR|it|ru|pt)/", where):
        return False
    if "/help/" in where and "/help/C/" not in where and "libreoffice" not in where:
        return False
    if "handbook" in where and "/en-US/" not in where:
        return False
    if "/man/" in where and not re.search(r"/man/man[2-8]/", where):
        return False
    return path.name.endswith(".dz") or name.endswith((".html", ".page", ".xml", ".pod")) or "/man/" in where


def _of_markup(text: str) -> list[str]:
    text = _BLOCK.sub("\n\n", _HIDDEN.sub(" ", text))
    return html.unescape(_TAG.sub("", text)).split("\n\n")


def _of_dictionary(text: str) -> list[str]:
    """Definitions and quotations; what the dictionary took from WordNet is left out, since WordNet is held out."""
    pieces: list[str] = []
    for block in re.split(r"\n[ \t]*\n", text):
        if "WordNet" in block or "\\" in block:
            continue
        block = re.sub(r"\[(?:1913 Webster|PJC|Webster 1913 Suppl\.|Obs\.|R\.|[A-Z][a-z]*\.?)\]", " ", block)
        block = re.sub(r"--[A-Z][\w.' ]*$", " ", block.strip())
        block = re.sub(r"^\(?(?:\d+\.|[a-z]\)) ?(?:n\.|v\.|adj\.)?|^<[^>]*>|\[\d{4}-\d\d-\d\d\]", " ", block)
        pieces.append(block.replace("{", "").replace("}", ""))
    return pieces


def headwords(package: str, folder: Path) -> list[str]:
    """The entries of a dictionary of the dict project, in their order."""
    index = next(iter(sorted((folder / package).rglob("*.index"))))
    words = [line.split("\t")[0].strip() for line in read(index).splitlines()]
    return [w for w in dict.fromkeys(words) if re.fullmatch(r"[A-Za-z][A-Za-z' -]{2,40}", w)]


def manual_sections(text: str) -> list[tuple[str, str]]:
    """(section's title, its paragraphs joined by blank lines) of a manual page in roff, without macros."""
    sections: list[tuple[str, str]] = []
    lines: list[str] = []
    title, skipped = "", False
    for line in text.splitlines():
        if re.match(r"^\.\s*S[hH]\b", line):
            sections.append((title, "\n".join(lines)))
            title, lines = line[3:].strip().strip('"').upper(), []
            continue
        if re.match(r"^\.\s*(nf|EX|Bd)\b", line):
            skipped = True
        if re.match(r"^\.\s*(fi|EE|Ed)\b", line):
            skipped = False
            continue
        if skipped:
            continue
        if re.match(r"^\.\s*(PP|P|LP|Pp|TP|IP|SS|Ss|sp|It|HP)\b", line) or not line.strip():
            lines.append("")
            continue
        if re.match(r"^[.']\s*(B|I|BR|IR|RB|RI|BI|IB|SM|SB|Nm|Nd|Fl|Ar|Xr|Pa|Em|Sy|Li|Cm|Ql|Dq|Sq)\b", line):
            line = re.sub(r'^[.\']\s*\w+\s*|"', "", line)
        elif line[:1] in ".'":
            continue
        lines.append(_unescaped(line))
    sections.append((title, "\n".join(lines)))
    return sections


def _unescaped(line: str) -> str:
    line = re.sub(r"\\f(?:\[\w*\]|\(\w\w|.)|\\s[+-]?\d+|\\[&/,|^:%!]", "", line)
    for escape, plain in (
        (r"\-", "-"),
        (r"\(aq", "'"),
        (r"\(lq", '"'),
        (r"\(rq", '"'),
        (r"\(em", "-"),
        (r"\(en", "-"),
    ):
        line = line.replace(escape, plain)
    line = re.sub(r"\\\((?:co|bu|dq|oq|cq|ga|ha|ti|rs)|\\\*\(?\w\w?|\\\[\w+\]", " ", line)
    return re.sub(r"\\(.)", r"\1", line).replace("\\", "")

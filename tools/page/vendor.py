#!/usr/bin/env python3
"""Fetches the page's libraries: `vendor.py` writes crates/server/web/vendor/, `vendor.py --check` compares its hashes.

The packages come from npm's registry by `npm pack`, which checks nothing itself here: PACKAGES has the hash of each, and
SHA256SUMS those of the files made of them. A newer version is a new row, a run, and a look at the page. Needs npm, and a
network, except for --check.
"""

import argparse
import base64
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "crates/server/web/vendor"
# Name, version and the registry's `dist.integrity`.
PACKAGES = {
    "marked": ("18.2.1", "ii4bxCTCqqwpT86XZWgJNs+ZnAIZksmLGYMViWA7PDIXYIeNo1x6cDdX3JOip9NM/cI6p8z57FxliACboTruMA=="),
    "dompurify": ("3.5.0", "LYC0ZkE8P1V42JsRYTwMdme/2ET8SpOc5AA2eOFjP/IadvRd2fwiT4TVz5vkfy0XUx12aS2UaRkTnfVPNOv9vw=="),
    "katex": ("0.19.1", "jG8uKntjSEcm2EpQOh0XturpPuuC9r3Sq5HLHdsFdWZT27E672SF19QEi+of0/YeOy15lDgRhKvr5614uRrEfA=="),
}
# The fonts that answers use. Browsers slant and thicken these where TeX has a font more; the families of SYSTEM_FONTS have
# the shapes of any system's. All of KaTeX's fonts would be 130 KB more.
FONTS = ["AMS-Regular", "Caligraphic-Regular", "Fraktur-Regular", "Main-Bold", "Main-Regular", "Math-Italic",
         "Size1-Regular", "Size2-Regular", "Size3-Regular", "Size4-Regular"]
SYSTEM_FONTS = {"KaTeX_SansSerif": "sans-serif", "KaTeX_Typewriter": "monospace", "KaTeX_Script": "KaTeX_Caligraphic"}


def fetch(name: str, folder: Path) -> tarfile.TarFile:
    """The package, whose hash is right."""
    version, expected = PACKAGES[name]
    subprocess.run(["npm", "pack", "--silent", f"{name}@{version}"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    path = folder / f"{name}-{version}.tgz"
    found = base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
    if found != expected:
        sys.exit(f"{path.name}: expected sha512 {expected}, got {found}")
    return tarfile.open(path)


def read(package: tarfile.TarFile, path: str) -> bytes:
    return package.extractfile(f"package/{path}").read()


def script(package: tarfile.TarFile, path: str) -> bytes:
    """A script without the address of its map, which browsers would ask for."""
    return re.sub(rb"//# sourceMappingURL=\S+\s*$", b"", read(package, path))


def style(package: tarfile.TarFile) -> bytes:
    """KaTeX's style sheet with FONTS only, in WOFF2 and from the same folder."""
    text = read(package, "dist/katex.min.css").decode()

    def face(match: re.Match) -> str:
        font = re.search(r"url\(fonts/KaTeX_([\w-]+)\.woff2\) format\(\"woff2\"\)", match[0])
        return re.sub(r"src:[^}]*", f'src:url(KaTeX_{font[1]}.woff2) format("woff2")', match[0]) if font[1] in FONTS else ""

    text = re.sub(r"@font-face\{[^}]*\}", face, text)
    for family, ours in SYSTEM_FONTS.items():
        text = re.sub(f'"?{family}"?', ours, text)
    return text.encode()


def licences(packages: dict[str, tarfile.TarFile]) -> bytes:
    parts = [f"{name} {PACKAGES[name][0]}\n\n{read(package, 'LICENSE').decode().strip()}\n" for name, package in packages.items()]
    return f"\n{'-' * 80}\n\n".join(parts).encode()


def files(packages: dict[str, tarfile.TarFile]) -> dict[str, bytes]:
    """All files of the folder but the list of their hashes."""
    katex = packages["katex"]
    fonts = {f"KaTeX_{font}.woff2": read(katex, f"dist/fonts/KaTeX_{font}.woff2") for font in FONTS}
    return fonts | {
        "marked.js": script(packages["marked"], "lib/marked.esm.js"),
        "purify.js": script(packages["dompurify"], "dist/purify.min.js"),
        "katex.js": script(katex, "dist/katex.min.js"),
        "katex.css": style(katex),
        "LICENSES.txt": licences(packages),
    }


def sums(contents: dict[str, bytes]) -> str:
    """In the form of sha256sum."""
    return "".join(f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in sorted(contents))


def write() -> None:
    with tempfile.TemporaryDirectory() as folder:
        contents = files({name: fetch(name, Path(folder)) for name in PACKAGES})
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for name, content in contents.items():
        (FOLDER / name).write_bytes(content)
    (FOLDER / "SHA256SUMS").write_text(sums(contents))


def is_unchanged() -> bool:
    """Whether the folder has the files of its list, and no others."""
    contents = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.name != "SHA256SUMS"}
    return sums(contents) == (FOLDER / "SHA256SUMS").read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare the files with their hashes")
    if not parser.parse_args().check:
        write()
    elif not is_unchanged():
        sys.exit(f"{FOLDER}: the files are not those of SHA256SUMS; tools/page/vendor.py makes them anew")


if __name__ == "__main__":
    main()

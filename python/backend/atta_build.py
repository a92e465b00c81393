"""Builds the wheel: the package with libatta in it, for one platform and every Python 3.

A wheel is a zip file with a list of its files (PEP 427), and a backend is a module with a few
functions (PEP 517); so nothing has to be installed to build one. `ATTA_LIBRARY` names the library;
without it, cargo builds one. `ATTA_WHEEL_PLATFORM` names the platform, such as
`manylinux_2_28_x86_64`; without it, it is that of this machine.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parent
NAMES = {"win32": "atta.dll", "darwin": "libatta.dylib"}
BUILT = {"win32": "atta_capi.dll", "darwin": "libatta_capi.dylib"}
# Files of a wheel have a time; this one makes equal wheels of equal files.
TIME = (2020, 1, 1, 0, 0, 0)


def _field(text: str, name: str) -> str:
    found = re.search(rf'^{name} = "(.*)"$', text, re.MULTILINE)
    if not found:
        raise RuntimeError(f"there is no {name}")
    return found.group(1)


def _version() -> str:
    beside = HERE / "VERSION"
    if beside.exists():
        return beside.read_text().strip()
    return _field((ROOT / "Cargo.toml").read_text(), "version")


def _library() -> pathlib.Path:
    named = os.environ.get("ATTA_LIBRARY")
    if named:
        return pathlib.Path(named)
    subprocess.run(["cargo", "build", "--release", "-p", "atta-capi"], cwd=ROOT, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    return pathlib.Path(target) / "release" / BUILT.get(sys.platform, "libatta_capi.so")


def _platform() -> str:
    named = os.environ.get("ATTA_WHEEL_PLATFORM")
    return named or re.sub(r"[^A-Za-z0-9_]", "_", sysconfig.get_platform())


def _metadata() -> str:
    project = (HERE / "pyproject.toml").read_text()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {_field(project, 'name')}",
        f"Version: {_version()}",
        f"Summary: {_field(project, 'description')}",
        f"License: {_field(project, 'license')}",
        f"Requires-Python: {_field(project, 'requires-python')}",
        "Provides-Extra: numpy",
        'Requires-Dist: numpy; extra == "numpy"',
        "Description-Content-Type: text/markdown",
        "",
        (HERE / "README.md").read_text(),
    ]
    return "\n".join(lines)


def _files() -> dict:
    """The files of the package."""
    package = sorted((HERE / "atta").glob("*.py")) + [HERE / "atta" / "py.typed"]
    files = {f"atta/{path.name}": path.read_bytes() for path in package}
    files["atta/" + NAMES.get(sys.platform, "libatta.so")] = _library().read_bytes()
    return files


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    version, platform = _version(), _platform()
    info = f"atta-{version}.dist-info"
    files = _files()
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: atta_build\nRoot-Is-Purelib: false\n"
        f"Tag: py3-none-{platform}\n"
    ).encode()
    record = "".join(_recorded(name, content) for name, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    name = f"atta-{version}-py3-none-{platform}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, TIME)
            entry.external_attr = (0o755 if ".so" in path else 0o644) << 16
            wheel.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return name


def _recorded(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def build_sdist(sdist_directory, config_settings=None) -> str:
    """The Python files without the library, which `ATTA_LIBRARY` then has to name."""
    stem = f"atta-{_version()}"
    name = f"{stem}.tar.gz"
    with tarfile.open(pathlib.Path(sdist_directory) / name, "w:gz") as archive:
        for part in ("pyproject.toml", "README.md", "backend/atta_build.py"):
            archive.add(HERE / part, f"{stem}/{part}")
        for path in [*sorted((HERE / "atta").glob("*.py")), HERE / "atta" / "py.typed"]:
            archive.add(path, f"{stem}/atta/{path.name}")
        version = HERE / "backend" / "VERSION.tmp"
        version.write_text(_version())
        archive.add(version, f"{stem}/VERSION")
        version.unlink()
    return name


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "dist"
    os.makedirs(folder, exist_ok=True)
    print(pathlib.Path(folder) / build_wheel(folder))

"""Builds the wheel and the sdist, and checks what is in them: ``python release/wheel.py FOLDER``.

The files of the checkout are copied first: a build in the checkout would take files from an earlier
one. Everything is built twice, at different times and in different folders, and has to give the
same bytes; ``SOURCE_DATE_EPOCH`` is the time of the last commit unless the caller gives another.
Needs the packages build and setuptools.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = (
    "onnx_aot/py.typed",
    "onnx_aot/explanations/pages/OA101.md",
    "onnx_aot/inspection/view/assets/dagre/LICENSE",
    "onnx_aot/inspection/view/assets/dagre/dagre.min.js",
    "onnx_aot/inspection/view/assets/page.html",
    "onnx_aot/sweep/assets/page.html",
    "onnx_aot/targets/onnxruntime_cpu.json",
    "onnx_aot/targets/openvino.json",
)
LICENCES = ("LICENSE", "THIRD_PARTY.md", "onnx_aot/inspection/view/assets/dagre/LICENSE")


def main() -> None:
    """Builds, checks, and leaves both files in a folder."""
    destination = Path(sys.argv[1]).resolve()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct").strip())
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        wheel, sdist = _build(Path(first), epoch)
        _check_wheel(wheel)
        _check_sdist(sdist)
        _compare_with_the_sdists(wheel, sdist, epoch, Path(first) / "from-sdist")
        time.sleep(2.1)  # a time in a zip file has steps of two seconds
        again = _build(Path(second) / "elsewhere", epoch)
        for one, other in zip((wheel, sdist), again, strict=True):
            if one.read_bytes() != other.read_bytes():
                sys.exit(f"{one.name} is not reproducible: two builds differ")
        destination.mkdir(parents=True, exist_ok=True)
        for old in (*destination.glob("*.whl"), *destination.glob("*.tar.gz")):
            old.unlink()
        for built in (wheel, sdist):
            shutil.copy(built, destination)
            digest = hashlib.sha256(built.read_bytes()).hexdigest()
            print(f"{built.name}  {built.stat().st_size:,} bytes  sha256 {digest}")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def _tracked() -> list[str]:
    """Returns the files of the checkout that git tracks or would track."""
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file())


def _build(folder: Path, epoch: int) -> tuple[Path, Path]:
    """Builds the wheel and the sdist from a copy of the checkout; returns their paths."""
    source = folder / "source"
    for name in _tracked():
        copy = source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
        copy.chmod(0o644)  # as in any checkout, whatever its umask
    (sdist,) = _run_build("--sdist", source, folder / "sdist", epoch)
    _normalize(sdist, epoch)
    shutil.rmtree(source / "build", ignore_errors=True)
    (wheel,) = _run_build("--wheel", source, folder / "wheel", epoch)
    return wheel, sdist


def _run_build(kind: str, source: Path, output: Path, epoch: int) -> list[Path]:
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", kind, "--outdir", output, source],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
    )
    return list(output.iterdir())


def _normalize(sdist: Path, epoch: int) -> None:
    """Writes an sdist anew with fixed times, owners and order, which setuptools leaves open."""
    with tarfile.open(sdist) as archive:
        members = sorted(archive.getmembers(), key=lambda member: member.name)
        contents = [archive.extractfile(m).read() if m.isfile() else b"" for m in members]
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member, content in zip(members, contents, strict=True):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, len(content), epoch
            plain.mode = 0o755 if member.isdir() else 0o644
            archive.addfile(plain, io.BytesIO(content))
    sdist.write_bytes(gzip.compress(written.getvalue(), mtime=epoch))


def _read_wheel(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _check_wheel(wheel: Path) -> None:
    """Ends the program unless the wheel has the package, all of it, and nothing else."""
    files = _read_wheel(wheel)
    info = next(name.partition("/")[0] for name in files if ".dist-info/" in name)
    package = {name for name in files if name.startswith("onnx_aot/")}
    others = {name for name in files if not name.startswith(("onnx_aot/", f"{info}/"))}
    if others:
        sys.exit(f"the wheel has files outside of the package: {sorted(others)[:10]}")
    expected = {name for name in _tracked() if name.startswith("onnx_aot/")}
    if package != expected:
        lacks, has = sorted(expected - package)[:10], sorted(package - expected)[:10]
        sys.exit(f"the wheel lacks {lacks} and has {has}, which git does not track")
    lost = [name for name in NEEDED if name not in files]
    lost += [name for name in LICENCES if f"{info}/licenses/{name}" not in files]
    if lost:
        sys.exit(f"the wheel lacks {lost}")
    said = files[f"{info}/METADATA"].decode()
    for line in ("License-Expression: Apache-2.0", "Requires-Python: >=3.10"):
        if line not in said:
            sys.exit(f"the metadata of the wheel lacks {line!r}")
    machine = [n for n, text in files.items() if str(ROOT).encode() in text]
    if machine:
        sys.exit(f"files of the wheel name the folder of the checkout: {machine}")
    print(f"{wheel.name}: {len(package)} files of the package, {len(files) - len(package)} others")


def _check_sdist(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    unwanted = re.compile(r"(tests|benchmarks|conformance|docs|examples|release)/")
    found = [name for name in names if unwanted.match(name)]
    if found:
        sys.exit(f"the sdist has {found[:10]}")


def _compare_with_the_sdists(wheel: Path, sdist: Path, epoch: int, folder: Path) -> None:
    """Ends the program unless the wheel that the sdist builds has the same files."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    (built,) = _run_build("--wheel", source, folder.with_name("wheel-of-sdist"), epoch)
    one, other = _read_wheel(wheel), _read_wheel(built)
    differing = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    if differing:
        sys.exit(f"the sdist builds another wheel; these files differ: {sorted(differing)[:10]}")


if __name__ == "__main__":
    main()

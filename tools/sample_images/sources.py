"""Where the pictures come from: fetched, and refused unless they are the bytes that are named here."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path


class BuildError(Exception):
    """The sources are not what this program was written for."""


@dataclass(frozen=True)
class Archive:
    """A package that holds pictures.

    Args:
        title: What SOURCES.md calls it.
        file: The name of its file.
        sha256: The digest of its file.
        fetch: The command that downloads it into the present folder.
        inside: The folder of the pictures in it.
    """

    title: str
    file: str
    sha256: str
    fetch: tuple[str, ...]
    inside: str


def _wheel(name: str, version: str, python: str, platform: str) -> tuple[str, ...]:
    options = ("--no-deps", "--only-binary=:all:", "--python-version", python, "--platform", platform)
    return (sys.executable, "-m", "pip", "download", *options, f"{name}=={version}")


ARCHIVES = {
    "skimage": Archive(
        "scikit-image 0.26.0 (wheel), skimage/data",
        "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
        "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
        _wheel("scikit-image", "0.26.0", "311", "manylinux_2_28_x86_64"),
        "skimage/data",
    ),
    "sklearn": Archive(
        "scikit-learn 1.9.1 (wheel), sklearn/datasets/images",
        "scikit_learn-1.9.1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
        "52a0703bbc07ad27f560fa63fa68e4c54dd735bfbbf65b4dd3c225dc7547b6df",
        _wheel("scikit-learn", "1.9.1", "311", "manylinux_2_28_x86_64"),
        "sklearn/datasets/images",
    ),
    "openclipart": Archive(
        "openclipart-png 1:0.18+dfsg-19 (Debian 12)",
        "openclipart-png_1%3a0.18+dfsg-19_all.deb",
        "f07f1545a2970c2cf3fa339bc2405da1a95cf2b1827bfa05bf73eb1c20291c02",
        ("apt-get", "download", "openclipart-png=1:0.18+dfsg-19"),
        "usr/share/openclipart/png",
    ),
}

CORAL = "google-coral test_data, https://github.com/google-coral/test_data"

CORAL_FILES = {
    "cat_1080p.jpg": "d579b80cadf3b2ee71743b1a9c1c0fe75b8077b7a454cb320adc0a11a41829e2",
    "cat_720p.jpg": "cfb1dbdf64b30de79104a47555ff8e9f12737a12c2128ecd0e7f38531a8c13ce",
    "hot_dog.jpg": "ed6952e022eb71c0d0b1ff068dcee3abed056dfa1852f041c35f138c4ff15b2e",
    "kite_and_cold.jpg": "87410f52f79cc256c3949b48a3548632c07c8e9943468ef8caa6250f6643be8e",
    "owl.jpg": "ea9a0e3943bbd0acaeb472a6e66e777d13cf76646f9e42e84cafa931cc8a5bf7",
    "parrot.jpg": "a8fba9e7e29439fa414c13129aad661f2289ff891231920a7c33641b076f1833",
    "pets.jpg": "3d71034f8a910bc71c744d3191b652c6c09e9e9c703e4dcd97f1c5ef7adbfe82",
}


class Originals:
    """The pictures as their sources have them.

    Args:
        coral: The folder with the photographs of google-coral's test_data.
        cache: A folder that keeps the packages.
        unpacked: A folder to unpack them into.
    """

    def __init__(self, coral: Path, cache: Path, unpacked: Path) -> None:
        self._coral, self._unpacked = coral, unpacked
        for name, digest in CORAL_FILES.items():
            _check(coral / name, digest)
        for key, archive in ARCHIVES.items():
            _unpack(_fetched(archive, cache), unpacked / key)

    def path(self, source: str, name: str) -> Path:
        """The file of a picture."""
        if source == "coral":
            return self._coral / name
        return self._unpacked / source / ARCHIVES[source].inside / name


def title_of(source: str) -> str:
    """What SOURCES.md calls a source."""
    return CORAL if source == "coral" else "tools/sample_images" if source == "made" else ARCHIVES[source].title


def _fetched(archive: Archive, cache: Path) -> Path:
    file = cache / archive.file
    if not file.exists():
        done = subprocess.run(archive.fetch, cwd=cache, capture_output=True, text=True, check=False)
        if done.returncode or not file.exists():
            raise BuildError(f"{' '.join(archive.fetch)} does not give {archive.file}:\n{done.stderr}")
    _check(file, archive.sha256)
    return file


def _check(file: Path, sha256: str) -> None:
    if not file.exists():
        raise BuildError(f"{file} is missing")
    if hashlib.sha256(file.read_bytes()).hexdigest() != sha256:
        raise BuildError(f"{file} is not the file that this program was written for")


def _unpack(file: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            wheel.extractall(folder)
    else:
        subprocess.run(["dpkg", "-x", str(file), str(folder)], check=True)

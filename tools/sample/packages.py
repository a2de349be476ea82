"""Fetches the Debian packages, checks their licences and unpacks them."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from .plaintext import one_line
from .sources import SOURCE_OF, Source


class BuildError(Exception):
    """The packages are not what this program was written for."""


def download(package: str, version: str | None, cache: Path) -> None:
    """Download one package with apt-get into a folder; without a version, the one apt offers."""
    wanted = f"{package}={version}" if version else package
    done = subprocess.run(["apt-get", "download", wanted], cwd=cache, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(
            f"apt-get cannot fetch {wanted} (run `apt-get update` on Debian 12; "
            f"if that version is gone, --any-version takes the present one):\n{done.stderr}"
        )


def fetch(package: str, cache: Path, any_version: bool) -> Path:
    """The .deb of a package, downloaded unless the cache holds it."""
    version, digest = SOURCE_OF[package].packages[package]
    pattern = f"{package}_*.deb"
    if not any(cache.glob(pattern)):
        download(package, None if any_version else version, cache)
    deb = max(cache.glob(pattern))
    if not any_version and hashlib.sha256(deb.read_bytes()).hexdigest() != digest:
        raise BuildError(f"{deb.name} is not the pinned package ({package} {version})")
    return deb


class Packages:
    """The unpacked packages, and the version and copyright file of each."""

    def __init__(self, cache: Path, unpacked: Path, any_version: bool) -> None:
        self.root = unpacked
        unpacked.mkdir(parents=True)
        self.version: dict[str, str] = {}
        for package in SOURCE_OF:
            deb = fetch(package, cache, any_version)
            subprocess.run(["dpkg", "-x", str(deb), str(unpacked / package)], check=True)
            asked = subprocess.run(["dpkg-deb", "-f", str(deb), "Version"], check=True, capture_output=True, text=True)
            self.version[package] = asked.stdout.strip()
            self._check_licence(package)

    def _copyright(self, package: str) -> str:
        return (self.root / package / "usr/share/doc" / package / "copyright").read_text(encoding="utf-8")

    def _check_licence(self, package: str) -> None:
        """Stop when the copyright file no longer says what SOURCES.md says it says."""
        held = one_line(self._copyright(package))
        for quote in SOURCE_OF[package].evidence:
            if one_line(quote) not in held:
                raise BuildError(f"the copyright file of {package} does not say: {quote}")

    def notice(self, source: Source) -> str:
        """The licence notice that must go along with the documents of a source; empty where none is asked for."""
        if source.notice is None:
            return ""
        first, last = source.notice
        text = self._copyright(next(iter(source.packages)))
        start = text.index(first)
        end = text.index(last, start) + len(last)
        # Debian copyright files indent what they quote, and write an empty line as " .".
        lines = text[start:end].splitlines()
        return "\n".join("" if line.rstrip() == " ." else line.strip() for line in lines)

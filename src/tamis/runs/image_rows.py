"""Reads images back from their source: the member of a tar at some byte, a file that is an image, a path in a row."""

from __future__ import annotations

import json
import os
import stat
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from tamis.stages.image.io.samples import IMAGE_ENDINGS
from tamis.stages.io.paths import is_local

__all__ = ["image_at_path", "image_file", "tar_images", "tar_rows"]

_BLOCK: Final = 512
_COMPANIONS: Final = 8
_COMPANION_BYTES: Final = 64 * 1024
_LONG_NAMES: Final = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_NO_MEMBER: Final = "no member of the archive is at this position: the source has changed since the run"


def tar_rows(handle: BinaryIO, positions: list[int], media_bytes: int) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """The members of a tar that start at some bytes, each with the companions that follow it.

    Args:
        handle: The archive.
        positions: The bytes where the headers of the members are.
        media_bytes: The largest image that is read; none when 0.
    """
    for position in positions:
        member = _member_at(handle, position)
        if member is None or not member.isfile():
            yield position, _NO_MEMBER
            continue
        stem = _stem(member.name)
        values: dict[str, Any] = {"image_id": os.path.basename(stem), "member": member.name}
        if media_bytes:
            if member.size > media_bytes:
                yield position, "the image is too large to be shown"
                continue
            handle.seek(member.offset_data)
            values["image_bytes"] = handle.read(member.size)
        yield position, values | _companions(handle, member, stem)


def tar_images(handle: BinaryIO, most: int) -> Iterator[tuple[int, str]]:
    """The images in a tar, by their position and their name, in its order; nothing but headers is read.

    Args:
        handle: The archive.
        most: How many members are looked at.
    """
    at = 0
    for _ in range(most):
        member = _member_at(handle, at)
        if member is None:
            return
        if member.isfile() and member.name.lower().endswith(IMAGE_ENDINGS):
            yield at, member.name
        at = _after(member)


def image_file(source: str, media_bytes: int) -> dict[str, Any] | str:
    """A file that is an image, with the text beside it that has the same name; or why it is not shown."""
    stem, ending = os.path.splitext(source)
    values: dict[str, Any] = {"image_id": os.path.basename(stem), "member": os.path.basename(source)}
    if media_bytes:
        found = image_at_path(source, most=media_bytes)
        if isinstance(found, str):
            return found
        values["image_bytes"] = found
    for suffix in (".txt", ".caption"):
        if suffix != ending and is_local(source) and os.path.isfile(stem + suffix):
            with open(stem + suffix, "rb") as file:  # noqa: PTH123 - a path of the data, as text
                values["caption"] = file.read(_COMPANION_BYTES).decode("utf-8", "replace").strip()
            break
    return values


def image_at_path(path: str, offset: int | None = None, size: int | None = None, *, most: int) -> bytes | str:
    """The bytes of an image that a row only names; or why they are not read.

    Args:
        path: A local file.
        offset, size: The range of bytes in it; all of it when not given.
        most: The largest image that is read.
    """
    if not is_local(path):
        return "the image is not on this machine"
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return "the image is not a file"
        length = status.st_size if size is None else size
        if length > most:
            return "the image is too large to be shown"
        with open(path, "rb") as file:  # noqa: PTH123 - a path of the data, as text
            file.seek(offset or 0)
            return file.read(length)
    except FileNotFoundError:
        return "the image is gone: there is no such file any more"
    except (OSError, ValueError) as error:
        return f"the image cannot be read: {getattr(error, 'strerror', None) or error}"


def _member_at(handle: BinaryIO, position: int) -> tarfile.TarInfo | None:
    """The member whose header is at a byte, with its long name, if it has one; ``None`` if there is none."""
    if position < 0 or position % _BLOCK:
        return None
    try:
        handle.seek(position)
        head = tarfile.TarInfo.frombuf(handle.read(_BLOCK), "utf-8", "surrogateescape")
        if head.type in _LONG_NAMES and head.size > _COMPANION_BYTES:
            return None
        handle.seek(position)
        with tarfile.TarFile(fileobj=handle, mode="r") as archive:
            return archive.firstmember  # type: ignore[attr-defined,no-any-return]  # there is no other way to ask for one
    except (tarfile.TarError, OSError, ValueError, OverflowError):
        return None


def _companions(handle: BinaryIO, member: tarfile.TarInfo, stem: str) -> dict[str, Any]:
    """What the members that follow under the same name say: the caption, and the fields of JSON."""
    found: dict[str, Any] = {}
    at = _after(member)
    for _ in range(_COMPANIONS):
        other = _member_at(handle, at)
        if other is None or _stem(other.name) != stem:
            break
        if other.size <= _COMPANION_BYTES and other.name.lower().endswith((".txt", ".caption", ".json")):
            handle.seek(other.offset_data)
            text = handle.read(other.size).decode("utf-8", "replace")
            is_json = other.name.lower().endswith(".json")
            found = _fields(text) | found if is_json else found | {"caption": text.strip()}
        at = _after(other)
    return found


def _fields(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {str(name): each for name, each in value.items()} if isinstance(value, dict) else {}


def _after(member: tarfile.TarInfo) -> int:
    return int(member.offset_data + -(-member.size // _BLOCK) * _BLOCK)


def _stem(name: str) -> str:
    """The name that the files of one sample share: up to the first dot of the last part."""
    folder, base = os.path.split(name)
    return os.path.join(folder, base.partition(".")[0])

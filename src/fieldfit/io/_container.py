"""One file for arrays and their description, which is complete and unaltered or is not read.

The file is a safetensors file (https://github.com/huggingface/safetensors): eight bytes for the
length of the header, a header in JSON with names, types and places of the arrays, then the arrays.
The header's ``__metadata__`` holds

    format    what kind of file it is        fieldfit   version of the package that wrote it
    version   of the format                  content    everything else, as JSON in a text
    sha256    digest of the whole file, computed with this digest itself replaced by zeros

so that *any* changed, missing or additional byte is noticed, wherever it lies.  Equal contents give
equal bytes.  Nothing in a file is ever executed or imported.

Files are replaced as a whole (`fieldfit.io._atomic_file`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._validation import require_path
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.io._atomic_file import write_atomically

__all__ = ["map_container", "read_container", "write_container"]

#: Names of safetensors for the types that are stored.
TYPES = {
    "float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "int16": "I16",
    "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip

_NO_DIGEST = b"0" * 64
# Quotation marks inside a text are escaped in JSON, so only a true key looks like this.
_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')


def write_container(
    path: str | os.PathLike[str],
    format_name: str,
    version: int,
    content: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
) -> str:
    """Write arrays and a description that JSON can hold, atomically; the digest of the file."""
    stored = {name: _storable(name, array) for name, array in arrays.items()}
    # wide types first, so that every array is aligned to its own size
    order = sorted(stored, key=lambda name: (-stored[name].itemsize, name))
    header: dict[str, Any] = {
        "__metadata__": {
            "content": json.dumps(content, allow_nan=False, sort_keys=True),
            "fieldfit": _package_version(),
            "format": format_name,
            "sha256": _NO_DIGEST.decode(),
            "version": str(version),
        }
    }
    position = 0
    for name in order:
        array = stored[name]
        header[name] = {
            "dtype": TYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [position, position + array.nbytes],
        }
        position += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    beginning = len(text).to_bytes(8, "little") + text
    digest = sha256(beginning)
    for name in order:
        digest.update(_bytes(stored[name]))
    signed = b'"sha256":"' + digest.hexdigest().encode() + b'"'
    beginning = beginning.replace(b'"sha256":"' + _NO_DIGEST + b'"', signed)
    write_atomically(path, [beginning, *(_bytes(stored[name]) for name in order)])
    return digest.hexdigest()


def read_container(
    path: str | os.PathLike[str], format_name: str, newest_version: int
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Description and arrays of a file, after its digest has been verified."""
    require_path("path", path)
    name = os.fspath(path)
    data = Path(path).read_bytes()
    length = _header_length(name, data, format_name)
    _require_digest(name, data, length)
    try:
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        _require_format(name, metadata, format_name, newest_version)
        content = json.loads(metadata["content"])
        arrays = _arrays(data)
    except FileFormatError:
        raise
    except Exception as error:
        # the digest is right, so this was written so: not damage, but not one of our files either
        raise FileFormatError(f"{name}: the file is not a {format_name} file ({error})") from error
    return content, arrays


def map_container(
    path: str | os.PathLike[str], format_name: str, newest_version: int, digest: str | None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Description and arrays of a file that stays on disk: pages are read when they are touched.

    The content must have this ``digest``; an empty one: any that the file itself states; ``None``:
    that has been verified before.
    """
    name = os.fspath(path)
    # private pages: arrays can be written to, which no kernel does, and the file never changes
    n_bytes = os.path.getsize(path)
    data = np.memmap(path, dtype=np.uint8, mode="c") if n_bytes else np.zeros(0, dtype=np.uint8)
    length = _header_length(name, data, format_name)
    if digest is not None and _require_digest(name, data, length) != digest and digest:
        raise FileFormatError(
            f"{name}: expected the file of digest {digest[:16]}..., found another one"
        )
    header = json.loads(bytes(data[8 : 8 + length]))
    metadata = header.pop("__metadata__")
    _require_format(name, metadata, format_name, newest_version)
    types = {stored: np.dtype(own).newbyteorder("<") for own, stored in TYPES.items()}
    arrays = {}
    for array_name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        flat = np.asarray(data[begin:end]).view(types[entry["dtype"]])
        arrays[array_name] = flat.reshape(entry["shape"])
    return json.loads(metadata["content"]), arrays


def _header_length(name: str, data: Any, format_name: str) -> int:
    """Bytes of the header; refuses what cannot be one of our files."""
    length = int.from_bytes(bytes(data[:8]), "little")
    if len(data) < 8 or length > len(data) - 8 or not _digest_of(data, length):
        raise FileFormatError(
            f"{name}: the file is not a {format_name} file, or it is cut short or damaged "
            f"({len(data)} bytes)"
        )
    return length


def _digest_of(data: Any, length: int) -> re.Match[bytes] | None:
    return _DIGEST.search(bytes(data[: 8 + length]), 8)


def _require_digest(name: str, data: Any, length: int) -> str:
    """The digest that a file states, if it is that of its content."""
    found = _digest_of(data, length)
    assert found is not None
    begin, end = found.span(1)
    rest = memoryview(data)
    digest = sha256(rest[:begin])
    digest.update(_NO_DIGEST)
    digest.update(rest[end:])
    if digest.hexdigest().encode() != found[1]:
        raise FileFormatError(
            f"{name}: the file is cut short or damaged, its content does not match its checksum"
        )
    return found[1].decode()


def _package_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        return version("fieldfit")
    except PackageNotFoundError:  # run from its sources
        return "unknown"


def _storable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    array = np.asarray(array)
    if array.dtype.name not in TYPES:
        raise InvalidInputError(
            f"array {name!r} must hold numbers or truth values to be stored, got {array.dtype}"
        )
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _arrays(data: bytes) -> dict[str, NDArray[Any]]:
    from safetensors.numpy import load

    return {name: np.array(array) for name, array in load(data).items()}


def _require_format(name: str, metadata: dict[str, str], format_name: str, newest: int) -> None:
    if metadata["format"] != format_name:
        raise FileFormatError(
            f"{name}: expected a {format_name} file, found a {metadata['format']} file"
        )
    if int(metadata["version"]) > newest:
        raise FileFormatError(
            f"{name}: the file has version {metadata['version']} of {format_name}, written by "
            f"fieldfit {metadata['fieldfit']}; this fieldfit reads versions up to {newest}"
        )

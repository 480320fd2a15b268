"""Downloading a data set: resumed where it stopped, verified against the published checksum, unpacked whole or not."""

import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from everlearn.data import catalogue, formats, sources
from everlearn.errors import BadInput, EverlearnError
from everlearn.files import no_link

Progress = Callable[[int, int | None], None]  # bytes done, bytes in all where the server says

CHUNK = 1 << 18
TIMEOUT = 30  # seconds without a byte


def get(name: str, root: Path | None = None, progress: Progress | None = None) -> Path:
    """Fetch a data set into ROOT/NAME and return the folder that holds it.

    What is there and verified stays as it is, and `progress` is never called: `sources.found` tells beforehand.
    """
    if sources.own(name):
        raise BadInput(f"'{name}' is your own data: there is nothing to get")
    source, root = sources.find(name), sources.data_root(root)
    if there := sources.found(name, root):
        return there
    folder = root / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EverlearnError(f"cannot make the folder {folder} ({error.strerror}): choose another data root") from error
    for archive in source.archives:
        path = folder / archive.file
        if not (path.is_file() and formats.md5(path) == archive.md5):
            _fetch(archive, path, progress)
        _unpack(path, folder)
    if there := sources.found(name, root):
        return there
    raise EverlearnError(f"the files of {source.title} in {folder} are not the published ones even after unpacking")


def _fetch(archive: catalogue.Archive, path: Path, progress: Progress | None) -> None:
    """Download to PATH.part, from the first address that delivers, and rename once the checksum is right."""
    part = path.with_name(f"{path.name}.part")
    trouble = "it has no address"
    for url in archive.urls:
        try:
            _download(url, part, archive.md5, progress)
            if (md5 := formats.md5(part)) == archive.md5:
                os.replace(part, path)
                return
            part.unlink()
            trouble = f"{url} sent a file with the md5 {md5} instead of {archive.md5}, which was removed"
        except (OSError, HTTPException, ValueError) as error:
            trouble = f"{url}: {error if isinstance(error, HTTPError) else getattr(error, 'reason', error)}"
    wrong = " (the one there now has another md5)" if path.exists() else ""
    raise EverlearnError(
        f"could not download {archive.file} ({trouble}): run the command again to go on, "
        f"or put the file at {path} yourself{wrong}"
    )


def _download(url: str, part: Path, md5: str, progress: Progress | None) -> None:
    """Append what is missing of URL to PART, as far as the server lets us."""
    done = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "everlearn"} | ({"Range": f"bytes={done}-"} if done else {})
    try:
        response = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if error.code != 416 or not done:
            raise
        if formats.md5(part) == md5:  # nothing left to send: only the rename was missing
            return
        part.unlink()
        return _download(url, part, md5, progress)
    with response:
        if response.status != 206:  # the server ignores Range and sends the file from its beginning
            done = 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        with open(part, "ab" if done else "wb", opener=no_link) as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                if progress:
                    progress(done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the connection closed after {done:,} of {total:,} bytes")


def _unpack(path: Path, folder: Path) -> None:
    """Unpack an archive into a temporary folder, then move what it holds into place; other files stay as they are."""
    if not path.name.endswith((".tar.gz", ".zip")):
        return
    draft = None
    try:
        draft = Path(tempfile.mkdtemp(prefix=".unpack-", dir=folder))
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    _refuse_outside(name)
                archive.extractall(draft)
        else:
            with tarfile.open(path, "r:gz") as archive:
                archive.extractall(draft, filter="data")  # refuses paths and links that lead out
        for entry in draft.iterdir():
            target = folder / entry.name
            if target.is_dir():  # an earlier copy, found wanting
                shutil.rmtree(target)
            os.replace(entry, target)
    except (
        OSError,
        EOFError,
        ValueError,
        NotImplementedError,
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise EverlearnError(f"cannot unpack {path} ({error}): delete it and run the command again") from error
    finally:
        if draft:
            shutil.rmtree(draft, ignore_errors=True)


def _refuse_outside(name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name:
        raise ValueError(f"its entry '{name}' leads out of the folder")

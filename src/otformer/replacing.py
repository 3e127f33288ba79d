"""Putting what is finished in the place of what stands there: in one step where the system has one, and with its rights.

A file takes the place of another by one rename. A folder cannot; on Linux it can *change places* with the other one in one
step (RENAME_EXCHANGE), so that whoever looks finds one of the two. Elsewhere, and on file systems without it (NFS), two
renames do it, between which nobody finds either. A folder of an image's lower layer (overlayfs) cannot be renamed at all
(EXDEV): it is copied and removed, and a kill in that moment leaves a part of it.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of linux/fcntl.h and linux/fs.h
NOT_HERE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV}  # there is no such step here
MEANWHILE = {errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}  # another has put or taken away its own
ACCESS_LIST = "system.posix_acl_access"
TRIES = 1000  # each one that fails is a success of another


def first_mode(target: Path, folder: bool = False) -> int:
    """The mode to make a file or a folder with that is to become ``target``: the owner's alone if it is to replace one."""
    usual, same = (0o777, stat.S_ISDIR) if folder else (0o666, stat.S_ISREG)
    try:
        return usual & 0o700 if same(os.lstat(target).st_mode) else usual
    except FileNotFoundError:
        return usual


def put_file(new: Path, target: Path) -> None:
    """Put a file in place, with the rights of the one that it replaces."""
    _keep_rights(new, target)
    os.replace(new, target)


def put_folder(new: Path, target: Path, old: Path) -> None:
    """Put a folder in place; the one that it replaces is then ``new``, or ``old`` where there are two renames.

    Its rights stay, and those of the files in it that have one of their name in the new one.
    """
    if not target.is_symlink():
        for made in (*new.rglob("*"), new):  # the folder last: until then nobody else looks into it
            _keep_rights(made, target / made.relative_to(new))
    for left in reversed(range(TRIES)):
        try:
            if not os.path.lexists(target):
                os.rename(new, target)
            elif not _exchanged(new, target):
                _by_two_renames(new, target, old)
            return
        except OSError as error:
            if error.errno not in MEANWHILE or not left:
                raise


def _by_two_renames(new: Path, target: Path, old: Path) -> None:
    remove(old)  # of a try in which another was faster: it has put its own in place of this one
    try:
        os.rename(target, old)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copytree(target, old, symlinks=True)
        remove(target)
    os.rename(new, target)


def _exchanged(one: Path, other: Path) -> bool:
    """Let two names change places in one step; False where that cannot be had."""
    if sys.platform != "linux":
        return False
    import ctypes

    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # older C libraries have none
    if rename is None:
        return False
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in NOT_HERE:
        return False
    raise OSError(number, os.strerror(number), str(other))


def _keep_rights(new: Path, target: Path) -> None:
    """Give a new file or folder the mode, owner, group and access list of the one that it replaces, so far as this user may.

    The three digits of a mode mean something else for another group, or with another list: then it gets what everybody has.
    """
    try:
        was, made = os.lstat(target), os.lstat(new)
    except OSError:  # there is nothing to replace
        return
    if stat.S_IFMT(was.st_mode) != stat.S_IFMT(made.st_mode) or stat.S_ISLNK(was.st_mode):
        return
    for owner in (was.st_uid, -1), (-1, was.st_gid):
        if (made.st_uid, made.st_gid) != (was.st_uid, was.st_gid):
            with suppress(OSError):
                os.chown(new, *owner)
    listed = _access_list(target)
    if listed:
        with suppress(OSError):
            os.setxattr(new, ACCESS_LIST, listed)
    mode = stat.S_IMODE(was.st_mode) & (0o7777 if stat.S_ISDIR(was.st_mode) else 0o777)
    if os.lstat(new).st_gid != was.st_gid or _access_list(new) != listed:
        mode = mode & ~0o070 | (mode & 0o007) << 3
    os.chmod(new, mode)


def _access_list(path: Path) -> bytes:
    """Who else may do what with a file (POSIX 1003.1e, of Linux), as it is stored; empty if the mode says all."""
    try:
        return os.getxattr(path, ACCESS_LIST)
    except (OSError, AttributeError):
        return b""


def remove(path: Path) -> None:
    """Remove a file, a folder, or a link and not what it leads to; there may be nothing."""
    if path.is_dir() and not path.is_symlink():
        with suppress(OSError):  # it may be another user's
            path.chmod(0o700)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

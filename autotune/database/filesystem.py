"""Where databases lie: the user's, the shipped ones, and whether a folder is on a network file system."""

import os
from pathlib import Path

from autotune.catalogue import shipped

MOUNTS = Path("/proc/self/mounts")

# File systems on which locks or shared memory do not reach across hosts (https://sqlite.org/wal.html, "Overview", disadvantage 2).
NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "ocfs2", "gfs2"),
        *("pvfs2", "orangefs", "davfs", "fuse.davfs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse"),
        *("fuse.rclone", "fuse.juicefs"),
    }
)


def default_path() -> Path:
    """The database used when none is named: $AUTOTUNE_DB, else `autotune/autotune.sqlite` in the user's data folder."""
    if named := os.environ.get("AUTOTUNE_DB"):
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_data_dir("autotune", appauthor=False)) / "autotune.sqlite"


def shipped_databases() -> list[Path]:
    """The measured databases that come with the package, one per device, in the order of their names."""
    return sorted(shipped("results").glob("*.sqlite"))


def network_filesystem(folder: Path) -> str:
    """The type of the network file system that `folder` is on, or "" for a local one. Where there is no /proc, "" is assumed."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    place = folder.resolve()
    mounted = [(Path(_unescaped(fields[1])), fields[2]) for fields in (line.split() for line in lines) if len(fields) > 2]
    # The deepest mount point wins, and of several on one point the last.
    holding = [(len(point.parts), at, kind) for at, (point, kind) in enumerate(mounted) if place.is_relative_to(point)]
    kind = max(holding)[2] if holding else ""
    return kind if kind in NETWORK else ""


def _unescaped(text: str) -> str:
    """A mount point as /proc writes it, with octal escapes for blanks, read back."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text

"""Packages of users' own, as an installer would leave them in a folder of the import path."""

from collections.abc import Mapping
from pathlib import Path


def install_package(
    folder: Path, module: str, source: str, entry_points: Mapping[str, Mapping[str, str]]
) -> Path:
    """Write a module and its metadata into `folder`; `entry_points` gives group, name and `module:object`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = []
    for group, points in entry_points.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items()), ""]
    (about / "entry_points.txt").write_text("\n".join(lines))
    return folder

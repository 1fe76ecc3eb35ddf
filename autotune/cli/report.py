"""`autotune report`: a database as a page or a picture."""

from pathlib import Path

import click

from autotune.cli.hints import hint
from autotune.cli.options import DEFAULT_DTYPE, NumberRange, db_option, dtype_option, reading_database, require_known
from autotune.database.placing import same_file, write_over
from autotune.element import element
from autotune.errors import UsageError

MOST_HASHED = 100_000  # trials; the hash of what more say takes longer than all else of a report


@click.command("report")
@click.option(
    "--html", "html_file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a page; it needs no network."
)
@click.option(
    "--png", "png_file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the first two charts as a picture."
)
@click.option(
    "--scale",
    type=NumberRange(0.5, 4),
    default=2.0,
    show_default=True,
    help="Of the picture: 1 is about 880 pixels wide, 2 twice that.",
)
@click.option("--device", metavar="NAME", help="Only this device, such as 'NVIDIA H200'.")
@dtype_option
@db_option
def report_command(
    html_file: Path | None, png_file: Path | None, scale: float, device: str | None, dtype: str | None, db: Path | None
) -> None:
    """Write what a database says as one HTML page, a picture, or both. Existing files are replaced.

    A picture shows one series, the one with the most sizes of those that --device and --dtype leave.
    """
    if html_file is None and png_file is None:
        raise UsageError("nothing to write; give --html FILE, --png FILE or both")
    for target in (html_file, png_file):
        if target is not None and _is_database(target):
            raise UsageError(f"{target} is an SQLite database, which a report does not replace; name another file")
    if html_file is not None and png_file is not None and same_file(html_file, png_file):
        raise UsageError(f"--html and --png both name {png_file}; give each a file of its own")
    from autotune.report.data import collect
    from autotune.report.library import vl_convert
    from autotune.report.page import page
    from autotune.report.picture import picture

    vl_convert()
    with reading_database(db) as database:
        require_known(database, "device", device)
        series = collect(database, device, element(dtype).name if dtype is not None else None)
        hashed = sum(one["trials_in_all"] for one in series) <= MOST_HASHED
        content = database.content_hash() if html_file and hashed else ""
    if not series:
        chosen = " ".join(filter(None, (device, dtype)))
        raise UsageError(
            f"database {database.path} holds no trials of {chosen}; `{hint('inspect', 'devices')}` lists what is there"
            if chosen
            else f"database {database.path} holds no trials; `{hint('sweep', 'OPERATION')}` fills it"
        )
    drawn = max(series, key=lambda one: (sum(bool(size["version"]) for size in one["problems"]), one["dtype"] == DEFAULT_DTYPE))
    if png_file is not None and not any(size["version"] for size in drawn["problems"]):
        raise UsageError(f"no trial of database {database.path} ran right, so a picture would be empty; --html shows how they ended")
    if html_file is not None:
        _write(html_file, page(series, database.path.name, content).encode())
    if png_file is not None:
        _write(png_file, picture(drawn, scale))


def _is_database(path: Path) -> bool:
    try:
        if not path.is_file():  # a pipe would be waited for
            return False
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def _write(path: Path, data: bytes) -> None:
    write_over(path, data)
    click.echo(f"{path}: {len(data) / 1e6:.2f} MB")

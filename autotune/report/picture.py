"""The report's first two charts as one picture, drawn without a browser: for a README or a slide."""

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from autotune.cli.output import counted
from autotune.report.charts import CROWDED, MOST_LABELLED, SCHEMA, VEGA_LITE, specifications
from autotune.report.library import vl_convert
from autotune.report.style import CONFIG, versions_in

Row = dict[str, Any]

WIDTH_PX = 760
LEGEND_PX = 58  # that an entry takes
CHARTS: dict[str, tuple[str, str | list[str]]] = {
    "plane": ("Which version wins where", "Discs: tuned sizes. Shade: the version of the nearest tuned size. K is 1024."),
    "shares": (
        "How near each version comes to a copy",
        [
            "Best configuration of each version, by time of a device copy of the same bytes over its time.",
            "Lines: the largest matrix with aligned rows at each doubling of columns. Small dots: the other sizes.",
        ],
    ),
}


def picture(series: Row, scale: float = 2) -> bytes:
    """The PNG of one series, on white; its charts are `scale` times `WIDTH_PX` pixels wide."""
    shares = [row for row in series["shares"] if row["share"] is not None]
    problems = [row for row in series["problems"] if row["version"]]
    drawn_in = {"plane": problems, "shares": shares}
    names = ["plane"] if not shares else list(CHARTS) if len(problems) > 1 else ["shares"]  # one size makes no plane
    charts = {name: specifications(versions_in(row["version"] for row in drawn_in[name]))[name] for name in names}
    drawn = [
        {key: value for key, value in charts[name].items() if key not in ("$schema", "config", "autosize", "params")}
        | {"width": WIDTH_PX, "title": {"text": CHARTS[name][0], "subtitle": CHARTS[name][1]}}
        for name in names
    ]
    spec = {
        "$schema": SCHEMA,
        "config": CONFIG | {"background": "white", "padding": 20, "legend": CONFIG["legend"] | {"columns": WIDTH_PX // LEGEND_PX}},
        "params": [CROWDED | {"value": len(series["problems"]) > MOST_LABELLED}],
        "datasets": {"plane": series["plane"], "problems": problems, "shares": shares},
        "title": {
            "text": f"{series['operation']} {series['dtype']} on {series['device']}",
            "subtitle": f"{counted(series['sizes_in_all'], 'size')}, protocol {series['protocol']}, rule {series['protocol_rule']}",
            "fontSize": 20,
            "offset": 24,
        },
        "spacing": 30,
        "resolve": {"scale": {"color": "independent"}},
        "vconcat": drawn,
    }
    return packed(vl_convert().vegalite_to_png(spec, vl_version=VEGA_LITE, scale=scale))


def packed(png: bytes) -> bytes:
    """The same picture in a third of the bytes, when it is as the renderer writes it: opaque RGBA with differences along each line.

    Flat colours repeat more often as they are than as differences, and need no opacity. Any other picture is returned as it is.
    """
    chunks = list(_chunks(png))
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    if (depth, kind, interlaced) != (8, 6, 0):
        return png
    data = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    lines = np.frombuffer(data, np.uint8).reshape(height, 1 + 4 * width)
    pixels = np.cumsum(lines[:, 1:].reshape(height, width, 4), axis=1, dtype=np.uint8)
    if (lines[:, 0] != 1).any() or (pixels[:, :, 3] != 255).any():
        return png
    plain = np.zeros((height, 1 + 3 * width), np.uint8)
    plain[:, 1:] = pixels[:, :, :3].reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    kept = [(name, body) for name, body in chunks if name not in (b"IHDR", b"IDAT", b"IEND")]
    return png[:8] + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in ((b"IHDR", header), *kept, (b"IDAT", zlib.compress(plain.tobytes(), 9)), (b"IEND", b""))
    )


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The chunks of a PNG after its signature: name and body."""
    place = 8
    while place < len(png):
        (size,) = struct.unpack_from(">I", png, place)
        yield png[place + 4 : place + 8], png[place + 8 : place + 8 + size]
        place += 12 + size

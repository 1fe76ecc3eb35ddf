"""An elementwise operation with one version, whose parameter `bug` names the mistake that an instance makes; 0 makes none."""

from pathlib import Path

from autotune import catalogue
from autotune.operation import Operation

OPERATION = '''
"""{factor} times the input."""
from autotune.operation import Tolerance
TOLERANCES = {{name: Tolerance({tolerance}, {tolerance}) for name in ("float32", "float16", "bfloat16")}}
SAFE = ("v0", {{"bug": 0}})
def reference(x):
    return float("{factor}") * x
def bytes_moved(problem):
    return 2 * problem.rows * problem.bytes_per_row
'''
VERSION = '''
"""One block per row, and the mistake that the parameter names."""
from autotune.definition import Bounds, Launch, all_of
TEMPLATE = "v0.cu"
PARAMETERS = {{"bug": tuple(range({bugs}))}}
DTYPES = ("float32", "float16", "bfloat16")
IN_PLACE = {in_place}
def bounds(configuration):
    return Bounds(threads=64)
def applicable(configuration, problem, device):
    return all_of()
def launch(configuration, problem, device):
    return Launch(blocks=problem.rows, workspace_bytes=64)
'''


def elementwise(
    folder: Path, name: str, template: str, *, factor: float, bugs: int = 1, tolerance: float = 0, in_place: bool = True
) -> Operation:
    """The operation called `name`, written below `folder`: `template` multiplies by `factor`, in place if it declares to."""
    home = folder / name
    home.mkdir()
    (home / "operation.py").write_text(OPERATION.format(factor=factor, tolerance=tolerance))
    (home / "v0.py").write_text(VERSION.format(bugs=bugs, in_place=in_place))
    (home / "v0.cu").write_text(template)
    return catalogue.load(name, folder)

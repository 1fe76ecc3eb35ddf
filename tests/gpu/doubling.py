"""An operation for the tests, y = 2x, with one right version and one version for each way in which a kernel can be wrong."""

from pathlib import Path

OPERATION = '''"""Doubling: y[r, c] = 2 x[r, c]."""
from autotune.operation import Tolerance

TOLERANCES = {"float32": Tolerance(relative=1e-6, absolute=1e-37)}
SAFE = ("v0", {"block": 256})


def reference(x):
    return 2 * x


def bytes_moved(problem):
    return 2 * problem.rows * problem.bytes_per_row
'''

DEFINITION = '''"""SUMMARY"""
from autotune.definition import Bounds, Launch, all_of

TEMPLATE = "NAME.cu"
PARAMETERS = {"block": (256,)}
DTYPES = ("float32",)
IN_PLACE = True


def bounds(configuration):
    return Bounds(configuration.integer("block"))


def applicable(configuration, problem, device):
    return all_of()


def launch(configuration, problem, device):
    return Launch(LAUNCH)
'''

TEMPLATE = """#include "common.cuh"
template <class Element, int block>
__device__ void doubling_NAME(Element* output, const Element* input, long long rows, long long cols, long long output_stride,
                              long long input_stride, void* workspace) {
    long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    long long last = rows * cols - 1;
    for (long long i = thread; i <= last; i += static_cast<long long>(gridDim.x) * blockDim.x) {
        Element* y = output + i / cols * output_stride + i % cols;
        const Element* x = input + i / cols * input_stride + i % cols;
        BODY
    }
}
"""

RIGHT = "*y = 2 * *x;"
GRID = "max(1, min(4096, -(-problem.rows * problem.cols // 256)))"

# What each version is, its loop body, and how it is launched.
VERSIONS = {
    "v0": ("right", RIGHT, GRID),
    "v1": ("one wrong element, the last", "*y = 2 * *x + (i == last ? 1.0f : 0.0f);", GRID),
    "v2": ("one element is never written", "if (i != last / 2) *y = 2 * *x;", GRID),
    "v3": ("writes past the end", RIGHT + " if (i == last) output[rows * output_stride] = 1.0f;", GRID),
    "v4": ("all zeros", "*y = 0.0f; (void)x;", GRID),
    "v5": ("writes to its input", RIGHT + " if (i == last) const_cast<Element*>(input)[0] = 1.0f;", GRID),
    "v6": ("writes to an illegal address", RIGHT + " if (i == last) *reinterpret_cast<volatile float*>(16) = *x;", GRID),
    "v7": ("a misaligned access", RIGHT + " if (i == last) *y = reinterpret_cast<const volatile double*>(input + 1)[0];", GRID),
    "v8": (
        "does not end for 60 s",
        RIGHT
        + ' unsigned long long now, end; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end)); end += 60000000000ull;'
        + ' do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now < end);',
        GRID,
    ),
    "v9": ("does not compile", "*y = undeclared(*x);", GRID),
    "v10": ("asks for more shared memory than there is", RIGHT, f"{GRID}, shared_bytes=1 << 20"),
    "v11": ("traps", RIGHT + " if (i == last) __trap();", GRID),
    "v12": ("all blocks resident at once, with a workspace", RIGHT, "device.sm_count, workspace_bytes=1 << 12, cooperative=True"),
    "v13": ("does nothing", "break; (void)y; (void)x;", "1"),
    "v14": (
        "needs 96 KiB of dynamic shared memory",
        "DYNAMIC_SHARED(float, kept); kept[threadIdx.x + 24 * 1024 - 256] = *x; *y = 2 * kept[threadIdx.x + 24 * 1024 - 256];",
        f"{GRID}, shared_bytes=96 << 10",
    ),
    "v16": (
        "as fast as a copy, for packed rows of whole float4s",
        "for (long long j = i; j < rows * cols / 4; j += static_cast<long long>(gridDim.x) * blockDim.x) {"
        " float4 v = reinterpret_cast<const float4*>(input)[j];"
        " reinterpret_cast<float4*>(output)[j] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w); }"
        " (void)x; (void)y; break;",
        "max(1, min(65536, -(-problem.rows * problem.cols // 1024)))",
    ),
    "v17": ("copies past the end", RIGHT + " if (i == last) output[rows * output_stride] = input[rows * input_stride];", GRID),
    "v18": ("clears its output before it reads its input", "*y = 0.0f; __threadfence(); *y = 2 * *const_cast<volatile Element*>(x);", GRID),
    "v15": ("more blocks at once than fit", RIGHT, "device.sm_count * 64, cooperative=True"),
}


def write_definitions(kernels: Path) -> Path:
    """Write the operation `doubling` into the folder `kernels`, and return that folder."""
    folder = kernels / "doubling"
    folder.mkdir(parents=True)
    (folder / "operation.py").write_text(OPERATION)
    for name, (summary, body, launch) in VERSIONS.items():
        definition = DEFINITION.replace("SUMMARY", summary).replace("NAME", name).replace("LAUNCH", launch)
        (folder / f"{name}.py").write_text(definition)
        (folder / f"{name}.cu").write_text(TEMPLATE.replace("NAME", name).replace("BODY", body))
    return kernels

// A stand-in for the CUDA driver, so that the code that talks to it runs on machines without a GPU.
//
// Device memory is memory of the CPU. A kernel is a row softmax of floats, whatever binary it came from, so a launch whose arguments,
// strides or sizes are packed wrongly gives a wrong result. What the driver would refuse is refused: a launch without a context, more
// dynamic shared memory than was asked for, a damaged binary, loading and allocating while a stream is captured.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0, INVALID_VALUE = 1, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NOT_FOUND = 500, CAPTURE_UNSUPPORTED = 900,
};
enum { DEVICES_MOST = 4, CAPTURING_STREAM = 77 };

typedef struct { unsigned grid[3], block[3], shared_bytes; uint64_t stream; const void* attributes; unsigned attribute_count; } Configuration;
typedef struct { char symbol[201]; int most_shared_bytes, wide_clusters; } Kernel;

// What tests read through ctypes.
struct {
    unsigned launches, loads, ptx_loads, allocations, contexts_pushed, events;
    unsigned blocks, threads, shared_bytes, cooperative;
    uint64_t stream, workspace;
    int device;
    char symbol[201];
} double_last;

static __thread uint64_t current;  // a context is its device's ordinal + 100
static __thread int capture_mode;  // 2 is relaxed: this thread may do what captures forbid
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int device_count(void) {
    const char* named = getenv("DOUBLE_DEVICES");
    return named ? atoi(named) : 1;
}

// Where there are two devices, pages of 4 KiB belong to them in turn, so that a test places an array by choosing its address.
static int device_of(uint64_t pointer) {
    return device_count() > 1 ? (int)(pointer >> 12 & 1) : 0;
}

static int capturing(void) { return getenv("DOUBLE_CAPTURING") != NULL; }

int cuInit(unsigned flags) { return getenv("DOUBLE_BROKEN") ? 100 : flags; }
int cuDriverGetVersion(int* version) { *version = 13000; return SUCCESS; }
int cuDeviceGetCount(int* count) { *count = device_count(); return SUCCESS; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return ordinal < device_count() ? SUCCESS : 101; }
int cuDeviceGetName(char* name, int length, int device) {
    const char* named = getenv("DOUBLE_NAME");
    snprintf(name, length, "%s", named ? named : "NVIDIA H200");
    return SUCCESS;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    switch (attribute) {
        case 1: *value = 1024; break;      // threads per block
        case 16: *value = 132; break;      // SMs
        case 37: *value = 6144; break;     // bus bits
        case 38: *value = 62914560; break; // L2
        case 39: *value = 2048; break;     // threads per SM
        case 75: *value = getenv("DOUBLE_CAPABILITY") ? atoi(getenv("DOUBLE_CAPABILITY")) : 9; break;
        case 76: *value = 0; break;
        case 81: *value = 233472; break;   // shared bytes per SM
        case 82: *value = 65536; break;    // registers per SM
        case 97: *value = 232448; break;   // shared bytes per block after opting in
        default: return INVALID_VALUE;
    }
    return SUCCESS;
}
int cuCtxGetCurrent(uint64_t* context) { *context = current; return SUCCESS; }
int cuCtxSetCurrent(uint64_t context) { current = context; return SUCCESS; }
int cuCtxPushCurrent_v2(uint64_t context) { double_last.contexts_pushed++; current = context; return SUCCESS; }
int cuCtxPopCurrent_v2(uint64_t* context) { *context = current; current = 100; return SUCCESS; }
int cuCtxGetDevice(int* device) { *device = (int)current - 100; return current ? SUCCESS : INVALID_CONTEXT; }
int cuDevicePrimaryCtxRetain(uint64_t* context, int device) { *context = 100 + device; return SUCCESS; }

int cuPointerGetAttribute(void* data, int attribute, uint64_t pointer) {
    if (attribute == 1) *(uint64_t*)data = 100 + device_of(pointer);
    else if (attribute == 9) *(int*)data = device_of(pointer);
    else return INVALID_VALUE;
    return SUCCESS;
}

int cuLibraryLoadData(void** library, const void* code, void* a, void* b, unsigned c, void* d, void* e, unsigned f) {
    if (capturing()) return CAPTURE_UNSUPPORTED;
    if (!current) return INVALID_CONTEXT;
    if (memcmp(code, "\x7f" "ELF", 4) != 0 && strncmp(code, ".version", 8) != 0) return INVALID_IMAGE;
    double_last.loads++;
    double_last.ptx_loads += strncmp(code, ".version", 8) == 0;
    *library = calloc(1, sizeof(Kernel));
    return SUCCESS;
}
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
    const char* refused = getenv("DOUBLE_REFUSED");
    if (refused && strstr(name, refused)) return NOT_FOUND;
    strncpy(((Kernel*)library)->symbol, name, 199);
    ((Kernel*)library)->most_shared_bytes = 48 << 10;
    ((Kernel*)library)->wide_clusters = 0;
    *kernel = library;
    return SUCCESS;
}
int cuKernelGetFunction(void** function, void* kernel) { *function = kernel; return SUCCESS; }
int cuKernelGetAttribute(int* value, int attribute, void* kernel, int device) { *value = attribute == 1 ? 64 : 0; return SUCCESS; }
int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
    if (attribute == 8) ((Kernel*)kernel)->most_shared_bytes = value;
    if (attribute == 14) ((Kernel*)kernel)->wide_clusters = value;
    return SUCCESS;
}

static void softmax(float* y, const float* x, int64_t cols) {
    float largest = -INFINITY, sum = 0;
    for (int64_t c = 0; c < cols; c++) largest = fmaxf(largest, x[c]);
    for (int64_t c = 0; c < cols; c++) sum += y[c] = expf(x[c] - largest);
    for (int64_t c = 0; c < cols; c++) y[c] /= sum;
}

int cuLaunchKernelEx(const Configuration* configuration, Kernel* kernel, void** arguments, void** extra) {
    if (!current) return INVALID_CONTEXT;
    if (configuration->grid[1] != 1 || configuration->grid[2] != 1 || configuration->block[1] != 1 || configuration->block[2] != 1)
        return INVALID_VALUE;
    if ((int)configuration->shared_bytes > kernel->most_shared_bytes) return INVALID_VALUE;
    if (strstr(kernel->symbol, "cluster16") && !kernel->wide_clusters) return INVALID_VALUE;
    float* output = *(float**)arguments[0];
    const float* input = *(const float**)arguments[1];
    int64_t rows = *(int64_t*)arguments[2], cols = *(int64_t*)arguments[3];
    int64_t output_stride = *(int64_t*)arguments[4], input_stride = *(int64_t*)arguments[5];
    if (!getenv("DOUBLE_IDLE")) for (int64_t r = 0; r < rows; r++) softmax(output + r * output_stride, input + r * input_stride, cols);
    pthread_mutex_lock(&lock);
    double_last.launches++;
    double_last.blocks = configuration->grid[0];
    double_last.threads = configuration->block[0];
    double_last.shared_bytes = configuration->shared_bytes;
    double_last.stream = configuration->stream;
    double_last.workspace = *(uint64_t*)arguments[6];
    double_last.device = (int)current - 100;
    double_last.cooperative = configuration->attribute_count == 1 && *(const unsigned*)configuration->attributes == 2;
    strncpy(double_last.symbol, kernel->symbol, 199);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
int cuLaunchKernel(Kernel* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, uint64_t stream,
                   void** arguments, void** extra) {
    return SUCCESS;
}

static int forbidden(void) { return capturing() && capture_mode != 2; }

int cuStreamIsCapturing(uint64_t stream, int* status) { *status = capturing() && stream == CAPTURING_STREAM; return SUCCESS; }
int cuStreamGetCaptureInfo_v2(uint64_t stream, int* status, uint64_t* id, void** graph, void** dependencies, size_t* count) {
    cuStreamIsCapturing(stream, status);
    if (*status) *id = atoi(getenv("DOUBLE_CAPTURING"));
    return SUCCESS;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return SUCCESS;
}
int cuStreamCreate(uint64_t* stream, unsigned flags) { *stream = 1234; return flags == 1 ? SUCCESS : INVALID_VALUE; }
int cuStreamDestroy_v2(uint64_t stream) { return SUCCESS; }
int cuStreamSynchronize(uint64_t stream) { return forbidden() || (capturing() && stream == CAPTURING_STREAM) ? CAPTURE_UNSUPPORTED : SUCCESS; }
int cuEventCreate(uint64_t* event, unsigned flags) { *event = 5; return flags == 2 ? SUCCESS : INVALID_VALUE; }
int cuEventRecord(uint64_t event, uint64_t stream) { double_last.events++; return SUCCESS; }
int cuStreamWaitEvent(uint64_t stream, uint64_t event, unsigned flags) { double_last.events++; return SUCCESS; }
int cuEventDestroy_v2(uint64_t event) { return SUCCESS; }
int cuMemAlloc_v2(uint64_t* pointer, size_t bytes) {
    if (forbidden()) return CAPTURE_UNSUPPORTED;
    double_last.allocations++;
    *pointer = (uint64_t)malloc(bytes);
    return SUCCESS;
}
int cuMemsetD8Async(uint64_t pointer, unsigned char value, size_t bytes, uint64_t stream) {
    if (capturing() && stream == CAPTURING_STREAM) return CAPTURE_UNSUPPORTED;  // it would become part of the graph
    memset((void*)pointer, value, bytes);
    return SUCCESS;
}
int cuGetErrorName(int code, const char** name) { *name = code == NOT_FOUND ? "CUDA_ERROR_NOT_FOUND" : "CUDA_ERROR_OTHER"; return SUCCESS; }
int cuGetErrorString(int code, const char** text) { *text = "as the double of the driver says"; return SUCCESS; }

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
    static void* self;
    char newer[100];
    if (!self) self = dlopen("libcuda.so.1", RTLD_LAZY);
    snprintf(newer, sizeof newer, "%s_v2", name);
    *function = dlsym(self, newer);
    if (!*function) *function = dlsym(self, name);
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}

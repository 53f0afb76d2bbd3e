/* A stand-in for libnvidia-ml.so.1 with eight GPUs of Hopper's kind, so that the real Python bindings run without a GPU.
 *
 * NVML_STUB names a folder whose files say what is broken: `lost.3` loses GPU 3, `hang.2` holds each call for GPU 2 as
 * long as the file is there, and the number in `xid.1` is an XID of GPU 1, once. Without the variable nothing is broken.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GPUS 8
#define OK 0
#define NOT_SUPPORTED 3
#define TIMED_OUT 10
#define LOST 15

typedef struct { unsigned number; } Gpu;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct {
    unsigned field, scope;
    long long timestamp, latency_us;
    unsigned value_type;
    int result;
    union { double d; unsigned u; unsigned long long ull; } value;
} FieldValue;
typedef struct { Gpu *gpu; unsigned long long type, data; unsigned gpu_instance, compute_instance; } Event;
typedef struct { Gpu *gpu; } EventSet;
typedef struct { Gpu *gpu; double at; } Sample;
typedef struct {
    unsigned id;
    int result;
    double value;
    struct { char *short_name, *long_name, *unit; } info;
} GpmMetric;
typedef struct { unsigned version, count; Sample *earlier, *now; GpmMetric metrics[]; } GpmRequest;
typedef struct { unsigned version, is_supported; } GpmSupport;

static Gpu gpus[GPUS];

static int is_there(const char *kind, unsigned number, char *path, size_t size) {
    const char *folder = getenv("NVML_STUB");
    if (!folder) return 0;
    snprintf(path, size, "%s/%s.%u", folder, kind, number);
    return access(path, F_OK) == 0;
}

static int check(Gpu *gpu) {
    char path[512];
    while (is_there("hang", gpu->number, path, sizeof path)) usleep(10000);
    return is_there("lost", gpu->number, path, sizeof path) ? LOST : OK;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

#define GPU_CALL(name, type, ...)                                                                                      \
    int name(Gpu *gpu, type *out) {                                                                                    \
        int result = check(gpu);                                                                                       \
        if (result == OK) { __VA_ARGS__; }                                                                             \
        return result;                                                                                                 \
    }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    for (unsigned number = 0; number < GPUS; number++) gpus[number].number = number;
    return OK;
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int result) { return result == LOST ? "GPU is lost" : "Error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = GPUS; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned number, Gpu **gpu) {
    if (number >= GPUS) return 2;
    *gpu = &gpus[number];
    return check(*gpu);
}
int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *current, unsigned *pending) {
    (void)gpu;
    *current = *pending = 0;
    return OK;
}

GPU_CALL(nvmlDeviceGetUtilizationRates, Utilization, out->gpu = 90 + gpu->number; out->memory = 40)
GPU_CALL(nvmlDeviceGetMemoryInfo, Memory, out->total = 80ULL << 30; out->used = 60ULL << 30; out->free = 20ULL << 30)
GPU_CALL(nvmlDeviceGetPowerUsage, unsigned, *out = 412345)
GPU_CALL(nvmlDeviceGetEnforcedPowerLimit, unsigned, *out = 700000)
GPU_CALL(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, *out = 0x4)
GPU_CALL(nvmlDeviceGetCurrPcieLinkWidth, unsigned, *out = 16)
GPU_CALL(nvmlDeviceGetMaxPcieLinkWidth, unsigned, *out = 16)
GPU_CALL(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, *out = 5)
GPU_CALL(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, *out = 5)

int nvmlDeviceGetTemperature(Gpu *gpu, unsigned sensor, unsigned *out) {
    (void)sensor;
    *out = 61;
    return check(gpu);
}
int nvmlDeviceGetClockInfo(Gpu *gpu, unsigned kind, unsigned *out) {
    (void)kind;
    *out = 1755;
    return check(gpu);
}
int nvmlDeviceGetMaxClockInfo(Gpu *gpu, unsigned kind, unsigned *out) {
    (void)kind;
    *out = 1980;
    return check(gpu);
}
int nvmlDeviceGetTotalEccErrors(Gpu *gpu, unsigned kind, unsigned counter, unsigned long long *out) {
    (void)kind;
    (void)counter;
    *out = 0;
    return check(gpu);
}
int nvmlDeviceGetRemappedRows(Gpu *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    *corrected = 1;
    *uncorrected = *pending = *failed = 0;
    return check(gpu);
}

/* Counters that grow by 1 GiB a second: PCIe in bytes, NVLink in KiB over all links. */
int nvmlDeviceGetFieldValues(Gpu *gpu, int count, FieldValue *values) {
    for (int place = 0; place < count; place++) {
        unsigned field = values[place].field;
        int is_pcie = field == 197 || field == 198, is_nvlink = field == 138 || field == 139;
        values[place].result = is_pcie || (is_nvlink && values[place].scope == 0xFFFFFFFFu) ? OK : NOT_SUPPORTED;
        values[place].value_type = 3;
        values[place].value.ull = (unsigned long long)(now_s() * (is_pcie ? 1 << 30 : 1 << 20));
    }
    return check(gpu);
}

int nvmlEventSetCreate(EventSet **set) { return (*set = calloc(1, sizeof **set)) ? OK : 20; }
int nvmlEventSetFree(EventSet *set) { free(set); return OK; }
int nvmlDeviceRegisterEvents(Gpu *gpu, unsigned long long types, EventSet *set) {
    (void)types;
    set->gpu = gpu;
    return OK;
}
int nvmlEventSetWait_v2(EventSet *set, Event *event, unsigned timeout_ms) {
    char path[512];
    (void)timeout_ms;
    if (!is_there("xid", set->gpu->number, path, sizeof path)) return TIMED_OUT;
    memset(event, 0, sizeof *event);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%llu", &event->data) != 1) event->data = 0;
    if (file) fclose(file);
    unlink(path);
    event->gpu = set->gpu;
    event->type = 8;
    return OK;
}

GPU_CALL(nvmlGpmQueryDeviceSupport, GpmSupport, out->is_supported = out->version == 1)
int nvmlGpmSampleAlloc(Sample **sample) { return (*sample = calloc(1, sizeof **sample)) ? OK : 20; }
int nvmlGpmSampleFree(Sample *sample) { free(sample); return OK; }
int nvmlGpmSampleGet(Gpu *gpu, Sample *sample) {
    sample->gpu = gpu;
    sample->at = now_s();
    return check(gpu);
}
/* Each metric has its own number as its value; NVLink is not there, so that its counters are read. */
int nvmlGpmMetricsGet(GpmRequest *request) {
    if (request->version != 1 || request->earlier->gpu != request->now->gpu) return 2;
    if (request->earlier->at >= request->now->at) return 2;
    for (unsigned place = 0; place < request->count; place++) {
        GpmMetric *metric = &request->metrics[place];
        metric->result = metric->id >= 60 ? NOT_SUPPORTED : OK;
        metric->value = metric->id;
    }
    return OK;
}

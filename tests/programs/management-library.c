/*
 * Stands in for NVIDIA's management library below the real nvidia-smi: a host with eight
 * GPUs, paired by NVLink, of which the first two and the last are in MIG mode, the second
 * without an instance. Built with -DDRIVER="version".
 *
 * Written after NVML's API reference (structures, constants, versions of functions). Of the
 * functions that nvidia-smi looks up, only those are here without which it prints something
 * else than N/A. The one that is not documented, a table of functions, was found by what
 * nvidia-smi of the branches 470 to 550 calls: its entry 81 takes an index for a handle, and
 * the others may refuse.
 */
#include <stdio.h>
#include <string.h>

#define GPUS 8
#define LINKS 12
#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

typedef const void *Device;

/* A compute instance, as programs see it. */
static const struct instance {
    int gpu, index, gpu_instance, compute_instance;
    unsigned long long mib;
    const char *profile, *uuid;
} instances[] = {
    {0, 0, 1, 0, 40192, "3g.40gb", "MIG-5d0bd4f8-74b1-5a33-9b0d-3e6a8f1c2d40"},
    {0, 1, 9, 0, 9728, "1g.10gb", "MIG-0a8b6d51-2f64-5b0f-8c77-d9e2a4b61f05"},
    {0, 2, 11, 0, 9728, "1g.10gb+me", "MIG-1f2b6d51-2f64-5b0f-8c77-d9e2a4b61f05"},
    {7, 0, 2, 0, 40192, "1c.3g.40gb", "MIG-2a8b6d51-2f64-5b0f-8c77-d9e2a4b61f05"},
    {7, 1, 2, 1, 40192, "2c.3g.40gb", "MIG-3a8b6d51-2f64-5b0f-8c77-d9e2a4b61f05"},
};
#define INSTANCES ((int)(sizeof instances / sizeof *instances))

static const unsigned buses[GPUS] = {0x07, 0x0b, 0x48, 0x4c, 0x88, 0x8b, 0xc8, 0xcb};

/* A device is the address of one of these, or of an instance. */
static const char gpus[GPUS];

static int gpu_of(Device device)
{
    const char *gpu = device;
    return gpu >= gpus && gpu < gpus + GPUS ? (int)(gpu - gpus) : -1;
}

static const struct instance *instance_of(Device device)
{
    const struct instance *one = device;
    return one >= instances && one < instances + INSTANCES ? one : NULL;
}

API int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }
API int nvmlShutdown(void) { return SUCCESS; }
API int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12040; return SUCCESS; }
API int nvmlEventSetCreate(Device *set) { *set = gpus; return SUCCESS; }
API int nvmlEventSetFree(Device set) { (void)set; return SUCCESS; }
API int nvmlDeviceGetCount_v2(unsigned *count) { *count = GPUS; return SUCCESS; }

API int nvmlSystemGetDriverVersion(char *text, unsigned length)
{
    snprintf(text, length, "%s", DRIVER);
    return SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device)
{
    *device = gpus + index;
    return index < GPUS ? SUCCESS : INVALID_ARGUMENT;
}

API int nvmlDeviceGetIndex(Device device, unsigned *index)
{
    const struct instance *one = instance_of(device);
    *index = one ? one->index : gpu_of(device);
    return SUCCESS;
}

API int nvmlDeviceGetMinorNumber(Device device, unsigned *minor)
{
    return nvmlDeviceGetIndex(device, minor);
}

API int nvmlDeviceGetName(Device device, char *text, unsigned length)
{
    const struct instance *one = instance_of(device);
    const char *parts[] = {one ? " MIG " : "", one ? one->profile : ""};
    snprintf(text, length, "NVIDIA A100 80GB PCIe%s%s", parts[0], parts[1]);
    return SUCCESS;
}

API int nvmlDeviceGetUUID(Device device, char *text, unsigned length)
{
    const struct instance *one = instance_of(device);
    if (one)
        snprintf(text, length, "%s", one->uuid);
    else
        snprintf(text, length, "GPU-%08x-7f0c-4a6e-a7d9-5a3c9a1d2f77", gpu_of(device));
    return SUCCESS;
}

/* NVML_BRAND_NVIDIA */
API int nvmlDeviceGetBrand(Device device, int *brand) { (void)device; *brand = 14; return SUCCESS; }

API int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor)
{
    (void)device;
    *major = 8;
    *minor = 0;
    return SUCCESS;
}

/* nvmlPciInfo_t; of nvmlPciInfoExt_v1_t, which 550 asks for, the text begins elsewhere. */
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; };
struct pci_ext { unsigned version, domain, bus, device, id, subsystem, class, sub; char text[32]; };

static int address(int gpu, struct pci *pci)
{
    *pci = (struct pci){.bus = buses[gpu], .id = 0x20b510de, .subsystem = 0x153310de};
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->text, sizeof pci->text, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}

API int nvmlDeviceGetPciInfo_v3(Device device, struct pci *pci) { return address(gpu_of(device), pci); }

API int nvmlDeviceGetPciInfoExt(Device device, struct pci_ext *pci)
{
    pci->bus = buses[gpu_of(device)];
    snprintf(pci->text, sizeof pci->text, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

static unsigned long long bytes_of(Device device)
{
    const struct instance *one = instance_of(device);
    return (one ? one->mib : 81920) << 20;
}

API int nvmlDeviceGetMemoryInfo(Device device, struct memory *memory)
{
    *memory = (struct memory){.total = bytes_of(device), .free = bytes_of(device)};
    return SUCCESS;
}

API int nvmlDeviceGetMemoryInfo_v2(Device device, struct memory_v2 *memory)
{
    memory->total = memory->free = bytes_of(device);
    memory->reserved = memory->used = 0;
    return SUCCESS;
}

API int nvmlDeviceGetBAR1MemoryInfo(Device device, struct memory *memory)
{
    (void)device;
    *memory = (struct memory){.total = 128ULL << 30, .free = 128ULL << 30};
    return SUCCESS;
}

/* Without it an instance is not printed. */
API int nvmlDeviceGetMemoryErrorCounter(Device device, int type, int counter, int where,
                                        unsigned long long *count)
{
    (void)device, (void)type, (void)counter, (void)where;
    *count = 0;
    return SUCCESS;
}

static int has_mig(Device device)
{
    int gpu = gpu_of(device);
    return gpu == 0 || gpu == 1 || gpu == 7;
}

API int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending)
{
    *current = *pending = has_mig(device);
    return SUCCESS;
}

API int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count)
{
    *count = has_mig(device) ? 7 : 0;
    return SUCCESS;
}

API int nvmlDeviceIsMigDeviceHandle(Device device, unsigned *is_instance)
{
    *is_instance = instance_of(device) != NULL;
    return SUCCESS;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *instance)
{
    for (int n = 0; n < INSTANCES; n++) {
        *instance = instances + n;
        if (instances[n].gpu == gpu_of(device) && instances[n].index == (int)index)
            return SUCCESS;
    }
    return NOT_FOUND;
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device instance, Device *device)
{
    *device = gpus + instance_of(instance)->gpu;
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstanceId(Device device, unsigned *id)
{
    *id = instance_of(device)->gpu_instance;
    return SUCCESS;
}

API int nvmlDeviceGetComputeInstanceId(Device device, unsigned *id)
{
    *id = instance_of(device)->compute_instance;
    return SUCCESS;
}

struct attributes { unsigned multiprocessors, engines[5], gpu_slices, compute_slices; unsigned long long mib; };

API int nvmlDeviceGetAttributes_v2(Device device, struct attributes *attributes)
{
    *attributes = (struct attributes){.multiprocessors = 14, .mib = instance_of(device)->mib};
    return SUCCESS;
}

struct field { unsigned id, scope; long long times[2]; int type, result; unsigned long long value; };

/* Links are counted and numbered by fields: NVLINK_LINK_COUNT, NVLINK_REMOTE_NVLINK_ID. */
API int nvmlDeviceGetFieldValues(Device device, int count, struct field *fields)
{
    (void)device;
    for (int n = 0; n < count; n++) {
        int known = fields[n].id == 91 || fields[n].id == 146;
        fields[n].type = 1;
        fields[n].value = fields[n].id == 91 ? LINKS : fields[n].scope;
        fields[n].result = known ? SUCCESS : NOT_SUPPORTED;
    }
    return SUCCESS;
}

API int nvmlDeviceGetNvLinkState(Device device, unsigned link, int *is_active)
{
    (void)device;
    *is_active = 1;
    return link < LINKS ? SUCCESS : NOT_SUPPORTED;
}

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, struct pci *pci)
{
    return link < LINKS ? address(gpu_of(device) ^ 1, pci) : NOT_SUPPORTED;
}

static int unsupported(void) { return NOT_SUPPORTED; }

API int nvmlInternalGetExportTable(const void **table, const void *id)
{
    static const void *functions[512] = {(void *)sizeof functions, [1 ... 511] = unsupported};
    (void)id;
    functions[81] = nvmlDeviceGetHandleByIndex_v2;
    *table = functions;
    return SUCCESS;
}

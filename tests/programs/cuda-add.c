/*
 * cuda-add [fault]
 *
 * Adds numbers on every GPU that it has, by the library of the driver alone, which compiles
 * the PTX below. Prints the UUID of each GPU; with `fault`, it makes the GPU write to an
 * address that it does not have. Fails with the name of the call and CUDA's error.
 */
#include <dlfcn.h>
#include <stdio.h>

static const char PTX[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry add(.param .u64 address)\n{\n"
    "    .reg .u64 %a<3>;\n    .reg .u32 %n<3>;\n"
    "    ld.param.u64 %a1, [address];\n"
    "    mov.u32 %n1, %tid.x;\n"
    "    mad.wide.u32 %a2, %n1, 4, %a1;\n"
    "    ld.global.u32 %n2, [%a2];\n"
    "    add.u32 %n2, %n2, %n1;\n"
    "    st.global.u32 [%a2], %n2;\n"
    "    ret;\n}\n";

enum { COUNT = 256 };

static void *library;

#define CALL(name, ...)                                                                       \
    do {                                                                                      \
        int (*call)() = (int (*)())dlsym(library, name);                                      \
        int error = call ? call(__VA_ARGS__) : -1;                                            \
        if (error) {                                                                          \
            printf("%s: %d\n", name, error);                                                  \
            return 1;                                                                         \
        }                                                                                     \
    } while (0)

static int add(int at, int fault)
{
    void *context, *module, *function;
    unsigned long long address;
    unsigned numbers[COUNT];
    unsigned char uuid[16];
    int device;
    CALL("cuDeviceGet", &device, at);
    CALL("cuDeviceGetUuid", uuid, device);
    CALL("cuDevicePrimaryCtxRetain", &context, device);
    CALL("cuCtxSetCurrent", context);
    CALL("cuModuleLoadData", &module, PTX);
    CALL("cuModuleGetFunction", &function, module, "add");
    CALL("cuMemAlloc_v2", &address, sizeof numbers);
    for (unsigned i = 0; i < COUNT; i++)
        numbers[i] = 1000 * i;
    CALL("cuMemcpyHtoD_v2", address, numbers, sizeof numbers);
    if (fault)
        address = 1ull << 40;
    void *arguments[] = {&address};
    CALL("cuLaunchKernel", function, 1, 1, 1, COUNT, 1, 1, 0, (void *)0, arguments, (void *)0);
    CALL("cuCtxSynchronize");
    CALL("cuMemcpyDtoH_v2", numbers, address, sizeof numbers);
    for (unsigned i = 0; i < COUNT; i++)
        if (numbers[i] != 1001 * i)
            return 1;
    printf("GPU-");
    for (int i = 0; i < 16; i++)
        printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    putchar('\n');
    return 0;
}

int main(int count, char **arguments)
{
    int devices;
    (void)arguments;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    CALL("cuInit", 0);
    CALL("cuDeviceGetCount", &devices);
    for (int at = 0; at < devices; at++)
        if (add(at, count > 1))
            return 1;
    return 0;
}

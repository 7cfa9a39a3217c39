/*
 * A client of libnvidia-ml.so.1 that knows nothing of the simulator: it opens the library by path and walks the
 * machine. The declarations are its own, written from the public NVML interface.
 *
 *   walk LIBRARY            print every GPU, partition the first one, take it apart again
 *   walk LIBRARY misuse     nulls, bad handles, stale handles, calls before init
 *   walk LIBRARY quiet N    walk all GPUs N times and print microseconds per walk and the process's memory
 *   walk LIBRARY apply      MIG mode on, then create 1g instances on GPU 0 until none fits; prints each GI id
 *   walk LIBRARY wait MS    print "ready", then the next event, waiting at most MS milliseconds
 *   walk LIBRARY exports    read function names from standard input and print those the library lacks
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void *handle;
typedef int (*any)();

typedef struct { char legacy[16]; unsigned domain, bus, device, device_id, subsystem_id; char bus_id[32]; } pci_info;
typedef struct { unsigned long long total, free, used; } memory_info;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_info_v2;
typedef struct { unsigned start, size; } placement;
typedef struct {
    unsigned version, id, p2p, slices, instances, sms, copy, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mb;
    char name[96];
} gpu_profile;
typedef struct { unsigned id, slices, instances, sms, copy, decoders, encoders, jpegs, ofas; } compute_profile;
typedef struct { handle device; unsigned id, profile; placement place; } gpu_instance_info;
typedef struct { handle device, gpu_instance; unsigned id, profile; placement place; } compute_instance_info;
typedef struct {
    unsigned sms, copy, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    unsigned long long memory_mb;
} attributes;
typedef struct { handle device; unsigned long long type, data; unsigned gi, ci; } event_data;

static void *library;

static any function(const char *name) {
    any found = (any)dlsym(library, name);
    if (!found) {
        fprintf(stderr, "the library lacks %s\n", name);
        exit(2);
    }
    return found;
}

#define CALL(name, ...) (function("nvml" #name)(__VA_ARGS__))

static const char *text(int code) {
    const char *(*error_string)(int) = (const char *(*)(int))function("nvmlErrorString");
    return error_string(code);
}

static void must(int code, const char *what) {
    if (code) {
        printf("%s: %s\n", what, text(code));
        exit(1);
    }
}

#define MUST(name, ...) must(CALL(name, __VA_ARGS__), #name)

static void print_gpu(handle gpu, unsigned at) {
    char name[96], uuid[96], serial[30], vbios[32];
    unsigned minor, index, is_mig, max_mig, brand, arch, limit, cores, gen, width, link, active = 0, ecc, pending;
    int major, less, rc;
    pci_info pci;
    memory_info memory;
    memory_info_v2 memory2 = {.version = sizeof(memory_info_v2) | 2u << 24};

    MUST(DeviceGetName, gpu, name, 96u);
    MUST(DeviceGetUUID, gpu, uuid, 96u);
    MUST(DeviceGetSerial, gpu, serial, 30u);
    MUST(DeviceGetVbiosVersion, gpu, vbios, 32u);
    MUST(DeviceGetMinorNumber, gpu, &minor);
    MUST(DeviceGetIndex, gpu, &index);
    MUST(DeviceGetPciInfo_v3, gpu, &pci);
    MUST(DeviceGetMemoryInfo, gpu, &memory);
    MUST(DeviceGetMemoryInfo_v2, gpu, &memory2);
    MUST(DeviceGetCudaComputeCapability, gpu, &major, &less);
    MUST(DeviceGetBrand, gpu, &brand);
    MUST(DeviceGetArchitecture, gpu, &arch);
    MUST(DeviceGetPowerManagementLimit, gpu, &limit);
    MUST(DeviceGetNumGpuCores, gpu, &cores);
    MUST(DeviceGetMaxPcieLinkGeneration, gpu, &gen);
    MUST(DeviceGetMaxPcieLinkWidth, gpu, &width);
    MUST(DeviceIsMigDeviceHandle, gpu, &is_mig);
    MUST(DeviceGetMaxMigDeviceCount, gpu, &max_mig);
    MUST(DeviceGetEccMode, gpu, &ecc, &pending);
    for (link = 0; link < 18; link++) {
        unsigned up = 0;
        rc = CALL(DeviceGetNvLinkState, gpu, link, &up);
        active += rc == 0 && up;
    }
    printf("gpu %u %s\n", at, name);
    printf("  uuid %s serial %s vbios %s\n", uuid, serial, vbios);
    printf("  minor %u index %u pci %s device 0x%08X subsystem 0x%08X\n", minor, index, pci.bus_id, pci.device_id,
           pci.subsystem_id);
    printf("  memory %llu reserved %llu capability %d.%d brand %u architecture %u cores %u\n", memory.total,
           memory2.reserved, major, less, brand, arch, cores);
    printf("  limit %u pcie %ux%u ecc %u/%u nvlinks %u mig %u max %u\n", limit, gen, width, ecc, pending, active, is_mig,
           max_mig);
}

static void print_profiles(handle gpu) {
    unsigned index, at;
    for (index = 0; index < 18; index++) {
        gpu_profile profile = {.version = sizeof(gpu_profile) | 2u << 24};
        placement places[32];
        unsigned count = 32;
        int rc = CALL(DeviceGetGpuInstanceProfileInfoV, gpu, index, &profile);
        if (rc == 3) continue; /* a hole */
        if (rc == 2) break;    /* past the last */
        must(rc, "DeviceGetGpuInstanceProfileInfoV");
        MUST(DeviceGetGpuInstancePossiblePlacements_v2, gpu, profile.id, places, &count);
        printf("profile %u id %u %s slices %u instances %u sms %u memory %llu at", index, profile.id, profile.name,
               profile.slices, profile.instances, profile.sms, profile.memory_mb);
        for (at = 0; at < count; at++) printf(" %u:%u", places[at].start, places[at].size);
        printf("\n");
    }
}

static void print_mig(handle gpu) {
    unsigned index, max;
    MUST(DeviceGetMaxMigDeviceCount, gpu, &max);
    for (index = 0; index < max; index++) {
        handle mig, parent;
        char name[96], uuid[96];
        unsigned gi, ci, is_mig;
        memory_info memory;
        attributes has;
        int rc = CALL(DeviceGetMigDeviceHandleByIndex, gpu, index, &mig);
        if (rc == 6) continue;
        must(rc, "DeviceGetMigDeviceHandleByIndex");
        MUST(DeviceGetName, mig, name, 96u);
        MUST(DeviceGetUUID, mig, uuid, 96u);
        MUST(DeviceGetGpuInstanceId, mig, &gi);
        MUST(DeviceGetComputeInstanceId, mig, &ci);
        MUST(DeviceGetMemoryInfo, mig, &memory);
        MUST(DeviceGetAttributes_v2, mig, &has);
        MUST(DeviceIsMigDeviceHandle, mig, &is_mig);
        MUST(DeviceGetDeviceHandleFromMigDeviceHandle, mig, &parent);
        printf("mig %u %s %.4s... %zu gi %u ci %u memory %llu slices %u/%u sms %u mb %llu mig %u parent %s\n", index, name,
               uuid, strlen(uuid), gi, ci, memory.total, has.gpu_slices, has.compute_slices, has.sms, has.memory_mb,
               is_mig, parent == gpu ? "same" : "other");
    }
}

static handle create(handle gpu, unsigned profile_index, unsigned compute_index) {
    gpu_profile profile = {.version = sizeof(gpu_profile) | 2u << 24};
    compute_profile compute;
    gpu_instance_info gi_info;
    compute_instance_info ci_info;
    handle gi, ci;
    MUST(DeviceGetGpuInstanceProfileInfoV, gpu, profile_index, &profile);
    MUST(DeviceCreateGpuInstance, gpu, profile.id, &gi);
    MUST(GpuInstanceGetInfo, gi, &gi_info);
    MUST(GpuInstanceGetComputeInstanceProfileInfo, gi, compute_index, 0u, &compute);
    MUST(GpuInstanceCreateComputeInstance, gi, compute.id, &ci);
    MUST(ComputeInstanceGetInfo_v2, ci, &ci_info);
    printf("created %s gi %u at %u:%u ci %u profile %u sms %u at %u:%u\n", profile.name, gi_info.id, gi_info.place.start,
           gi_info.place.size, ci_info.id, ci_info.profile, compute.sms, ci_info.place.start, ci_info.place.size);
    return gi;
}

static void partition(handle gpu) {
    unsigned current, pending, left, count, at;
    int status = -1;
    handle big, small, list[8];
    compute_instance_info ci_info;
    gpu_profile profile = {.version = sizeof(gpu_profile) | 2u << 24};
    handle gone = 0, found[8];

    MUST(DeviceSetMigMode, gpu, 1u, &status);
    MUST(DeviceGetMigMode, gpu, &current, &pending);
    printf("mig on: %s, current %u pending %u\n", text(status), current, pending);
    big = create(gpu, 2, 2);
    small = create(gpu, 0, 0);
    print_mig(gpu);
    MUST(DeviceGetGpuInstanceProfileInfoV, gpu, 0u, &profile);
    MUST(DeviceGetGpuInstanceRemainingCapacity, gpu, profile.id, &left);
    printf("room for %u more %s\n", left, profile.name);
    MUST(DeviceGetGpuInstanceProfileInfoV, gpu, 4u, &profile);
    printf("create %s: %s\n", profile.name, text(CALL(DeviceCreateGpuInstance, gpu, profile.id, &gone)));
    printf("destroy gi with ci: %s\n", text(CALL(GpuInstanceDestroy, big)));
    list[0] = big;
    list[1] = small;
    for (at = 0; at < 2; at++) {
        gpu_instance_info info;
        compute_profile compute;
        MUST(GpuInstanceGetInfo, list[at], &info);
        MUST(GpuInstanceGetComputeInstanceProfileInfo, list[at], at == 0 ? 2u : 0u, 0u, &compute);
        count = 8;
        MUST(GpuInstanceGetComputeInstances, list[at], compute.id, found, &count);
        MUST(ComputeInstanceGetInfo_v2, found[0], &ci_info);
        MUST(ComputeInstanceDestroy, found[0]);
        MUST(GpuInstanceDestroy, list[at]);
        printf("destroyed gi %u ci %u of %u\n", info.id, ci_info.id, count);
    }
    print_mig(gpu);
    MUST(DeviceSetMigMode, gpu, 0u, &status);
    MUST(DeviceGetMigMode, gpu, &current, &pending);
    printf("mig off: %s, current %u pending %u\n", text(status), current, pending);
}

static int walk(void) {
    char driver[80], nvml[80];
    int cuda;
    unsigned count, at;
    handle gpu;
    MUST(SystemGetDriverVersion, driver, 80u);
    MUST(SystemGetNVMLVersion, nvml, 80u);
    MUST(SystemGetCudaDriverVersion_v2, &cuda);
    MUST(DeviceGetCount_v2, &count);
    printf("driver %s nvml %s cuda %d gpus %u\n", driver, nvml, cuda, count);
    for (at = 0; at < count; at++) {
        MUST(DeviceGetHandleByIndex_v2, at, &gpu);
        print_gpu(gpu, at);
    }
    MUST(DeviceGetHandleByIndex_v2, 0u, &gpu);
    print_profiles(gpu);
    partition(gpu);
    return 0;
}

static void expect(const char *what, int got, int wanted) {
    if (got != wanted) {
        printf("%s: %s instead of %s\n", what, text(got), text(wanted));
        exit(1);
    }
}

static int misuse(void) {
    handle gpu = 0, bad = (handle)0x1234567, gi = 0, ci = 0, mig = 0;
    unsigned number = 0, count = 0;
    char small[4], name[96];
    int status;
    MUST(DeviceGetHandleByIndex_v2, 0u, &gpu);
    expect("null out", CALL(DeviceGetCount_v2, (void *)0), 2);
    expect("null text", CALL(DeviceGetName, gpu, (void *)0, 96u), 2);
    expect("short text", CALL(DeviceGetName, gpu, small, 4u), 7);
    expect("null device", CALL(DeviceGetName, (handle)0, name, 96u), 2);
    expect("bad device", CALL(DeviceGetName, bad, name, 96u), 2);
    expect("index past the last", CALL(DeviceGetHandleByIndex_v2, 4096u, &gi), 2);
    expect("unknown uuid", CALL(DeviceGetHandleByUUID, "GPU-00000000-0000-0000-0000-000000000000", &gi), 6);
    expect("bad version", CALL(DeviceGetMemoryInfo_v2, gpu, &(memory_info_v2){.version = 7}), 25);
    MUST(DeviceSetMigMode, gpu, 1u, &status);
    MUST(DeviceCreateGpuInstance, gpu, 9u, &gi);
    expect("a GI is no device", CALL(DeviceGetName, gi, name, 96u), 2);
    expect("a device is no GI", CALL(GpuInstanceGetInfo, gpu, &(gpu_instance_info){0}), 2);
    MUST(GpuInstanceCreateComputeInstance, gi, 2u, &ci);
    MUST(DeviceGetMigDeviceHandleByIndex, gpu, 0u, &mig);
    expect("null list", CALL(GpuInstanceGetComputeInstances, gi, 2u, (void *)0, &count), 2);
    MUST(ComputeInstanceDestroy, ci);
    expect("stale MIG device", CALL(DeviceGetUUID, mig, name, 96u), 2);
    expect("stale CI", CALL(ComputeInstanceDestroy, ci), 2);
    MUST(GpuInstanceDestroy, gi);
    expect("stale GI", CALL(GpuInstanceDestroy, gi), 2);
    expect("not simulated", CALL(DeviceGetDisplayMode, gpu, &number), 3);
    must(((any)function("nvmlShutdown"))(), "Shutdown");
    expect("after the last shutdown", CALL(DeviceGetCount_v2, &number), 1);
    expect("one shutdown too many", ((any)function("nvmlShutdown"))(), 1);
    must(((any)function("nvmlInit_v2"))(), "Init_v2");
    expect("a handle of the last session", CALL(DeviceGetName, gpu, name, 96u), 2);
    printf("ok\n");
    return 0;
}

static void memory_of_this_process(void) {
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "Pss:", 4) || !strncmp(line, "Pss_Anon:", 9) || !strncmp(line, "Rss:", 4)) fputs(line, stdout);
    if (file) fclose(file);
}

static int quiet(int rounds) {
    struct timespec from, to;
    unsigned count, at;
    int round;
    memory_of_this_process();
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (round = 0; round < rounds; round++) {
        MUST(DeviceGetCount_v2, &count);
        for (at = 0; at < count; at++) {
            handle gpu;
            char name[96], uuid[96];
            unsigned minor, current, pending;
            int major, less;
            pci_info pci;
            memory_info memory;
            MUST(DeviceGetHandleByIndex_v2, at, &gpu);
            MUST(DeviceGetName, gpu, name, 96u);
            MUST(DeviceGetUUID, gpu, uuid, 96u);
            MUST(DeviceGetMinorNumber, gpu, &minor);
            MUST(DeviceGetPciInfo_v3, gpu, &pci);
            MUST(DeviceGetMemoryInfo, gpu, &memory);
            MUST(DeviceGetCudaComputeCapability, gpu, &major, &less);
            MUST(DeviceGetMigMode, gpu, &current, &pending);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.1f us per walk of %u GPUs\n",
           ((to.tv_sec - from.tv_sec) * 1e6 + (to.tv_nsec - from.tv_nsec) / 1e3) / rounds, count);
    memory_of_this_process();
    return 0;
}

static int apply(void) {
    handle gpu, gi;
    gpu_profile profile = {.version = sizeof(gpu_profile) | 2u << 24};
    gpu_instance_info info;
    int status, rc;
    MUST(DeviceGetHandleByIndex_v2, 0u, &gpu);
    MUST(DeviceSetMigMode, gpu, 1u, &status);
    MUST(DeviceGetGpuInstanceProfileInfoV, gpu, 0u, &profile);
    while (!(rc = CALL(DeviceCreateGpuInstance, gpu, profile.id, &gi))) {
        MUST(GpuInstanceGetInfo, gi, &info);
        printf("gi %u at %u\n", info.id, info.place.start);
        fflush(stdout);
    }
    printf("%s\n", text(rc));
    return 0;
}

static int wait_for_event(unsigned milliseconds) {
    handle set, gpu;
    event_data event;
    unsigned count, at, index = 0;
    unsigned long long types;
    int rc;
    MUST(EventSetCreate, &set);
    MUST(DeviceGetCount_v2, &count);
    for (at = 0; at < count; at++) {
        MUST(DeviceGetHandleByIndex_v2, at, &gpu);
        MUST(DeviceGetSupportedEventTypes, gpu, &types);
        MUST(DeviceRegisterEvents, gpu, types, set);
    }
    printf("ready\n");
    fflush(stdout);
    rc = CALL(EventSetWait_v2, set, &event, milliseconds);
    if (rc == 0) {
        must(CALL(DeviceGetIndex, event.device, &index), "DeviceGetIndex");
        printf("gpu %u type %llu data %llu gi %u ci %u\n", index, event.type, event.data, event.gi, event.ci);
    } else {
        printf("%s\n", text(rc));
    }
    MUST(EventSetFree, set);
    return 0;
}

static int exports(void) {
    char line[256];
    int missing = 0;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!dlsym(library, line)) {
            printf("%s\n", line);
            missing++;
        }
    }
    return missing ? 1 : 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 2 ? argv[2] : "walk";
    unsigned count;
    int rc;
    if (argc < 2 || !(library = dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL))) {
        fprintf(stderr, "usage: walk LIBRARY [misuse|quiet N|apply|wait MS|exports]; %s\n", argc < 2 ? "" : dlerror());
        return 2;
    }
    if (!strcmp(mode, "exports")) return exports();
    if (!strcmp(mode, "misuse")) expect("before init", CALL(DeviceGetCount_v2, &count), 1);
    must(((any)function("nvmlInit_v2"))(), "Init_v2");
    if (!strcmp(mode, "walk")) rc = walk();
    else if (!strcmp(mode, "misuse")) rc = misuse();
    else if (!strcmp(mode, "quiet")) rc = quiet(argc > 3 ? atoi(argv[3]) : 100);
    else if (!strcmp(mode, "apply")) rc = apply();
    else if (!strcmp(mode, "wait")) rc = wait_for_event(argc > 3 ? (unsigned)atoi(argv[3]) : 5000u);
    else return 2;
    must(((any)function("nvmlShutdown"))(), "Shutdown");
    return rc;
}

"""The same walk as clients/c/walk.c through nvidia-ml-py, unchanged: LD_LIBRARY_PATH says which library it opens."""

from ctypes import byref, c_uint

import pynvml as n


def text(code):
    """What the library calls a code; pynvml's own table hides the library's for some."""
    return "Success" if code == 0 else n.nvmlErrorString(code)


def answer(call, *arguments):
    """The text of the code with which a call that returns nothing worth printing ends."""
    try:
        call(*arguments)
        return text(0)
    except n.NVMLError as error:
        return text(error.value)


def possible_placements(gpu, profile_id):
    """All placements of a profile; pynvml hands the two-call pattern through as it is."""
    count = c_uint(0)
    n.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile_id, None, byref(count))
    places = (n.c_nvmlGpuInstancePlacement_t * count.value)()
    n.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile_id, places, byref(count))
    return places


def compute_instances(gi, profile_id):
    """The compute instances of a profile in a GPU instance."""
    count = c_uint(8)
    found = (n.c_nvmlComputeInstance_t * count.value)()
    n.nvmlGpuInstanceGetComputeInstances(gi, profile_id, found, byref(count))
    return found[: count.value]


def print_gpu(gpu, at):
    pci = n.nvmlDeviceGetPciInfo(gpu)
    memory = n.nvmlDeviceGetMemoryInfo(gpu)
    memory2 = n.nvmlDeviceGetMemoryInfo(gpu, version=n.nvmlMemory_v2)
    major, minor = n.nvmlDeviceGetCudaComputeCapability(gpu)
    ecc = n.nvmlDeviceGetEccMode(gpu)
    active = 0
    for link in range(18):
        try:
            active += bool(n.nvmlDeviceGetNvLinkState(gpu, link))
        except n.NVMLError:
            pass
    print(f"gpu {at} {n.nvmlDeviceGetName(gpu)}")
    print(f"  uuid {n.nvmlDeviceGetUUID(gpu)} serial {n.nvmlDeviceGetSerial(gpu)} vbios {n.nvmlDeviceGetVbiosVersion(gpu)}")
    print(
        f"  minor {n.nvmlDeviceGetMinorNumber(gpu)} index {n.nvmlDeviceGetIndex(gpu)} pci {pci.busId}"
        f" device 0x{pci.pciDeviceId:08X} subsystem 0x{pci.pciSubSystemId:08X}"
    )
    print(
        f"  memory {memory.total} reserved {memory2.reserved} capability {major}.{minor}"
        f" brand {n.nvmlDeviceGetBrand(gpu)} architecture {n.nvmlDeviceGetArchitecture(gpu)}"
        f" cores {n.nvmlDeviceGetNumGpuCores(gpu)}"
    )
    print(
        f"  limit {n.nvmlDeviceGetPowerManagementLimit(gpu)} pcie {n.nvmlDeviceGetMaxPcieLinkGeneration(gpu)}x"
        f"{n.nvmlDeviceGetMaxPcieLinkWidth(gpu)} ecc {ecc[0]}/{ecc[1]} nvlinks {active}"
        f" mig {n.nvmlDeviceIsMigDeviceHandle(gpu).value} max {n.nvmlDeviceGetMaxMigDeviceCount(gpu)}"
    )


def print_profiles(gpu):
    for index in range(18):
        try:
            profile = n.nvmlDeviceGetGpuInstanceProfileInfo(gpu, index, version=2)
        except n.NVMLError_NotSupported:
            continue
        except n.NVMLError_InvalidArgument:
            break
        places = "".join(f" {place.start}:{place.size}" for place in possible_placements(gpu, profile.id))
        print(
            f"profile {index} id {profile.id} {profile.name} slices {profile.sliceCount}"
            f" instances {profile.instanceCount} sms {profile.multiprocessorCount} memory {profile.memorySizeMB}"
            f" at{places}"
        )


def print_mig(gpu):
    for index in range(n.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            mig = n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        except n.NVMLError_NotFound:
            continue
        uuid = n.nvmlDeviceGetUUID(mig)
        has = n.nvmlDeviceGetAttributes(mig)
        parent = n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
        same = "same" if n.nvmlDeviceGetUUID(parent) == n.nvmlDeviceGetUUID(gpu) else "other"
        print(
            f"mig {index} {n.nvmlDeviceGetName(mig)} {uuid[:4]}... {len(uuid)} gi {n.nvmlDeviceGetGpuInstanceId(mig)}"
            f" ci {n.nvmlDeviceGetComputeInstanceId(mig)} memory {n.nvmlDeviceGetMemoryInfo(mig).total}"
            f" slices {has.gpuInstanceSliceCount}/{has.computeInstanceSliceCount} sms {has.multiprocessorCount}"
            f" mb {has.memorySizeMB} mig {n.nvmlDeviceIsMigDeviceHandle(mig).value} parent {same}"
        )


def create(gpu, profile_index, compute_index):
    profile = n.nvmlDeviceGetGpuInstanceProfileInfo(gpu, profile_index, version=2)
    gi = n.nvmlDeviceCreateGpuInstance(gpu, profile.id)
    gi_info = n.nvmlGpuInstanceGetInfo(gi)
    compute = n.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, compute_index, 0)
    ci = n.nvmlGpuInstanceCreateComputeInstance(gi, compute.id)
    ci_info = n.nvmlComputeInstanceGetInfo(ci)
    print(
        f"created {profile.name} gi {gi_info.id} at {gi_info.placement.start}:{gi_info.placement.size}"
        f" ci {ci_info.id} profile {ci_info.profileId} sms {compute.multiprocessorCount}"
        f" at {ci_info.placement.start}:{ci_info.placement.size}"
    )
    return gi


def partition(gpu):
    status = n.nvmlDeviceSetMigMode(gpu, 1)
    current, pending = n.nvmlDeviceGetMigMode(gpu)
    print(f"mig on: {text(status)}, current {current} pending {pending}")
    instances = [(create(gpu, 2, 2), 2), (create(gpu, 0, 0), 0)]
    print_mig(gpu)
    profile = n.nvmlDeviceGetGpuInstanceProfileInfo(gpu, 0, version=2)
    left = n.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, profile.id)
    print(f"room for {left} more {profile.name}")
    whole = n.nvmlDeviceGetGpuInstanceProfileInfo(gpu, 4, version=2)
    print(f"create {whole.name}: {answer(n.nvmlDeviceCreateGpuInstance, gpu, whole.id)}")
    print(f"destroy gi with ci: {answer(n.nvmlGpuInstanceDestroy, instances[0][0])}")
    for gi, compute_index in instances:
        info = n.nvmlGpuInstanceGetInfo(gi)
        compute = n.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, compute_index, 0)
        found = compute_instances(gi, compute.id)
        ci_info = n.nvmlComputeInstanceGetInfo(found[0])
        n.nvmlComputeInstanceDestroy(found[0])
        n.nvmlGpuInstanceDestroy(gi)
        print(f"destroyed gi {info.id} ci {ci_info.id} of {len(found)}")
    print_mig(gpu)
    status = n.nvmlDeviceSetMigMode(gpu, 0)
    current, pending = n.nvmlDeviceGetMigMode(gpu)
    print(f"mig off: {text(status)}, current {current} pending {pending}")


def main():
    n.nvmlInit()
    count = n.nvmlDeviceGetCount()
    print(
        f"driver {n.nvmlSystemGetDriverVersion()} nvml {n.nvmlSystemGetNVMLVersion()}"
        f" cuda {n.nvmlSystemGetCudaDriverVersion_v2()} gpus {count}"
    )
    for at in range(count):
        print_gpu(n.nvmlDeviceGetHandleByIndex(at), at)
    gpu = n.nvmlDeviceGetHandleByIndex(0)
    print_profiles(gpu)
    partition(gpu)
    n.nvmlShutdown()


if __name__ == "__main__":
    main()

"""Calls the functions of NVML that an agent reads with, and prints the result of each call as JSON.

  probe.py >FILE                          the driver's library
  LD_LIBRARY_PATH=DIR probe.py >FILE      another library, such as the simulator

Needs nvidia-ml-py. Only reads. For each call, the output has the return code, the value if it describes the device instead of its current
load, and the duration in microseconds: the median of five calls, or that of one call if it fails. UUIDs and serial numbers are not part of
the output. `data/recorded` has recordings of real drivers, and a test compares them with the simulator.
"""

import json
import statistics
import sys
import time
from ctypes import byref, c_uint

import pynvml as n

REPEATS = 5
# More than the 18 profiles of GPU instances and the 18 links of NVML's header of 2026.
PROFILE_INDEXES = range(20)
LINKS = range(19)
EVENT_TYPES = 0x8 | 0x100
FIELDS = {"memoryTemperature": n.NVML_FI_DEV_MEMORY_TEMP, "recoveryAction": n.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION}
PROFILE_VALUES = ("id", "sliceCount", "instanceCount", "multiprocessorCount", "copyEngineCount", "decoderCount")
PROFILE_VALUES += ("encoderCount", "jpegCount", "ofaCount", "memorySizeMB")


class Recorder:
    def __init__(self):
        self.calls = {}

    def call(self, name, function, value=None):
        """Calls the function, records the result under the name, and returns it; `value` selects what is recorded of it."""
        result, code, durations = None, 0, []
        for _ in range(REPEATS):
            start = time.perf_counter()
            try:
                result = function()
            except n.NVMLError as error:
                code = error.value
            durations.append(time.perf_counter() - start)
            if code:
                break
        entry = {"code": code, "microseconds": round(statistics.median(durations) * 1e6, 1)}
        if result is not None and value is not None:
            entry["value"] = value(result)
        self.calls[name] = entry
        return result


def same(value):
    return value


def fields(*names):
    return lambda result: {name: getattr(result, name) for name in names}


def placements(gpu, profile_id):
    count = c_uint(0)
    n.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile_id, None, byref(count))
    places = (n.c_nvmlGpuInstancePlacement_t * count.value)()
    n.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile_id, places, byref(count))
    return [[place.start, place.size] for place in places[: count.value]]


def gpu_instances(gpu, profile_id):
    count = c_uint(0)
    found = (n.c_nvmlGpuInstance_t * 64)()
    n.nvmlDeviceGetGpuInstances(gpu, profile_id, found, byref(count))
    return count.value


def registered(gpu, types):
    events = n.nvmlEventSetCreate()
    try:
        n.nvmlDeviceRegisterEvents(gpu, types, events)
    finally:
        n.nvmlEventSetFree(events)


def wait_for_events(gpu):
    events = n.nvmlEventSetCreate()
    try:
        n.nvmlDeviceRegisterEvents(gpu, EVENT_TYPES, events)
        n.nvmlEventSetWait_v2(events, 100)
    finally:
        n.nvmlEventSetFree(events)


def fabric(gpu):
    info = n.c_nvmlGpuFabricInfoV_t()
    n.nvmlDeviceGetGpuFabricInfoV(gpu, byref(info))
    return info


def field_value(gpu, field):
    value = n.nvmlDeviceGetFieldValues(gpu, [field])[0]
    if value.nvmlReturn:
        raise n.NVMLError(value.nvmlReturn)
    return value.value.uiVal


def gpm(gpu, take):
    """The utilization between two samples. The library needs 100 ms between them (nvml.h, "GPM")."""
    first, second = n.nvmlGpmSampleAlloc(), n.nvmlGpmSampleAlloc()
    try:
        take(gpu, first)
        time.sleep(0.2)
        take(gpu, second)
        request = n.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = n.NVML_GPM_METRICS_GET_VERSION, 2
        request.sample1, request.sample2 = first, second
        request.metrics[0].metricId = n.NVML_GPM_METRIC_GRAPHICS_UTIL
        request.metrics[1].metricId = n.NVML_GPM_METRIC_SM_UTIL
        n.nvmlGpmMetricsGet(request)
        return [(metric.nvmlReturn, metric.value) for metric in request.metrics[:2]]
    finally:
        n.nvmlGpmSampleFree(first)
        n.nvmlGpmSampleFree(second)


def identity(record, gpu):
    record.call("nvmlDeviceGetName", lambda: n.nvmlDeviceGetName(gpu), same)
    record.call("nvmlDeviceGetUUID", lambda: n.nvmlDeviceGetUUID(gpu), len)
    pci = fields("pciDeviceId", "pciSubSystemId", "domain", "device")
    record.call("nvmlDeviceGetPciInfo_v3", lambda: n.nvmlDeviceGetPciInfo(gpu), lambda info: pci(info) | {"busIdLength": len(info.busId)})
    record.call("nvmlDeviceGetMinorNumber", lambda: n.nvmlDeviceGetMinorNumber(gpu), same)
    record.call("nvmlDeviceGetArchitecture", lambda: n.nvmlDeviceGetArchitecture(gpu), same)
    record.call("nvmlDeviceGetCudaComputeCapability", lambda: n.nvmlDeviceGetCudaComputeCapability(gpu), list)
    record.call("nvmlDeviceGetMemoryInfo", lambda: n.nvmlDeviceGetMemoryInfo(gpu), fields("total"))
    record.call("nvmlDeviceGetMemoryInfo_v2", lambda: n.nvmlDeviceGetMemoryInfo(gpu, n.nvmlMemory_v2), fields("total", "reserved"))
    record.call("nvmlDeviceGetGpuFabricInfoV", lambda: fabric(gpu), lambda info: {"state": info.state & 0xFF, "status": info.status})
    record.call("nvmlDeviceGetAttributes_v2", lambda: n.nvmlDeviceGetAttributes(gpu), fields("memorySizeMB"))


def health(record, gpu):
    record.call("nvmlDeviceGetEccMode", lambda: n.nvmlDeviceGetEccMode(gpu), list)
    for name, counter in (("volatile", 0), ("aggregate", 1)):
        record.call(f"nvmlDeviceGetTotalEccErrors {name} uncorrected", lambda c=counter: n.nvmlDeviceGetTotalEccErrors(gpu, 1, c))
    record.call("nvmlDeviceGetRemappedRows", lambda: n.nvmlDeviceGetRemappedRows(gpu))
    record.call("nvmlDeviceGetPcieReplayCounter", lambda: n.nvmlDeviceGetPcieReplayCounter(gpu))
    for name, field in FIELDS.items():
        record.call(f"nvmlDeviceGetFieldValues {name}", lambda f=field: field_value(gpu, f))
    types = record.call("nvmlDeviceGetSupportedEventTypes", lambda: n.nvmlDeviceGetSupportedEventTypes(gpu), same)
    record.call("nvmlDeviceRegisterEvents", lambda: registered(gpu, EVENT_TYPES))
    record.call("nvmlEventSetWait_v2 without an event", lambda: wait_for_events(gpu))
    if types is not None:
        record.call("nvmlDeviceRegisterEvents of all supported types", lambda: registered(gpu, types))


def load(record, gpu):
    record.call("nvmlDeviceGetUtilizationRates", lambda: n.nvmlDeviceGetUtilizationRates(gpu))
    record.call("nvmlDeviceGetEncoderUtilization", lambda: n.nvmlDeviceGetEncoderUtilization(gpu))
    record.call("nvmlDeviceGetDecoderUtilization", lambda: n.nvmlDeviceGetDecoderUtilization(gpu))
    record.call("nvmlDeviceGetPowerUsage", lambda: n.nvmlDeviceGetPowerUsage(gpu))
    record.call("nvmlDeviceGetTotalEnergyConsumption", lambda: n.nvmlDeviceGetTotalEnergyConsumption(gpu))
    record.call("nvmlDeviceGetTemperature", lambda: n.nvmlDeviceGetTemperature(gpu, 0))
    record.call("nvmlDeviceGetClockInfo", lambda: n.nvmlDeviceGetClockInfo(gpu, 1))
    instances = lambda found: sorted({(process.gpuInstanceId, process.computeInstanceId) for process in found})
    record.call("nvmlDeviceGetComputeRunningProcesses_v3", lambda: n.nvmlDeviceGetComputeRunningProcesses_v3(gpu), instances)
    record.call("nvmlDeviceGetGraphicsRunningProcesses_v3", lambda: n.nvmlDeviceGetGraphicsRunningProcesses_v3(gpu))
    record.call("nvmlDeviceGetProcessUtilization", lambda: n.nvmlDeviceGetProcessUtilization(gpu, 0))


def partitions(record, gpu):
    record.call("nvmlDeviceGetMigMode", lambda: n.nvmlDeviceGetMigMode(gpu), list)
    record.call("nvmlDeviceGetMaxMigDeviceCount", lambda: n.nvmlDeviceGetMaxMigDeviceCount(gpu), same)
    record.call("nvmlDeviceGetMigDeviceHandleByIndex 0", lambda: n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0))
    record.call("nvmlDeviceGetGpuInstanceById 0", lambda: n.nvmlDeviceGetGpuInstanceById(gpu, 0))
    for index in PROFILE_INDEXES:
        short = fields(*PROFILE_VALUES)
        record.call(f"nvmlDeviceGetGpuInstanceProfileInfo {index}", lambda i=index: n.nvmlDeviceGetGpuInstanceProfileInfo(gpu, i, 1), short)
        info = record.call(
            f"nvmlDeviceGetGpuInstanceProfileInfoV 2 {index}",
            lambda i=index: n.nvmlDeviceGetGpuInstanceProfileInfo(gpu, i),
            lambda found: short(found) | {"name": text(found.name)},
        )
        if info is not None:
            record.call(f"nvmlDeviceGetGpuInstancePossiblePlacements_v2 of profile {info.id}", lambda i=info.id: placements(gpu, i), same)
            record.call(f"nvmlDeviceGetGpuInstances of profile {info.id}", lambda i=info.id: gpu_instances(gpu, i), same)


def monitoring(record, gpu):
    record.call("nvmlGpmQueryDeviceSupport", lambda: n.nvmlGpmQueryDeviceSupport(gpu), fields("isSupportedDevice"))
    codes = lambda metrics: [code for code, _ in metrics]
    record.call("nvmlGpmSampleGet, nvmlGpmMetricsGet", lambda: gpm(gpu, n.nvmlGpmSampleGet), codes)
    record.call("nvmlGpmMigSampleGet 0, nvmlGpmMetricsGet", lambda: gpm(gpu, lambda g, sample: n.nvmlGpmMigSampleGet(g, 0, sample)), codes)


def links(record, gpu):
    for link in LINKS:
        record.call(f"nvmlDeviceGetNvLinkState {link}", lambda i=link: n.nvmlDeviceGetNvLinkState(gpu, i), same)
    record.call("nvmlDeviceGetNvLinkRemoteDeviceType 0", lambda: n.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, 0), same)
    record.call("nvmlDeviceGetNvLinkRemotePciInfo_v2 0", lambda: n.nvmlDeviceGetNvLinkRemotePciInfo(gpu, 0))


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def main():
    record = Recorder()
    started = time.perf_counter()
    n.nvmlInit()
    loaded = time.perf_counter() - started
    record.call("nvmlSystemGetDriverVersion", n.nvmlSystemGetDriverVersion, same)
    record.call("nvmlSystemGetCudaDriverVersion_v2", n.nvmlSystemGetCudaDriverVersion_v2, same)
    count = record.call("nvmlDeviceGetCount_v2", n.nvmlDeviceGetCount, same)
    record.call("nvmlDeviceGetHandleByIndex_v2 beyond the last", lambda: n.nvmlDeviceGetHandleByIndex(count))
    gpu = record.call("nvmlDeviceGetHandleByIndex_v2 0", lambda: n.nvmlDeviceGetHandleByIndex(0))
    for part in (identity, health, load, partitions, monitoring, links):
        part(record, gpu)
    json.dump({"initMilliseconds": round(loaded * 1000, 1), "calls": record.calls}, sys.stdout, indent=1, default=str)
    print()


if __name__ == "__main__":
    main()

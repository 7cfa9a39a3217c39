// The same walk as clients/c/walk.c through go-nvml, unchanged.
package main

import (
	"fmt"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func must(what string, ret nvml.Return) {
	if ret != nvml.SUCCESS {
		fmt.Printf("%s: %s\n", what, ret)
		os.Exit(1)
	}
}

// got unwraps a value that has to be there.
func got[T any](value T, ret nvml.Return) T {
	must(fmt.Sprintf("%T", value), ret)
	return value
}

// text leaves out what go-nvml's own Error adds.
func text(ret nvml.Return) string { return nvml.ErrorString(ret) }

func chars[T ~int8 | ~uint8](field []T) string {
	var bytes []byte
	for _, char := range field {
		if char == 0 {
			break
		}
		bytes = append(bytes, byte(char))
	}
	return string(bytes)
}

func one(flag bool) int {
	if flag {
		return 1
	}
	return 0
}

func printGpu(gpu nvml.Device, at int) {
	name := got(gpu.GetName())
	uuid := got(gpu.GetUUID())
	serial := got(gpu.GetSerial())
	vbios := got(gpu.GetVbiosVersion())
	minor := got(gpu.GetMinorNumber())
	index := got(gpu.GetIndex())
	pci := got(gpu.GetPciInfo())
	memory := got(gpu.GetMemoryInfo())
	memory2 := got(gpu.GetMemoryInfo_v2())
	major, less, ret := gpu.GetCudaComputeCapability()
	must("GetCudaComputeCapability", ret)
	brand := got(gpu.GetBrand())
	arch := got(gpu.GetArchitecture())
	limit := got(gpu.GetPowerManagementLimit())
	cores := got(gpu.GetNumGpuCores())
	gen := got(gpu.GetMaxPcieLinkGeneration())
	width := got(gpu.GetMaxPcieLinkWidth())
	isMig := got(gpu.IsMigDeviceHandle())
	maxMig := got(gpu.GetMaxMigDeviceCount())
	ecc, pending, ret := gpu.GetEccMode()
	must("GetEccMode", ret)
	active := 0
	for link := 0; link < 18; link++ {
		state, ret := gpu.GetNvLinkState(link)
		active += one(ret == nvml.SUCCESS && state == nvml.FEATURE_ENABLED)
	}
	fmt.Printf("gpu %d %s\n", at, name)
	fmt.Printf("  uuid %s serial %s vbios %s\n", uuid, serial, vbios)
	fmt.Printf("  minor %d index %d pci %s device 0x%08X subsystem 0x%08X\n", minor, index, chars(pci.BusId[:]),
		pci.PciDeviceId, pci.PciSubSystemId)
	fmt.Printf("  memory %d reserved %d capability %d.%d brand %d architecture %d cores %d\n", memory.Total,
		memory2.Reserved, major, less, brand, arch, cores)
	fmt.Printf("  limit %d pcie %dx%d ecc %d/%d nvlinks %d mig %d max %d\n", limit, gen, width, ecc, pending, active,
		one(isMig), maxMig)
}

func printProfiles(gpu nvml.Device) {
	for index := 0; index < 18; index++ {
		profile, ret := gpu.GetGpuInstanceProfileInfoV(index).V2()
		if ret == nvml.ERROR_NOT_SUPPORTED {
			continue
		}
		if ret == nvml.ERROR_INVALID_ARGUMENT {
			break
		}
		must("GetGpuInstanceProfileInfoV", ret)
		info := got(gpu.GetGpuInstanceProfileInfo(index))
		fmt.Printf("profile %d id %d %s slices %d instances %d sms %d memory %d at", index, profile.Id,
			chars(profile.Name[:]), profile.SliceCount, profile.InstanceCount, profile.MultiprocessorCount,
			profile.MemorySizeMB)
		for _, place := range got(gpu.GetGpuInstancePossiblePlacements(&info)) {
			fmt.Printf(" %d:%d", place.Start, place.Size)
		}
		fmt.Println()
	}
}

func printMig(gpu nvml.Device) {
	for index := 0; index < got(gpu.GetMaxMigDeviceCount()); index++ {
		mig, ret := gpu.GetMigDeviceHandleByIndex(index)
		if ret == nvml.ERROR_NOT_FOUND {
			continue
		}
		must("GetMigDeviceHandleByIndex", ret)
		uuid := got(mig.GetUUID())
		has := got(mig.GetAttributes())
		parent := "other"
		if got(mig.GetDeviceHandleFromMigDeviceHandle()) == gpu {
			parent = "same"
		}
		fmt.Printf("mig %d %s %.4s... %d gi %d ci %d memory %d slices %d/%d sms %d mb %d mig %d parent %s\n", index,
			got(mig.GetName()), uuid, len(uuid), got(mig.GetGpuInstanceId()), got(mig.GetComputeInstanceId()),
			got(mig.GetMemoryInfo()).Total, has.GpuInstanceSliceCount, has.ComputeInstanceSliceCount,
			has.MultiprocessorCount, has.MemorySizeMB, one(got(mig.IsMigDeviceHandle())), parent)
	}
}

func create(gpu nvml.Device, profileIndex int, computeIndex int) nvml.GpuInstance {
	named := got(gpu.GetGpuInstanceProfileInfoV(profileIndex).V2())
	profile := got(gpu.GetGpuInstanceProfileInfo(profileIndex))
	gi := got(gpu.CreateGpuInstance(&profile))
	giInfo := got(gi.GetInfo())
	compute := got(gi.GetComputeInstanceProfileInfo(computeIndex, 0))
	ci := got(gi.CreateComputeInstance(&compute))
	ciInfo := got(ci.GetInfo())
	fmt.Printf("created %s gi %d at %d:%d ci %d profile %d sms %d at %d:%d\n", chars(named.Name[:]), giInfo.Id,
		giInfo.Placement.Start, giInfo.Placement.Size, ciInfo.Id, ciInfo.ProfileId, compute.MultiprocessorCount,
		ciInfo.Placement.Start, ciInfo.Placement.Size)
	return gi
}

func partition(gpu nvml.Device) {
	status, ret := gpu.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	must("SetMigMode", ret)
	current, pending, ret := gpu.GetMigMode()
	must("GetMigMode", ret)
	fmt.Printf("mig on: %s, current %d pending %d\n", text(status), current, pending)
	instances := []nvml.GpuInstance{create(gpu, 2, 2), create(gpu, 0, 0)}
	printMig(gpu)
	profile := got(gpu.GetGpuInstanceProfileInfo(0))
	named := got(gpu.GetGpuInstanceProfileInfoV(0).V2())
	fmt.Printf("room for %d more %s\n", got(gpu.GetGpuInstanceRemainingCapacity(&profile)), chars(named.Name[:]))
	whole := got(gpu.GetGpuInstanceProfileInfo(4))
	named = got(gpu.GetGpuInstanceProfileInfoV(4).V2())
	_, ret = gpu.CreateGpuInstance(&whole)
	fmt.Printf("create %s: %s\n", chars(named.Name[:]), text(ret))
	fmt.Printf("destroy gi with ci: %s\n", text(instances[0].Destroy()))
	for at, gi := range instances {
		info := got(gi.GetInfo())
		compute := got(gi.GetComputeInstanceProfileInfo([]int{2, 0}[at], 0))
		found := got(gi.GetComputeInstances(&compute))
		ciInfo := got(found[0].GetInfo())
		must("ComputeInstance.Destroy", found[0].Destroy())
		must("GpuInstance.Destroy", gi.Destroy())
		fmt.Printf("destroyed gi %d ci %d of %d\n", info.Id, ciInfo.Id, len(found))
	}
	printMig(gpu)
	status, ret = gpu.SetMigMode(nvml.DEVICE_MIG_DISABLE)
	must("SetMigMode", ret)
	current, pending, ret = gpu.GetMigMode()
	must("GetMigMode", ret)
	fmt.Printf("mig off: %s, current %d pending %d\n", text(status), current, pending)
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: walk LIBRARY")
		os.Exit(2)
	}
	nvml.SetLibraryOptions(nvml.WithLibraryPath(os.Args[1]))
	must("Init", nvml.Init())
	count := got(nvml.DeviceGetCount())
	fmt.Printf("driver %s nvml %s cuda %d gpus %d\n", got(nvml.SystemGetDriverVersion()),
		got(nvml.SystemGetNVMLVersion()), got(nvml.SystemGetCudaDriverVersion_v2()), count)
	for at := 0; at < count; at++ {
		printGpu(got(nvml.DeviceGetHandleByIndex(at)), at)
	}
	gpu := got(nvml.DeviceGetHandleByIndex(0))
	printProfiles(gpu)
	partition(gpu)
	must("Shutdown", nvml.Shutdown())
}

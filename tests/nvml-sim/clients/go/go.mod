module walk

go 1.21

require github.com/NVIDIA/go-nvml v0.13.3-0

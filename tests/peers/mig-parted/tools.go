//go:build tools

// Package peer pins NVIDIA's mig-parted, which tests/it/peer_mig_parted.rs builds and runs beside our reader of layouts.
package peer

import _ "github.com/NVIDIA/mig-parted/cmd/nvidia-mig-parted"

//go:build tools

// Package peer pins NVIDIA's device plugin, which benches/sharing.rs runs beside ours.
package peer

import _ "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin"

//go:build tools

// Package peer pins NVIDIA's gpu-feature-discovery, which tests/it/peer_gfd.rs builds and runs beside ours.
package peer

import _ "github.com/NVIDIA/k8s-device-plugin/cmd/gpu-feature-discovery"

//go:build tools

// Package peer pins krew, which tests/it-cluster/release installs the kubectl plugin of a release with.
package peer

import (
	_ "sigs.k8s.io/krew/cmd/krew"
	_ "sigs.k8s.io/krew/cmd/validate-krew-manifest"
)

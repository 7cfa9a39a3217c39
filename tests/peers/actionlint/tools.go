//go:build tools

// Package peer pins actionlint, which tests/it/workflows.rs runs on the workflows.
package peer

import _ "github.com/rhysd/actionlint/cmd/actionlint"

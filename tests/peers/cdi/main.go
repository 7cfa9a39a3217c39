// Command cdi does with CDI descriptions what container runtimes do, by the library that they are built with.
//
// cdi FOLDER DEVICE...: reads the descriptions in FOLDER and prints what becomes of an empty container that is given these devices.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(folder string, devices []string) error {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(folder), cdi.WithAutoRefresh(false))
	if err != nil {
		return err
	}
	for path, errors := range cache.GetErrors() {
		return fmt.Errorf("%s: %v", path, errors)
	}
	spec := &oci.Spec{Process: &oci.Process{}, Linux: &oci.Linux{}}
	if unknown, err := cache.InjectDevices(spec, devices...); err != nil {
		return fmt.Errorf("%v: %w", unknown, err)
	}
	return json.NewEncoder(os.Stdout).Encode(spec)
}

// schemas DIR SWAGGER CRDS...: writes a strict JSON schema of each kind of Kubernetes and of the CRDs to DIR.
//
// Strict means that unknown fields are rejected, as by an API server with strict field validation. CEL rules are not evaluated.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

type schema = map[string]any

const meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// Kinds that accept any JSON value.
var open = []string{".JSON", ".JSONSchemaProps", ".JSONSchemaPropsOrArray", ".JSONSchemaPropsOrBool", ".JSONSchemaPropsOrStringArray"}

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("usage: schemas DIR SWAGGER CRDS..."))
	}
	definitions, kinds := ofKubernetes(os.Args[2])
	written := 0
	for name, served := range kinds {
		for _, kind := range served {
			write(os.Args[1], kind, definitions[name].(schema), definitions)
			written++
		}
	}
	for _, path := range os.Args[3:] {
		written += ofCRDs(path, os.Args[1], definitions)
	}
	fmt.Fprintf(os.Stderr, "==> %d schemas\n", written)
}

// Returns the strict definitions, and the kinds that are served with each of them.
func ofKubernetes(path string) (schema, map[string][]string) {
	text, err := os.ReadFile(path)
	fail(err)
	var swagger struct{ Definitions schema }
	fail(json.Unmarshal(text, &swagger))
	kinds := map[string][]string{}
	for name, definition := range swagger.Definitions {
		served, _ := definition.(schema)["x-kubernetes-group-version-kind"].([]any)
		for _, one := range served {
			kind := one.(schema)
			kinds[name] = append(kinds[name], file(kind["kind"], kind["group"], kind["version"]))
		}
		tighten(definition)
		if strings.HasSuffix(name, "resource.Quantity") {
			swagger.Definitions[name] = schema{"type": []any{"string", "number"}}
		}
		for _, end := range open {
			if strings.HasSuffix(name, end) {
				swagger.Definitions[name] = schema{}
			}
		}
	}
	return swagger.Definitions, kinds
}

// Returns the number of schemas.
func ofCRDs(path, folder string, definitions schema) int {
	text, err := os.ReadFile(path)
	fail(err)
	written := 0
	for _, document := range strings.Split(string(text), "\n---") {
		var crd struct {
			Kind string
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema schema }
				}
			}
		}
		fail(yaml.Unmarshal([]byte(document), &crd))
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		for _, version := range crd.Spec.Versions {
			body := version.Schema.OpenAPIV3Schema
			properties := body["properties"].(schema)
			properties["metadata"] = schema{"$ref": "#/definitions/" + meta}
			tighten(body)
			write(folder, file(crd.Spec.Names.Kind, crd.Spec.Group, version.Name), body, definitions)
			written++
		}
	}
	if written == 0 {
		fail(fmt.Errorf("%s: no CustomResourceDefinition in it", path))
	}
	return written
}

// Returns the file name that kubeconform expects: for kinds of the core group, its Group is the version.
func file(kind, group, version any) string {
	if group == "" {
		group = version
	}
	return strings.ToLower(fmt.Sprintf("%v-%v-%v.json", kind, group, version))
}

// Rejects unlisted fields, and removes the extensions with which Kubernetes describes types.
func tighten(value any) {
	switch value := value.(type) {
	case schema:
		if value["format"] == "int-or-string" || value["x-kubernetes-int-or-string"] == true {
			delete(value, "format")
			delete(value, "anyOf")
			value["type"] = []any{"string", "integer"}
		}
		_, listed := value["properties"].(schema)
		_, said := value["additionalProperties"]
		if listed && !said && value["x-kubernetes-preserve-unknown-fields"] != true {
			value["additionalProperties"] = false
		}
		if _, isText := value["description"].(string); isText {
			delete(value, "description")
		}
		for _, one := range value {
			tighten(one)
		}
	case []any:
		for _, one := range value {
			tighten(one)
		}
	}
}

func write(folder, name string, body, definitions schema) {
	used := schema{}
	collect(body, definitions, used)
	whole := schema{"definitions": used}
	for key, value := range body {
		whole[key] = value
	}
	text, err := json.Marshal(whole)
	fail(err)
	fail(os.WriteFile(filepath.Join(folder, name), text, 0o644))
}

// Returns all definitions to which a schema refers.
func collect(value any, definitions, used schema) {
	switch value := value.(type) {
	case schema:
		if reference, is := value["$ref"].(string); is {
			name := strings.TrimPrefix(reference, "#/definitions/")
			if _, seen := used[name]; !seen {
				used[name] = definitions[name]
				collect(definitions[name], definitions, used)
			}
		}
		for _, one := range value {
			collect(one, definitions, used)
		}
	case []any:
		for _, one := range value {
			collect(one, definitions, used)
		}
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

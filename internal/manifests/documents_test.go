// Package manifests holds the tests of the YAML in deploy and envoy that no test
// of Weir's own module can read: it would need Kubernetes' types, the schemas of
// the gateways, Helm and Compose. They are this module's, and none of Weir's.
package manifests

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// root is the repository, seen from this folder.
const root = "../.."

// document is one of a YAML file's, or of what Helm rendered.
type document struct {
	file string
	text []byte
	head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
}

func (d document) name() string { return d.file + ": " + d.head.Kind + " " + d.head.Metadata.Name }

func (d document) kind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(d.head.APIVersion, d.head.Kind)
}

// parse splits YAML into its documents. What has only comments is none.
func parse(t *testing.T, file string, text []byte) []document {
	t.Helper()
	var docs []document
	for reader := utilyaml.NewYAMLReader(newReader(text)); ; {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		d := document{file: file, text: part}
		if err := yaml.Unmarshal(part, &d.head); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if d.head.Kind == "" {
			if stripped, err := yaml.YAMLToJSON(part); err != nil || !bytes.Equal(bytes.TrimSpace(stripped), []byte("null")) {
				t.Errorf("%s: a document without a kind: %s", file, part)
			}
			continue
		}
		docs = append(docs, d)
	}
}

// read returns the documents of the YAML files that match patterns beneath the
// repository.
func read(t *testing.T, patterns ...string) []document {
	t.Helper()
	var docs []document
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %d files", pattern, err, len(files))
		}
		slices.Sort(files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			docs = append(docs, parse(t, strings.TrimPrefix(file, root+"/"), text)...)
		}
	}
	return docs
}

// only returns the one document of a kind and name.
func only(t *testing.T, docs []document, kind, name string) document {
	t.Helper()
	var found []document
	for _, d := range docs {
		if d.head.Kind == kind && d.head.Metadata.Name == name {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d of kind %s named %s, want one", len(found), kind, name)
	}
	return found[0]
}

//go:build crds

// Package manifests holds the tests of the YAML in deploy and envoy. This file is
// never built: it keeps in go.mod the modules whose CustomResourceDefinitions the
// tests read from the module cache.
package manifests

import (
	_ "github.com/envoyproxy/gateway/api/v1alpha1"
	_ "github.com/projectcontour/contour/apis/projectcontour/v1"
	_ "istio.io/api/networking/v1alpha3"
)

package weirv1

import _ "embed"

//go:embed weir.swagger.json
var openAPI string

// OpenAPI is the API over HTTP as an OpenAPI 2.0 document, in JSON.
func OpenAPI() string { return openAPI }

// Package console is the web page that shows what a server does: one page, as it
// stands in this folder, without a build step and without the network. It holds
// no data: the page reads the JSON API of its own server, which asks for the
// admin token where it needs one.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"path"
	"time"
)

//go:embed *.html *.css *.js *.svg
var files embed.FS

// policy lets the page load nothing but its own files, talk to nobody but its
// own server, and be in no frame; no text can become markup or a script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handler serves the page at / and its files below /console/. Whatever is called
// otherwise is not found.
func Handler() http.Handler {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // embedded: cannot happen
	}
	mux := http.NewServeMux()
	for _, e := range entries {
		content, err := files.ReadFile(e.Name())
		if err != nil {
			panic(err)
		}
		pattern := "GET /console/" + e.Name()
		if e.Name() == "index.html" {
			pattern = "GET /{$}"
		}
		mux.Handle(pattern, file(e.Name(), content))
	}
	return mux
}

// file serves one file. Browsers ask again each time whether it is still the same,
// so that a page is never of two versions of the server.
func file(name string, content []byte) http.Handler {
	etag := fmt.Sprintf(`"%x"`, sha256.Sum256(content))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType(name))
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", etag)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}

// contentType is that of the file, whatever the machine's own list says.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	}
	return "image/svg+xml"
}

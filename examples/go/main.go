// Command go is an HTTP server that lets Weir decide which requests it serves.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"weir/client"
)

func main() {
	weir, err := client.New(client.Options{
		Addr:      cmp.Or(os.Getenv("WEIR_ADDR"), client.DefaultAddr),
		OnFailure: client.Allow, // without Weir, requests pass
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux() // it redirects what is no clean path, such as //api/posts, so that none gets around its limit
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	server := &http.Server{
		Addr:              cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8000"),
		Handler:           weir.Handler(mux, client.HTTPOptions{}),
		ReadHeaderTimeout: 5 * time.Second,
	}
	log.Fatal(server.ListenAndServe())
}

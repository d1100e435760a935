package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"google.golang.org/grpc"

	weirv1 "weir/api/weir/v1"
	"weir/client"
)

// An HTTP service of which each client may use each path as the rules say.
func Example() {
	weir, err := client.New(client.Options{Addr: "127.0.0.1:8081"})
	if err != nil {
		log.Fatal(err)
	}
	defer weir.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/api/posts", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "posted") })
	log.Fatal(http.ListenAndServe("127.0.0.1:8000", weir.Handler(mux, client.HTTPOptions{})))
}

// What a request is limited by, and how long it may be held, are the service's
// choice.
func ExampleClient_Handler() {
	weir, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer weir.Close()
	posts := weir.Handler(http.NotFoundHandler(), client.HTTPOptions{
		Descriptors: func(r *http.Request) []*weirv1.Descriptor {
			user, _, _ := r.BasicAuth()
			return []*weirv1.Descriptor{client.Describe("endpoint", "/api/posts", "user", user)}
		},
	})
	http.Handle("/api/posts", posts)
}

// A gRPC service.
func ExampleClient_UnaryServerInterceptor() {
	weir, err := client.New(client.Options{OnFailure: client.Error})
	if err != nil {
		log.Fatal(err)
	}
	defer weir.Close()
	s := grpc.NewServer(
		grpc.UnaryInterceptor(weir.UnaryServerInterceptor(client.GRPCOptions{})),
		grpc.StreamInterceptor(weir.StreamServerInterceptor(client.GRPCOptions{})),
	)
	defer s.Stop()
}

// A job that is no request.
func ExampleClient_Check() {
	weir, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer weir.Close()
	about := client.Describe("job", "newsletter")
	hits := uint64(500) // mails
	about.Hits = &hits
	d, err := weir.Check(context.Background(), "jobs", about)
	switch {
	case err != nil:
		log.Fatal(err)
	case !d.Allowed:
		for _, limit := range d.Response.Decisions {
			fmt.Println("come back after", limit.RetryAfter.AsDuration())
		}
	}
}

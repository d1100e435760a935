package envoy_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A language model, whose answers are as the request's header Say wants them:
// JSON N, LONG N, STREAM N, or another content type and a text.
func languageModel(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("the upstream is asked to compress its answer")
		}
		kind, text, _ := strings.Cut(r.Header.Get("Say"), " ")
		switch kind {
		case "JSON":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"choices":[{"message":{"content":"hello"}}],"usage":{"prompt_tokens":1,"total_tokens":%s}}`, text)
		case "LONG":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"choices":[{"message":{"content":"%s"}}],"usage":{"total_tokens":%s}}`, strings.Repeat("hello ", 1_000_000), text)
		case "STREAM":
			w.Header().Set("Content-Type", "text/event-stream")
			for range 3 {
				fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}],\"usage\":null}\n\n")
				w.(http.Flusher).Flush()
			}
			fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"total_tokens\":%s}}\n\ndata: [DONE]\n\n", text)
		default:
			w.Header().Set("Content-Type", kind)
			fmt.Fprint(w, text)
		}
	})
}

func TestATokenBudgetIsChargedWhatAnAnswerCost(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			r := startRecipe(t, "llm-budget", recipeOptions{upstream: languageModel(t)})
			a := r.asker(t)
			ask := func(remark, key, say string, code int) response {
				t.Helper()
				s := step{remark: remark, method: "POST", path: "/v1/chat/completions", header: []string{"X-Api-Key", key, "Say", say, "Accept-Encoding", "gzip"}, code: code}
				answer := r.send(t, protocol, s)
				answer.what = remark
				answer.want(t, code, nil)
				return answer
			}
			ask("in one piece", "ann", "JSON 300", 200)
			a.charged(t, 700, "llm", "tokens_of=ann")
			stream := ask("in events", "ann", "STREAM 400", 200)
			if strings.Count(stream.body, "data: ") != 5 {
				t.Errorf("events are lost: %q", stream.body)
			}
			a.charged(t, 300, "llm", "tokens_of=ann")
			for _, say := range []string{`JSON null`, `JSON "many"`, `application/json {"error": {}}`, `application/json not JSON`, `text/plain hello`, `application/json `} {
				ask("no count", "ann", say, 200)
			}
			ask("a charset beside the content type", "bob", `application/json;charset=utf-8 {"usage":{"total_tokens":100}}`, 200)
			a.charged(t, 900, "llm", "tokens_of=bob")
			long := ask("a long one", "ann", "LONG 100", 200)
			if len(long.body) < 6_000_000 {
				t.Errorf("%d bytes of the answer arrive", len(long.body))
			}
			a.charged(t, 200, "llm", "tokens_of=ann")

			ask("it costs more than is left, which nobody knew", "ann", "STREAM 900", 200)
			a.charged(t, 0, "llm", "tokens_of=ann")
			seen := r.upstreamed.Load()
			refused := ask("over", "ann", "JSON 1", 429)
			refused.want(t, 429, over("1000"))
			if refused.header.Get("Retry-After") == "" {
				t.Error("a refusal without Retry-After")
			}
			if got := r.upstreamed.Load(); got != seen {
				t.Error("a refused request reached the model")
			}
			ask("another key", "ben", "JSON 1", 200)

			// The budget is overdrawn by 700: what comes back first fills that.
			back := descriptor(wrapperspb.UInt64(700), "tokens_of=ann")
			back.IsNegativeHits = true
			a.ask(t, "llm", back)
			if _, refuses := a.left(t, "llm", "tokens_of=ann"); refuses {
				t.Error("what was paid back in full refuses")
			}
			if n, _ := a.left(t, "llm", "tokens_of=ann"); n != 0 {
				t.Errorf("%d left, 1700 were charged, and 700 given back", n)
			}
			if strings.Contains(r.envoy.Output(), "hits_addend") {
				t.Error("Envoy warns of costs that it cannot read")
			}
		})
	}
}

// Events pass as they come: the filters do not hold them back for the count.
func TestACountedStreamIsNotHeldBack(t *testing.T) {
	t.Parallel()
	read := make(chan struct{}) // closed when the client has the first event
	r := startRecipe(t, "llm-budget", recipeOptions{upstream: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"n\":1}\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-read:
			fmt.Fprint(w, "data: {\"usage\":{\"total_tokens\":10}}\n\n")
		case <-req.Context().Done():
		}
	})})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+"/v1/chat/completions", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "ann")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	if line, err := body.ReadString('\n'); err != nil || line != "data: {\"n\":1}\n" {
		t.Fatalf("%q, %v", line, err)
	}
	close(read)
	if _, err := io.Copy(io.Discard, body); err != nil {
		t.Fatal(err)
	}
	r.asker(t).charged(t, 990, "llm", "tokens_of=ann")
}

// A client that leaves before the end pays what the events have counted so far.
func TestAClientThatLeavesPaysWhatWasCountedByThen(t *testing.T) {
	t.Parallel()
	r := startRecipe(t, "llm-budget", recipeOptions{upstream: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"usage\":{\"total_tokens\":10}}\n\n")
		w.(http.Flusher).Flush()
		<-req.Context().Done()
	})})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+"/v1/chat/completions", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "ann")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Errorf("%q, %v", line, err)
	}
	_ = resp.Body.Close()
	r.asker(t).charged(t, 990, "llm", "tokens_of=ann")
}

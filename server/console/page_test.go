package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"weir/internal/testenv"
)

// page is the console in a browser of its own: real, headless, without anything
// from before.
type page struct {
	ctx context.Context
	t   *testing.T

	mu       sync.Mutex
	problems []string // errors and warnings in its console, faults of scripts, breaches of the policy
	asked    []string // what was requested
	allowed  []string // problems that the test brings about
}

// open shows the console of a server, and fails the test if the page ever has a
// fault, breaks its policy, or asks another host for anything.
func open(t *testing.T, addr string) *page {
	t.Helper()
	p := &page{t: t}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(testenv.Chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP rebound.test 127.0.0.1"),
		chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 900))
	ctx, cancelBrowser := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, cancelPage := chromedp.NewContext(ctx)
	t.Cleanup(func() { cancelPage(); cancelBrowser() })
	p.ctx = ctx
	if err := chromedp.Do(ctx); err != nil { // starts the browser, which lives as long as this context
		t.Fatal(err)
	}
	p.do("watching the page", chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		if _, err := chromedp.Call(ctx, cdlog.Enable, cdp.Empty{}); err != nil {
			return err
		}
		_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
		return err
	}))
	if err := chromedp.Listen(ctx, p.note); err != nil {
		t.Fatal(err)
	}
	address := "http://" + addr + "/"
	p.do("opening "+address, chromedp.Navigate(address))
	t.Cleanup(func() { p.check(address) })
	return p
}

// note takes down an event of the browser.
func (p *page) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.asked = append(p.asked, e.Request.URL)
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		p.problems = append(p.problems, text)
	case *runtime.EventConsoleAPICalled:
		p.problems = append(p.problems, fmt.Sprintf("console.%s %s", e.Type, e.Args[0].Value))
	case *cdlog.EventEntryAdded:
		p.problems = append(p.problems, e.Entry.Text+" "+e.Entry.URL)
	}
}

// allow has problems with that text in them be no fault: the test means them.
func (p *page) allow(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allowed = append(p.allowed, text)
}

// faults are the problems that are not allowed, and requests to other hosts.
func (p *page) faults(origin string) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		ok := false
		for _, text := range p.allowed {
			ok = ok || strings.Contains(problem, text)
		}
		if !ok {
			out = append(out, problem)
		}
	}
	for _, asked := range p.asked {
		if !strings.HasPrefix(asked, origin) {
			out = append(out, "it asked for "+asked)
		}
	}
	return out
}

func (p *page) check(origin string) {
	for _, fault := range p.faults(origin) {
		p.t.Errorf("the page: %s", fault)
	}
}

func (p *page) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// eval returns what an expression of JavaScript is in the page.
func eval[T any](p *page, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("evaluating %s: %v", expression, err)
	}
	return v
}

// text is what a reader sees of the first element that a selector finds; empty if
// there is none, or it is hidden.
func (p *page) text(selector string) string {
	p.t.Helper()
	return eval[string](p, fmt.Sprintf(`(() => { const e = document.querySelector(%s); return e && e.checkVisibility() ? (e.innerText ?? e.textContent) : ''; })()`, quote(selector)))
}

// shows waits until an element's text has all of these in it.
func (p *page) shows(selector string, texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		last := ""
		p.until(func() bool { last = p.text(selector); return strings.Contains(last, text) }, func() string {
			return fmt.Sprintf("%s has no %q in it:\n%s", selector, text, last)
		})
	}
}

// hides waits until an element is not there, is hidden, or has not this text.
func (p *page) hides(selector, text string) {
	p.t.Helper()
	p.until(func() bool { s := p.text(selector); return s == "" || text != "" && !strings.Contains(s, text) }, func() string {
		return fmt.Sprintf("%s still shows %q", selector, text)
	})
}

func (p *page) until(done func() bool, otherwise func() string) {
	p.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatal(otherwise())
		}
	}
}

// number is an element's text as a number.
func (p *page) number(selector string) float64 {
	p.t.Helper()
	var n float64
	_, _ = fmt.Sscanf(strings.ReplaceAll(p.text(selector), ",", ""), "%g", &n) // 0 where there is none yet
	return n
}

// prefers has the system be dark or light.
func (p *page) prefers(scheme string) {
	p.t.Helper()
	p.do("the scheme", chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
		})
		return err
	}))
}

func quote(s string) string {
	b, _ := json.Marshal(s) // a string: cannot fail
	return string(b)
}

// outcome selects a number in the table of outcomes: 2 is that a second, 4 that
// since the start.
func outcome(name string, column int) string {
	return fmt.Sprintf("#outcomes tbody tr:has(.o-%s) > :nth-child(%d)", name, column)
}

// caller asks a server as Envoy does.
type caller struct {
	t      *testing.T
	client rls.RateLimitServiceClient
}

func newCaller(t *testing.T, w *testenv.Weir) *caller {
	t.Helper()
	conn, err := grpc.NewClient(w.GRPCAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &caller{t: t, client: rls.NewRateLimitServiceClient(conn)}
}

// ask asks for a descriptor of keys and values, in turn.
func (c *caller) ask(domain string, entries ...string) rls.RateLimitResponse_Code {
	c.t.Helper()
	d := &rlcommon.RateLimitDescriptor{}
	for i := 0; i+1 < len(entries); i += 2 {
		d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: entries[i], Value: entries[i+1]})
	}
	resp, err := c.client.ShouldRateLimit(context.WithoutCancel(c.t.Context()), &rls.RateLimitRequest{Domain: domain, Descriptors: []*rlcommon.RateLimitDescriptor{d}})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.OverallCode
}

// rulesFile writes a file of rules; replace puts others in its place at once.
func rulesFile(t *testing.T, text string) string {
	t.Helper()
	return testenv.WriteFile(t, "rules.yaml", text)
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	next := filepath.Join(filepath.Dir(path), ".next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// freeze has the server's process hang; thaw lets it go on.
func freeze(t *testing.T, w *testenv.Weir) {
	t.Helper()
	if err := w.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

func thaw(t *testing.T, w *testenv.Weir) {
	t.Helper()
	if err := w.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

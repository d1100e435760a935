package console_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"weir/internal/testenv"
)

func TestTheTokenIsAskedForAndGoesWithTheTab(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef-console"
	w := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{rulesFile(t, shopRules)}, Args: []string{"--admin-token", token}})
	p := open(t, w.HTTPAddr)
	p.allow("status of 401")
	p.shows("#token-form", "asks for its admin token")
	p.shows("#link", "admin token is needed")
	if got := eval[string](p, `document.activeElement.id`); got != "token" {
		t.Errorf("the focus is on %q", got)
	}
	if strings.Contains(p.text("#token-form"), "not the server's admin token") {
		t.Error("it says that a token is wrong before one was given")
	}
	p.do("a wrong one", chromedp.KeyEvent("0123456789abcdef-another"), chromedp.KeyEvent(kb.Enter))
	p.shows("#token-why", "not the server's admin token")
	p.do("the right one", chromedp.KeyEvent(token), chromedp.KeyEvent(kb.Enter))
	p.shows("#link", "Live")
	p.hides("#token-form", "")
	p.shows("#rules tbody", "logins")

	if kept := eval[string](p, `JSON.stringify(localStorage) + document.cookie + location.href`); strings.Contains(kept, token) {
		t.Errorf("the token is kept for longer than the tab: %s", kept)
	}
	p.do("a reload", chromedp.Reload())
	p.shows("#link", "Live")
	eval[bool](p, `sessionStorage.clear(), true`)
	p.do("a reload without it", chromedp.Reload())
	p.shows("#token-form", "asks for its admin token")
}

func TestAServerThatGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	w, p, path := shop(t)
	c := newCaller(t, w)
	for range 50 {
		c.ask("shop", "endpoint", "/posts")
	}
	p.until(func() bool { return p.number(outcome("ok", 4)) >= 50 }, func() string { return "nothing is counted" })
	p.allow("ERR_CONNECTION_REFUSED")
	p.allow("ERR_INCOMPLETE_CHUNKED_ENCODING") // what a connection that breaks is called
	p.allow("ERR_CONNECTION_RESET")
	w.Kill()
	p.shows("#link", "Disconnected", "trying again")
	p.shows("#rules tbody", "logins") // what was known stays

	again := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{path}, GRPCAddr: w.GRPCAddr, HTTPAddr: w.HTTPAddr})
	p.shows("#link", "Live")
	p.until(func() bool { return p.number(outcome("ok", 4)) < 50 }, func() string { return "the numbers are those of before" })
	if strings.Contains(p.text("#outcomes")+p.text(".tiles"), "-") {
		t.Errorf("a number went below zero:\n%s", p.text("#outcomes"))
	}

	// An open page does not hold up a stop.
	begin := time.Now()
	if code := again.Stop(t); code != 0 {
		t.Errorf("it stopped with %d", code)
	}
	if took := time.Since(begin); took > 8*time.Second { // half a second; a request that never ends would make it ten
		t.Errorf("it stopped after %v", took)
	}
	p.shows("#link", "Disconnected")
}

// A process that hangs keeps its connections.
func TestAServerThatHangsShowsAsDisconnected(t *testing.T) {
	t.Parallel()
	w, p, _ := shop(t)
	p.allow("ERR_")
	freeze(t, w)
	p.shows("#link", "Disconnected")
	thaw(t, w)
	p.shows("#link", "Live")
}

func TestAServerThatStartsSaysSo(t *testing.T) {
	t.Parallel()
	// Rules from a Consul that is not there: it waits for them.
	httpAddr := testenv.FreeAddr(t)
	testenv.Start(t, testenv.Program{
		Path: testenv.WeirBinary(t), Addr: httpAddr,
		Args: []string{"serve", "--grpc-addr", testenv.FreeAddr(t), "--http-addr", httpAddr, "--rules", "consul://" + testenv.FreeAddr(t) + "/weir"},
	})
	p := open(t, httpAddr)
	p.allow("status of 503")
	p.shows("#link", "Not ready", "/readyz")
}

func TestShadowShows(t *testing.T) {
	t.Parallel()
	w, p, _ := shop(t, "--shadow")
	p.shows("#alerts", "in shadow: nothing is refused")
	newCaller(t, w).ask("shop", "endpoint", "/closed", "user", "x")
	p.until(func() bool { return p.number(outcome("shadow_over_limit", 4)) == 1 }, func() string { return p.text("#outcomes") })
}

func TestTheServersOwnMachineIsToldFromOthers(t *testing.T) {
	t.Parallel()
	w := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{rulesFile(t, shopRules)}})
	_, port, _ := strings.Cut(w.HTTPAddr, ":")
	// The name of another host that leads here, as in an attack by DNS.
	p := open(t, "rebound.test:"+port)
	p.allow("status of 403")
	p.shows("#link", "Not allowed")
	p.shows("#alerts", "does not show its data to this browser", "--admin-token")
}

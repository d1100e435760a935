package console_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"weir/internal/testenv"
)

// shopRules have limits that no test's pace can fall on the edge of.
const shopRules = `domain: shop
rules:
  - name: logins
    match: {endpoint: /login, user: "*"}
    limit: 3
    window: 1h
    algorithm: token_bucket
  - endpoint: /posts
    limit: 100000
    window: 1h
    algorithm: token_bucket
  - {match: {endpoint: /closed, user: "*"}, limit: 0, window: 1s}
`

// shop is a server with shopRules, and its page.
func shop(t *testing.T, args ...string) (*testenv.Weir, *page, string) {
	t.Helper()
	path := rulesFile(t, shopRules)
	w := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{path}, Args: args})
	p := open(t, w.HTTPAddr)
	p.shows("#link", "Live")
	return w, p, path
}

func TestTheNumbersMoveWithTheTraffic(t *testing.T) {
	t.Parallel()
	w, p, _ := shop(t)
	c := newCaller(t, w)
	for i := range 3 { // each time more than before
		before := p.number(outcome("ok", 4))
		for range 20 {
			c.ask("shop", "endpoint", "/posts")
		}
		p.until(func() bool { return p.number(outcome("ok", 4)) >= before+20 }, func() string {
			return fmt.Sprintf("round %d: %v decisions, and before %v", i, p.number(outcome("ok", 4)), before)
		})
	}
	p.until(func() bool {
		c.ask("shop", "endpoint", "/posts")
		c.ask("shop", "endpoint", "/closed", "user", "x")
		return p.number("#tile-rate") > 0 && p.number("#tile-refused") > 0
	}, func() string { return "the rates stay at 0" })
	for _, kind := range []string{"ok", "over_limit"} {
		if d := eval[string](p, `document.querySelector("#chart .o-`+kind+`").getAttribute("d")`); !strings.HasPrefix(d, "M") {
			t.Errorf("the chart has no bars of %s: %q", kind, d)
		}
	}
	if got := eval[string](p, `Array.from(document.querySelector("#chart-domain").options, (o) => o.text).join()`); !strings.Contains(got, "All") || !strings.Contains(got, "shop") {
		t.Errorf("the chart's domains are %s", got)
	}
	if p.text("#instance") == "" || p.text("#tile-store") != "up" {
		t.Errorf("the instance is %q, the store %q", p.text("#instance"), p.text("#tile-store"))
	}
}

func TestALimitThatIsHitShowsWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	w, p, _ := shop(t)
	c := newCaller(t, w)
	for range 3 {
		c.ask("shop", "endpoint", "/login", "user", "mallory")
	}
	if code := c.ask("shop", "endpoint", "/login", "user", "mallory"); code != rls.RateLimitResponse_OVER_LIMIT {
		t.Fatalf("the limit is not hit: %v", code)
	}
	hit := time.Now()
	p.shows("#top tbody", "logins", "user=mallory")
	p.until(func() bool { return p.number(outcome("over_limit", 4)) == 1 }, func() string { return "no refusal is counted" })
	if took := time.Since(hit); took > 2*time.Second {
		t.Errorf("it shows after %v", took)
	}
	if strings.Contains(p.text("#top-none"), "Nobody") {
		t.Error("the page says that nobody was refused")
	}
}

// tabTo presses Tab until something has the focus, as somebody without a mouse does.
func (p *page) tabTo(id string) {
	p.t.Helper()
	for range 60 {
		p.do("Tab", chromedp.KeyEvent(kb.Tab))
		if eval[string](p, `document.activeElement.id || document.activeElement.textContent.trim()`) == id {
			return
		}
	}
	p.t.Fatalf("Tab does not come to %s", id)
}

func TestTheFormExplainsByTheKeyboardAlone(t *testing.T) {
	t.Parallel()
	w, p, path := shop(t)
	c := newCaller(t, w)
	p.tabTo("ask-domain")
	p.do("the domain", chromedp.KeyEvent("shop"))
	p.tabTo("ask-entries")
	p.do("the entries", chromedp.KeyEvent("endpoint=/login"), chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent("user=bob"))
	p.tabTo("Explain")
	p.do("Enter", chromedp.KeyEvent(kb.Enter))

	p.shows("#answer-text", "The rule logins ("+path+":3:", "takes it", "would pass now")
	p.shows("#answer-limits tbody", "3 an hour", "token bucket")
	p.shows("#answer-steps tbody", "endpoint=/login", "user=bob", path+":3:")
	left := "#answer-limits tbody td:nth-child(3)"
	p.shows(left, "3")
	// It follows what others use, by itself.
	c.ask("shop", "endpoint", "/login", "user", "bob")
	p.shows(left, "2")
	c.ask("shop", "endpoint", "/login", "user", "bob")
	c.ask("shop", "endpoint", "/login", "user", "bob")
	p.shows(left, "0")
	p.shows("#answer-text", "would be refused now")
	p.shows("#answer-limits tbody td:nth-child(5)", "min") // a third of an hour
	if c.ask("shop", "endpoint", "/login", "user", "bob") != rls.RateLimitResponse_OVER_LIMIT {
		t.Error("the page has charged something, or the limit is another")
	}

	// By Ctrl+Enter, with a descriptor that nearly matches.
	p.do("another", chromedp.Focus("#ask-entries"), chromedp.KeyEvent("a", chromedp.KeyModifiers(2)), chromedp.KeyEvent("endpoint=/login"), chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(2)))
	p.shows("#answer-text", "No rule takes it")
	p.shows("#answer-near", "needs further entries: user=*")
}

func TestTheFormSaysWhatIsWrongWithAQuestion(t *testing.T) {
	t.Parallel()
	_, p, _ := shop(t)
	p.allow("status of 400")
	p.do("asking", chromedp.SendKeys("#ask-entries", "=x"), chromedp.Click("#ask button"))
	p.shows("#answer-text", "That did not work", "key")
	p.do("asking", chromedp.SetValue("#ask-domain", "shop"), chromedp.SetValue("#ask-entries", "endpoint=/posts"), chromedp.Click("#ask button"))
	p.shows("#answer-text", "takes it")
}

func TestABadReloadShowsItsFaultAndAGoodOneClearsIt(t *testing.T) {
	t.Parallel()
	_, p, path := shop(t)
	p.shows("#rules tbody", "logins", path+":3:")
	p.hides("#alerts", "")
	replace(t, path, "domain: shop\nrules:\n  - {endpoint: /posts, limt: 5, window: 60s}\n")
	p.shows("#alerts", "refused; those before stay in force", path+":3:24", `did you mean "limit"?`)
	p.shows("#rules tbody", "logins")
	p.shows("#sources tbody", path)
	replace(t, path, strings.Replace(shopRules, "logins", "sign-ins", 1))
	p.hides("#alerts", "")
	p.shows("#rules tbody", "sign-ins")
}

func TestAStoreThatIsAwayShows(t *testing.T) {
	t.Parallel()
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	w, p, _ := shop(t, "--store", "redis://"+redis.Addr)
	c := newCaller(t, w)
	p.shows("#tile-store", "up")
	p.shows("#store-more", redis.Addr)
	redis.Kill()
	p.until(func() bool { c.ask("shop", "endpoint", "/posts"); return p.text("#tile-store") == "away" }, func() string { return "the store does not go away" })
	p.shows("#alerts", redis.Addr, "is away; the failure policies decide")
	p.until(func() bool { c.ask("shop", "endpoint", "/posts"); return p.number(outcome("failed_local", 4)) > 0 }, func() string {
		return "no decision by the failure policy: " + p.text("#outcomes")
	})
	testenv.StartRedis(t, testenv.RedisOptions{Addr: redis.Addr})
	p.until(func() bool { c.ask("shop", "endpoint", "/posts"); return p.text("#tile-store") == "up" }, func() string { return "the store does not come back" })
	p.hides("#alerts", "")
}

func TestWhatClientsSendIsTextAndNothingElse(t *testing.T) {
	t.Parallel()
	hostile := []string{
		`<script>window.broken = 1</script>`, `<img src=x onerror="window.broken = 1">`, `"><svg onload=window.broken=1>`,
		"javascript:window.broken=1", "\u202egnp.exe", "\x00\x1b[31m\r\n", strings.Repeat("long ", 100), "' onfocus='window.broken=1' autofocus='",
	}
	w, p, path := shop(t)
	c := newCaller(t, w)
	for _, value := range hostile {
		c.ask("shop", "endpoint", "/closed", "user", value)
	}
	p.shows("#top tbody", hostile[0], hostile[1], hostile[2], `\u{202e}gnp.exe`, `\u{0}\u{1b}[31m\u{d}\u{a}`)

	for i := range 4 {
		p.do("asking", chromedp.SetValue("#ask-domain", "shop"), chromedp.SetValue("#ask-entries", "endpoint=/closed\nuser="+hostile[i]), chromedp.Click("#ask button"))
		p.shows("#answer-steps tbody", hostile[i])
	}
	replace(t, path, fmt.Sprintf("domain: %q\nrules: [{endpoint: %q, name: %q, limit: 1, window: 1s}]\n", hostile[0], hostile[1], hostile[2]))
	p.shows("#rules tbody", hostile[0], `<img src=x`, hostile[2])
	replace(t, path, fmt.Sprintf("domain: shop\nrules: [{endpoint: a, %q: 1}]\n", hostile[1]))
	p.shows("#alerts pre", "<img src=x")

	if n := eval[int](p, `document.querySelectorAll("main :is(script, img, svg:not(#chart))").length`); n != 0 {
		t.Errorf("%d elements came from texts", n)
	}
	if eval[bool](p, `"broken" in window`) {
		t.Error("a text ran as a script")
	}
}

func TestRulesAreFilteredAndInPages(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("domain: many\nrules:\n")
	for i := range 1234 { // more than the API gives at once
		fmt.Fprintf(&text, "  - {endpoint: /path/%d, limit: %d, window: 60s}\n", i, i+1)
	}
	w := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{rulesFile(t, text.String())}})
	p := open(t, w.HTTPAddr)
	p.shows("#rules-shown", "1 to 15 of 1,234")
	p.shows("#rules tbody tr:nth-child(3)", "/path/2", "3 a minute")
	p.do("the next page", chromedp.Click("#rules-next"))
	p.shows("#rules-shown", "16 to 30 of 1,234")
	p.do("the page before", chromedp.Click("#rules-before"))
	p.shows("#rules-shown", "1 to 15 of 1,234")
	p.do("filtering", chromedp.SendKeys("#rules-filter", "/PATH/1233"))
	p.shows("#rules-shown", "1 to 1 of 1 that match")
	p.shows("#rules tbody", "1,234 a minute")
	p.do("filtering", chromedp.SendKeys("#rules-filter", " nothing"))
	p.shows("#rules-shown", "No rules that match")
}

func TestTheRowOfARefusedCounterExplainsIt(t *testing.T) {
	t.Parallel()
	w, p, _ := shop(t)
	newCaller(t, w).ask("shop", "endpoint", "/closed", "user", "eve")
	p.shows("#top tbody", "user=eve")
	p.do("explaining", chromedp.Click("#top button"))
	p.shows("#answer-text", "takes it", "would be refused now")
	if got := eval[string](p, `document.querySelector("#ask-entries").value`); got != "endpoint=/closed\nuser=eve" {
		t.Errorf("the form has %q", got)
	}
	p.shows("#answer-limits tbody td:nth-child(5)", "never")
}

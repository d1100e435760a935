package console_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"

	"weir/internal/testenv"
)

var update = flag.Bool("update", false, "write docs/console.png anew")

// busy is a page that shows all that it can: traffic of each kind, an answer, an
// alert, a queue.
func busy(t *testing.T) (*testenv.Weir, *page) {
	t.Helper()
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	path := rulesFile(t, shopRules+`  - {name: exports, match: {endpoint: /export}, limit: 1, window: 1h, algorithm: leaky_bucket, queue: 100, over_limit: queue}
`)
	w, p := openWith(t, path, "--store", "redis://"+redis.Addr, "--queue-addr", testenv.FreeAddr(t))
	c := newCaller(t, w)
	for range 5 {
		c.ask("shop", "endpoint", "/posts")
		c.ask("shop", "endpoint", "/login", "user", "eve")
		c.ask("shop", "endpoint", "/closed", "user", "mallory")
	}
	p.shows("#top tbody", "eve", "mallory")
	p.do("asking", chromedp.SetValue("#ask-domain", "shop"), chromedp.SetValue("#ask-entries", "endpoint=/login\nuser=eve"), chromedp.Click("#ask button"))
	p.shows("#answer-text", "would be refused now")
	replace(t, path, "rules: [{endpoint: /posts, limt: 5}]\n")
	p.shows("#alerts", "limt")
	p.shows("#queues tbody", "exports")
	return w, p
}

func openWith(t *testing.T, path string, args ...string) (*testenv.Weir, *page) {
	t.Helper()
	w := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{path}, Args: args})
	p := open(t, w.HTTPAddr)
	p.shows("#link", "Live")
	return w, p
}

// pale lists texts whose contrast with what they stand on is below 4.5, as WCAG 2
// counts it.
const pale = `(() => {
  const parse = (c) => { const [r, g, b, a = 1] = c.match(/[\d.]+/g).map(Number); return { r, g, b, a }; };
  const light = ({ r, g, b }) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a === 1) return c; if (c.a !== 0) return null; } return { r: 255, g: 255, b: 255 }; };
  const out = [];
  const check = (e, color, text) => {
    const g = ground(e);
    const pair = [light(parse(color)), g ? light(g) : NaN].sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (!(contrast >= 4.5)) out.push(contrast.toFixed(2) + ' ' + e.tagName + '#' + e.id + '.' + e.getAttribute('class') + ': ' + text.slice(0, 40));
  };
  let n = 0;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.data.trim();
    const e = walk.currentNode.parentElement;
    if (!text || !e.checkVisibility()) continue;
    const style = getComputedStyle(e);
    n++;
    check(e, e.namespaceURI.endsWith('svg') ? style.fill : style.color, text);
  }
  for (const e of document.querySelectorAll('input, textarea')) {
    check(e, getComputedStyle(e).color, 'what is typed');
    check(e, getComputedStyle(e, '::placeholder').color, 'placeholder');
  }
  if (n < 80) out.push('only ' + n + ' texts were looked at');
  return out;
})()`

func TestTextIsReadableInLightAndDark(t *testing.T) {
	t.Parallel()
	w, p := busy(t)
	ground := func() string { return eval[string](p, `getComputedStyle(document.body).backgroundColor`) }
	grounds := map[string]string{}
	contrast := func(remark string) {
		for _, fault := range eval[[]string](p, pale) {
			t.Errorf("%s: %s", remark, fault)
		}
		grounds[remark] = ground()
	}
	for _, scheme := range []string{"light", "dark"} {
		p.prefers(scheme)
		contrast(scheme)
	}
	if grounds["light"] == grounds["dark"] {
		t.Errorf("light and dark are the same: %v", grounds)
	}
	// Chosen, against the system, and also after a reload.
	for system, chosen := range map[string]string{"dark": "light", "light": "dark"} {
		p.prefers(system)
		eval[bool](p, `(() => { const e = document.querySelector("#theme"); e.value = `+quote(chosen)+`; return e.dispatchEvent(new Event("change")); })()`)
		if ground() != grounds[chosen] {
			t.Errorf("%s is chosen, but it is %s", chosen, ground())
		}
		p.do("a reload", chromedp.Reload())
		p.shows("#link", "Live")
		if ground() != grounds[chosen] {
			t.Errorf("%s was chosen before the reload, but it is %s", chosen, ground())
		}
	}
	p.allow("ERR_")
	w.Kill()
	p.shows("#link", "Disconnected")
	contrast("disconnected")
}

func TestTheBarsCanBeToldFromTheGround(t *testing.T) {
	t.Parallel()
	_, p, _ := shop(t)
	for _, scheme := range []string{"light", "dark"} {
		p.prefers(scheme)
		faults := eval[[]string](p, `(() => {
  const light = (c) => c.match(/[\d.]+/g).map(Number).slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const card = light(getComputedStyle(document.querySelector('.card')).backgroundColor);
  const out = [];
  for (const name of ['ok', 'near_limit', 'shadow_over_limit', 'failed_open', 'failed_local', 'failed_closed', 'deny_cache', 'over_limit', 'other']) {
    const e = document.createElement('span');
    e.className = 'swatch o-' + name;
    document.querySelector('.card').append(e);
    const pair = [light(getComputedStyle(e).backgroundColor), card].sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (contrast < 3) out.push(name + ' ' + contrast.toFixed(2));
    e.remove();
  }
  return out;
})()`)
		for _, fault := range faults {
			t.Errorf("%s: %s", scheme, fault)
		}
	}
}

func TestWhoCannotSeeThePageHasNamesForAllOfIt(t *testing.T) {
	t.Parallel()
	_, p := busy(t)
	tree, err := chromedp.Run(p.ctx, func(ctx context.Context, _ *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, node := range tree.Nodes {
		if node.Ignored {
			continue
		}
		role, name := said(node.Role), said(node.Name)
		seen = append(seen, role+" "+name)
		switch role {
		case "button", "textbox", "searchbox", "combobox", "link", "table", "image", "meter", "region", "navigation", "columnheader":
			if name == "" {
				t.Errorf("a %s has no name", role)
			}
		}
	}
	for _, want := range []string{
		"banner ", "main ", "heading Weir", "status ", "combobox Theme", "combobox Domain", "textbox Entries, as key=value, one a line",
		"button Explain", "button Explain shop endpoint=/login user=eve", "searchbox Filter", "navigation Pages of rules", "button Next", "region What is wrong",
		"table Decisions by outcome", "table Counters that were refused most often", "table Rules in force", "table Where the rules come from", "table Limits of the rule", "table Queues",
		"image Decisions by outcome", "meter 0 of 3 left", "link Skip to the content",
	} {
		if !slices.ContainsFunc(seen, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("there is no %q in\n%s", want, strings.Join(seen, "\n"))
		}
	}
	// What is announced, and how: faults and the answer when they come, and no
	// number that changes each second.
	if got := eval[string](p, `Array.from(document.querySelectorAll("[aria-live], [role=status], [role=alert]"), (e) => e.id || e.className).join()`); got != "link,token-why,alerts,quiet,answer-text,rules-shown" {
		t.Errorf("announced are %s", got)
	}
}

func said(v *accessibility.Value) (s string) {
	if v != nil {
		_ = json.Unmarshal(v.Value, &s) // what is no text has no name
	}
	return s
}

func TestThePageFitsASmallScreen(t *testing.T) {
	t.Parallel()
	_, p := busy(t)
	p.do("a telephone", chromedp.EmulateViewport(360, 740))
	p.until(func() bool { return eval[bool](p, `document.documentElement.scrollWidth <= 360`) }, func() string {
		return fmt.Sprintf("it is %d wide: ", eval[int](p, `document.documentElement.scrollWidth`)) + eval[string](p, `Array.from(document.querySelectorAll("body *")).filter((e) => e.getBoundingClientRect().right > 360).map((e) => e.tagName + "#" + e.id).join()`)
	})
}

const picture = "../../docs/console.png"

// TestThePictureOfThePage takes it, of a server that has some traffic. To write it
// to the docs: go test ./server/console -run Picture -update
func TestThePictureOfThePage(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	const shopWithMore = `domain: shop
rules:
  - name: login-by-address
    match: {endpoint: /login, remote_address: "*"}
    limits:
      - {limit: 5, window: 60s, algorithm: token_bucket, burst: 10}
      - {limit: 100, window: day, timezone: Asia/Tokyo}
  - {endpoint: /posts, limit: 60, window: 1s, algorithm: sliding_window_counter}
  - {match: {endpoint: /search, user: "*"}, limit: 30, window: 10s}
  - {match: {endpoint: /search, plan: free}, limit: 3, window: 1s, shadow_mode: true}
  - {match: {endpoint: /health}, unlimited: true}
  - {name: exports, match: {endpoint: /export}, limit: 10, window: 60s, algorithm: leaky_bucket, queue: 500, over_limit: queue}
`
	path := testenv.WriteFile(t, "shop.yaml", shopWithMore)
	w := &testenv.Weir{GRPCAddr: testenv.FreeAddr(t), HTTPAddr: testenv.FreeAddr(t)}
	w.Process = testenv.Start(t, testenv.Program{
		Path: testenv.WeirBinary(t), Dir: filepath.Dir(path), Addr: w.GRPCAddr, // so that places are short
		Args: []string{
			"serve", "--rules", "shop.yaml", "--grpc-addr", w.GRPCAddr, "--http-addr", w.HTTPAddr,
			"--store", "redis://" + redis.Addr, "--store-timeout", "1s", "--queue-addr", testenv.FreeAddr(t),
		},
	})
	p := open(t, w.HTTPAddr)
	p.shows("#link", "Live")
	c := newCaller(t, w)
	length := 5 * time.Second
	if *update {
		length = 100 * time.Second
	}
	for begin := time.Now(); time.Since(begin) < length; time.Sleep(time.Duration(5+rand.IntN(8)) * time.Millisecond) {
		switch n := rand.IntN(20); {
		case n < 12:
			c.ask("shop", "endpoint", "/posts")
		case n < 16:
			c.ask("shop", "endpoint", "/search", "user", []string{"alice", "bob", "carol"}[rand.IntN(3)])
		case n < 18:
			c.ask("shop", "endpoint", "/search", "plan", "free")
		default:
			c.ask("shop", "endpoint", "/login", "remote_address", []string{"203.0.113.7", "203.0.113.7", "198.51.100.23"}[rand.IntN(3)])
		}
	}
	p.do("asking", chromedp.SetValue("#ask-domain", "shop"), chromedp.SetValue("#ask-entries", "endpoint=/login\nremote_address=203.0.113.7"), chromedp.Click("#ask button"))
	p.shows("#answer-text", "login-by-address")
	if !*update {
		replace(t, path, shopWithMore+"  - {endpoint: /posts, limit: 1}\n")
		p.shows("#alerts", "before stay in force")
	}
	shot, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if len(shot) < 50_000 {
		t.Errorf("the picture has %d bytes only", len(shot))
	}
	if *update {
		if err := os.WriteFile(picture, shot, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

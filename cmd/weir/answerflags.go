package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"weir/server"
)

// answerFlags are the flags of what an answer carries beside its verdict.
type answerFlags struct {
	headers         headersFlag
	names           namesFlag
	jitter          secondsFlag
	denied          deniedFlag
	metadata        choice
	upstreamHeaders bool
}

func (a *answerFlags) addFlags(f *pflag.FlagSet) {
	f.Var(&a.headers, "headers", "header hints for the client's response: "+strings.Join(server.HeaderStyleNames(), ", ")+"; several by commas; for one domain as DOMAIN=STYLE,… (repeatable)")
	f.Var(&a.names, "header-names", "other names for the headers of x-ratelimit: limit=NAME,remaining=NAME,retry-after=NAME; an empty NAME leaves the header out; reset=NAME adds the seconds until the limit is full, or a retry may pass")
	f.Var(&a.jitter, "retry-after-jitter", "add 0 to so many whole seconds to Retry-After, at random, so that refused clients do not come back together: a number or a duration")
	f.Var(&a.denied, "denied-body", "body for refused requests: none, text:TEXT, @FILE or problem+json; for one domain as DOMAIN=BODY (repeatable; one value by the environment)")
	a.metadata = choice{[]string{"off", "weir", "envoyproxy", "all"}, "off"}
	f.Var(&a.metadata, "dynamic-metadata", "tell Envoy's access log more than shadow verdicts and the metadata of rules: the verdict as weir does, the request as envoyproxy/ratelimit does, or all of it")
	f.BoolVar(&a.upstreamHeaders, "upstream-headers", false, "tell the upstream by x-weir-rule, x-weir-limit and x-weir-remaining what is left")
}

func (a *answerFlags) complete() error {
	o := a.headerOptions()
	if err := o.Validate(); err != nil {
		return usagef("--headers, --header-names: %w", err)
	}
	return nil
}

func (a *answerFlags) headerOptions() server.HeaderOptions {
	return server.HeaderOptions{Style: a.headers.style, ByDomain: a.headers.byDomain, Names: a.names.names, Jitter: time.Duration(a.jitter)}
}

func (a *answerFlags) deniedOptions() server.DeniedOptions {
	return server.DeniedOptions{Body: a.denied.body, ByDomain: a.denied.byDomain}
}

func (a *answerFlags) metadataStyle() server.MetadataStyle {
	switch a.metadata.value {
	case "weir":
		return server.WeirMetadata
	case "envoyproxy":
		return server.EnvoyMetadata
	case "all":
		return server.WeirMetadata | server.EnvoyMetadata
	}
	return 0
}

// headersFlag is a list of styles; those after DOMAIN= are the domain's. Given
// again it adds to what was said.
type headersFlag struct {
	style    server.HeaderStyle
	byDomain map[string]server.HeaderStyle
	text     []string
}

func (h *headersFlag) Type() string { return "[DOMAIN=]STYLE,…" }

func (h *headersFlag) String() string {
	if len(h.text) == 0 {
		return "x-ratelimit"
	}
	return strings.Join(h.text, ",")
}

func (h *headersFlag) Set(text string) error {
	domain, ofDomain := "", false
	for _, item := range strings.Split(text, ",") {
		name := strings.TrimSpace(item)
		if at := strings.LastIndexByte(name, '='); at >= 0 {
			domain, name, ofDomain = name[:at], name[at+1:], true
			if domain == "" {
				return fmt.Errorf("%q names no domain before the =", item)
			}
		}
		style, err := server.ParseHeaderStyle(name)
		if err != nil {
			return fmt.Errorf("%w; allowed: %s, several by commas, for one domain as DOMAIN=STYLE", err, strings.Join(server.HeaderStyleNames(), ", "))
		}
		if !ofDomain {
			h.style |= style
			continue
		}
		if h.byDomain == nil {
			h.byDomain = map[string]server.HeaderStyle{}
		}
		h.byDomain[domain] |= style
	}
	h.text = append(h.text, text)
	return nil
}

// namesFlag is limit=NAME,remaining=NAME,retry-after=NAME,reset=NAME, in any order.
type namesFlag struct {
	names *server.HeaderNames
	text  string
}

func (n *namesFlag) Type() string   { return "HINT=NAME,…" }
func (n *namesFlag) String() string { return n.text }

func (n *namesFlag) Set(text string) error {
	names := server.DefaultHeaderNames()
	hints := map[string]*string{"limit": &names.Limit, "remaining": &names.Remaining, "retry-after": &names.RetryAfter, "reset": &names.Reset}
	for _, item := range strings.Split(text, ",") {
		hint, name, ok := strings.Cut(item, "=")
		to := hints[strings.TrimSpace(hint)]
		if !ok || to == nil {
			return fmt.Errorf("%q: allowed: limit=NAME, remaining=NAME, retry-after=NAME, reset=NAME, each once, with commas between", item)
		}
		*to = strings.TrimSpace(name)
		delete(hints, strings.TrimSpace(hint))
	}
	n.names, n.text = &names, text
	return nil
}

// secondsFlag is a time in whole seconds: 5, 5s or 1m.
type secondsFlag time.Duration

const maxJitter = 24 * time.Hour

func (s *secondsFlag) Type() string   { return "seconds" }
func (s *secondsFlag) String() string { return time.Duration(*s).String() }

func (s *secondsFlag) Set(text string) error {
	if _, err := strconv.ParseUint(text, 10, 32); err == nil {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxJitter || d%time.Second != 0 {
		return fmt.Errorf("allowed: whole seconds, such as 5, 5s or 1m, from 0 to %v", maxJitter)
	}
	*s = secondsFlag(d)
	return nil
}

// deniedFlag is a body for refused requests, or DOMAIN= and a body.
type deniedFlag struct {
	body     server.DeniedBody
	byDomain map[string]server.DeniedBody
	general  bool // was given
	text     []string
}

func (d *deniedFlag) Type() string { return "[DOMAIN=]BODY" }

func (d *deniedFlag) String() string {
	if len(d.text) == 0 {
		return "none"
	}
	return strings.Join(d.text, " ")
}

func (d *deniedFlag) Set(text string) error {
	domain, spec := "", text
	for at := 0; !isBody(spec); {
		next := strings.IndexByte(text[at:], '=')
		if next < 0 {
			return errors.New("allowed: none, text:TEXT, @FILE and problem+json, for one domain as DOMAIN=BODY")
		}
		domain, spec = text[:at+next], text[at+next+1:]
		at += next + 1
	}
	body, err := readBody(spec)
	if err != nil {
		return err
	}
	_, twice := d.byDomain[domain]
	switch {
	case spec == text && d.general || spec != text && twice:
		return fmt.Errorf("%s: there is a body for this already", text)
	case spec == text:
		d.body, d.general = body, true
	case domain == "":
		return fmt.Errorf("%q names no domain before the =", text)
	default:
		if d.byDomain == nil {
			d.byDomain = map[string]server.DeniedBody{}
		}
		d.byDomain[domain] = body
	}
	d.text = append(d.text, text)
	return nil
}

func isBody(spec string) bool {
	return spec == "none" || spec == "problem+json" || strings.HasPrefix(spec, "text:") || strings.HasPrefix(spec, "@")
}

func readBody(spec string) (server.DeniedBody, error) {
	var text []byte
	contentType := ""
	switch {
	case spec == "none":
		return server.DeniedBody{}, nil
	case spec == "problem+json":
		return server.ProblemBody(), nil
	case spec[0] == '@':
		var err error
		if text, err = readStart(spec[1:]); err != nil {
			return server.DeniedBody{}, fmt.Errorf("reading the body: %w", err)
		}
		contentType = map[string]string{
			".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8",
			".json": "application/json", ".xml": "application/xml",
		}[strings.ToLower(filepath.Ext(spec))]
	default:
		text = []byte(strings.TrimPrefix(spec, "text:"))
	}
	switch {
	case len(text) == 0:
		return server.DeniedBody{}, fmt.Errorf("%s is empty; for no body leave the flag out, or say none", spec)
	case len(text) > server.MaxDeniedBody:
		return server.DeniedBody{}, fmt.Errorf("the body is over %d bytes", server.MaxDeniedBody)
	}
	return server.FixedBody(text, contentType), nil
}

// readStart reads no more of a file than shows that it is too long.
func readStart(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, server.MaxDeniedBody+1))
}

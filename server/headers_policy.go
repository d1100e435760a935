package server

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dunglas/httpsfv"

	"weir/limiter"
	"weir/rules"
)

// policy is a limit as clients are told of it: a quota policy of
// draft-ietf-httpapi-ratelimit-headers. Nothing in it changes with a request.
type policy struct {
	name   string // printable ASCII, no % but in %XX
	quoted string // the name as a structured field's String
	item   string // the whole Item of RateLimit-Policy: "posts";q=5;w=60
	old    string // as Envoy's DRAFT_VERSION_03 lists it, "" where it does not: , 5;w=60;name="posts"
}

// maxPolicyName is where longer names are cut, in bytes, so that no rule makes a
// header too long to be sent.
const maxPolicyName = 100

// newPolicy describes the limit under a name, which is made fit. ruleName is the
// name of its rule, if it has one.
func newPolicy(name, ruleName string, l *limiter.Limit) policy {
	p := policy{name: name}
	window := wholeSeconds(l.Window)
	params := httpsfv.NewParams()
	params.Add("q", int64(l.Requests))
	if window > 0 {
		params.Add("w", window)
	}
	// Neither can fail: the name is plain ASCII, the numbers are far below 10^15.
	p.quoted, _ = httpsfv.Marshal(httpsfv.NewItem(name))
	p.item, _ = httpsfv.Marshal(httpsfv.Item{Value: name, Params: params})
	if window > 0 {
		p.old = ", " + strconv.FormatUint(l.Requests, 10) + ";w=" + strconv.FormatInt(window, 10)
		if ruleName != "" {
			quoted, _ := httpsfv.Marshal(httpsfv.NewItem(policyName(ruleName)))
			p.old += ";name=" + quoted
		}
	}
	return p
}

// wholeSeconds is the window's length; 0 if it is no whole number of seconds,
// which header fields cannot say.
func wholeSeconds(w limiter.Window) int64 {
	if w.Length%time.Second != 0 {
		return 0
	}
	return int64(w.Length / time.Second)
}

func policyName(name string) string {
	return plainASCII(name[:min(len(name), maxPolicyName)])
}

// policiesOf names the limits of a rule: by its name; several by it and their
// windows; those of a rule without a name by their windows alone, for its path
// is none of the clients' business. A nil rule is a limit of the request's own.
func policiesOf(r *rules.Rule, limits []limiter.Limit) []policy {
	ruleName := ""
	if r != nil {
		ruleName = r.Name
	}
	list := make([]policy, 0, len(limits))
	for i := range limits {
		name := perWindow(limits[i].Window)
		switch {
		case ruleName != "" && len(limits) == 1:
			name = policyName(ruleName)
		case ruleName != "":
			name = policyName(ruleName) + "-" + name
		}
		list = append(list, newPolicy(unused(name, list), ruleName, &limits[i]))
	}
	return list
}

// unused makes the name one that none of the policies has.
func unused(name string, taken []policy) string {
	for n, try := 2, name; ; n++ {
		free := true
		for i := range taken {
			free = free && taken[i].name != try
		}
		if free {
			return try
		}
		try = name + "-" + strconv.Itoa(n)
	}
}

// perWindow says the window in words: per-minute, per-5-minutes, per-1500ms.
func perWindow(w limiter.Window) string {
	unit, times := unitOf(w)
	switch {
	case times == 0:
		return "per-" + strconv.FormatInt(w.Length.Milliseconds(), 10) + "ms"
	case times == 1:
		return "per-" + strings.ToLower(unit.String())
	}
	return "per-" + strconv.FormatUint(times, 10) + "-" + strings.ToLower(unit.String()) + "s"
}

// ruleTexts is what is made of a rule once, for all answers.
type ruleTexts struct {
	policies []policy // one for each limit
	metadata []byte   // Rule.Metadata, an encoded google.protobuf.Struct; nil if there is none
}

// texts keeps the ruleTexts of the rules in force. With new rules it begins
// anew, so that old ones can go.
type texts struct{ current atomic.Pointer[textsOfSet] }

type textsOfSet struct {
	set    *rules.Set
	byRule sync.Map // *rules.Rule → *ruleTexts
}

// of is the rule's. The set is the one in force.
func (t *texts) of(set *rules.Set, r *rules.Rule) *ruleTexts {
	in := t.current.Load()
	if in == nil || in.set != set {
		in = &textsOfSet{set: set}
		t.current.Store(in)
	}
	if kept, ok := in.byRule.Load(r); ok {
		return kept.(*ruleTexts)
	}
	made := &ruleTexts{policies: policiesOf(r, r.Limits)}
	if len(r.Metadata) > 0 {
		made.metadata = appendFields(nil, r.Metadata)
	}
	in.byRule.Store(r, made)
	return made
}

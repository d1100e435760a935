package rules

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"

	"weir/limiter"
)

// Options are the server's defaults for what rules leave open.
type Options struct {
	OnFailure   limiter.FailurePolicy // on_store_failure of rules that say none, and of overrides
	CountDenied bool                  // count_denied of rules that do not say, and of overrides; sliding_window_log: always true by default

	// Generations say how often rules were reset: their counters are others in each
	// generation. Rules that it does not have are in generation 0. It is not to be
	// changed.
	Generations map[RuleID]uint64
}

func (o *Options) generation(domain string, path []step) uint64 {
	if len(o.Generations) == 0 {
		return 0 // saves a digest of each rule
	}
	return o.Generations[ruleID(domain, path)]
}

// Set is all rules of all domains, compiled. It is immutable, and safe for
// concurrent use.
type Set struct {
	domains  map[string]*domain
	options  Options
	version  string
	rules    int
	warnings []Fault
	queues   []*Rule // see Queues
}

// domain is the tree of a domain's rules.
type domain struct {
	root      *node
	rules     []*Rule // in file order
	overrides counterID
}

// Compile makes a set of the documents, with the zero Options.
func Compile(docs ...*Document) (*Set, error) { return CompileWith(Options{}, docs...) }

// CompileWith makes a set of the documents, of which those with the same domain
// merge. Their order means nothing: file order is the order of their names. The
// error is Faults, and has those that Parse found too, so that a faulty document
// never becomes rules.
func CompileWith(options Options, docs ...*Document) (*Set, error) {
	docs = slices.Clone(docs)
	slices.SortFunc(docs, func(a, b *Document) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), bytes.Compare(a.digest[:], b.digest[:]))
	})
	c := compiler{options: options, domains: map[string]*domain{}, builders: map[string]*builder{}, queues: map[[2]string]*Rule{}}
	set := &Set{domains: c.domains, options: options, version: version(docs)}
	for _, doc := range docs {
		c.faults = append(c.faults, doc.faults...)
		set.warnings = append(set.warnings, doc.warnings...)
		for i := range doc.drafts {
			c.add(doc.Name, &doc.drafts[i])
		}
		runtime.Gosched() // requests go before
	}
	if err := c.faults.asError(); err != nil {
		return nil, err
	}
	for _, d := range set.domains {
		d.root.finish()
		for i, r := range d.rules {
			r.index = set.rules + i
		}
		set.rules += len(d.rules)
	}
	for r := range set.Rules("") {
		if r.Overflow != nil {
			set.queues = append(set.queues, r)
		}
	}
	return set, nil
}

// Domains lists the names of the domains that have rules, in order.
func (s *Set) Domains() []string { return slices.Sorted(maps.Keys(s.domains)) }

// Queues lists the rules that put into a queue what is over their limit. It is not
// to be changed.
func (s *Set) Queues() []*Rule { return s.queues }

// Rules are those of a domain, or of all ("") by the names of their domains: each
// domain's in file order.
func (s *Set) Rules(name string) iter.Seq[*Rule] {
	names := []string{name}
	if name == "" {
		names = s.Domains()
	}
	return func(yield func(*Rule) bool) {
		for _, name := range names {
			d := s.domains[name]
			if d == nil {
				continue
			}
			for _, r := range d.rules {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// compiler puts drafts into the trees of their domains.
type compiler struct {
	options  Options
	domains  map[string]*domain
	builders map[string]*builder
	queues   map[[2]string]*Rule // by domain and label
	faults   Faults
	paths    int // bytes of the paths of all rules
}

// maxPaths bounds what rules take for their paths: each nested rule has those of
// all above it in its own.
const maxPaths = 64 << 20

func pathLength(path []step) int {
	length := 0
	for i := range path {
		length += len(path[i].key) + len(path[i].value.text) + len("=, ")
	}
	return length
}

// shortPath is the path for a fault, which has no use for long values.
func shortPath(path []step) string {
	const most = 1000
	text := pathText(path)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

func (c *compiler) add(file string, d *draft) {
	dom := c.domains[d.domain]
	if dom == nil {
		b := newBuilder()
		dom = &domain{root: b.root, overrides: overrideID(d.domain)}
		c.domains[d.domain], c.builders[d.domain] = dom, b
	}
	n := c.builders[d.domain].reach(file, d)
	if d.rule == nil {
		return
	}
	if n.rule != nil {
		c.faults = append(c.faults, Fault{
			File: file, Line: d.at.line, Col: d.at.col,
			Msg: "the path " + shortPath(d.path) + " has a rule already, at " + n.rule.Place,
		})
		return
	}
	was := c.paths
	if c.paths += pathLength(d.path); c.paths > maxPaths {
		if was <= maxPaths { // said once
			c.faults = append(c.faults, Fault{File: file, Line: d.at.line, Col: d.at.col, Msg: fmt.Sprintf("with this rule, the paths of all rules take over %d MiB: shorten what is in them", maxPaths>>20)})
		}
		return
	}
	n.rule = newRule(c.options, file, d)
	c.checkQueueName(n.rule, file, d)
	dom.rules = append(dom.rules, n.rule)
}

// checkQueueName finds queues that could not be told apart by their names.
func (c *compiler) checkQueueName(r *Rule, file string, d *draft) {
	if r.Overflow == nil {
		return
	}
	name := [2]string{r.Domain, r.Label()}
	if other := c.queues[name]; other != nil {
		c.faults = append(c.faults, Fault{
			File: file, Line: d.at.line, Col: d.at.col,
			Msg: "the rule with over_limit: queue at " + other.Place + " has the same name, by which queues are told apart",
		})
	}
	c.queues[name] = r
}

// version digests what the documents say, whatever their names and order.
func version(docs []*Document) string {
	digests := make([][sha256.Size]byte, len(docs))
	for i, doc := range docs {
		digests[i] = doc.digest
	}
	return digestOf(digests)
}

// Digest is the Version of a Set of these files, whether they are sound or not.
func Digest(files map[string][]byte) string {
	digests := make([][sha256.Size]byte, 0, len(files))
	for _, src := range files {
		digests = append(digests, sha256.Sum256(src))
	}
	return digestOf(digests)
}

func digestOf(digests [][sha256.Size]byte) string {
	slices.SortFunc(digests, func(a, b [sha256.Size]byte) int { return bytes.Compare(a[:], b[:]) })
	whole := sha256.New()
	for _, digest := range digests {
		whole.Write(digest[:])
	}
	return hex.EncodeToString(whole.Sum(nil))[:12]
}

// Version is a digest of the documents' content, 12 hexadecimal digits. It does
// not depend on the names of files or their order.
func (s *Set) Version() string { return s.version }

// Size is how many domains and rules there are.
func (s *Set) Size() (domains, rules int) { return len(s.domains), s.rules }

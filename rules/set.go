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

func (o *Options) generation(domain string, path []part) uint64 {
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
	*tree
	name      string
	rules     []Rule      // in file order
	counters  []counterID // of each rule's limits but the first
	overrides counterID
}

// ruleOf is the rule that a node leads to, or nil; also of no node.
func (d *domain) ruleOf(n *node) *Rule {
	if n == nil || n.rule == 0 {
		return nil
	}
	return &d.rules[n.rule-1]
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
	c := compiler{completer: newCompleter(options), domains: map[string]*domain{}, builders: map[string]*builder{}, queues: map[[2]string]*Rule{}}
	set := &Set{domains: c.domains, options: options, version: version(docs)}
	c.makeRoom(docs)
	for _, doc := range docs {
		c.faults = append(c.faults, doc.faults...)
		set.warnings = append(set.warnings, doc.warnings...)
		for i := range doc.stated {
			c.add(&doc.stated[i], &doc.drafts[i])
		}
		runtime.Gosched() // requests go before
	}
	if err := c.faults.asError(); err != nil {
		return nil, err
	}
	for name, d := range set.domains {
		d.tree = c.builders[name].finish()
		delete(c.builders, name)
		for i := range d.rules {
			d.rules[i].index = uint32(set.rules + i)
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
			for i := range d.rules {
				if !yield(&d.rules[i]) {
					return
				}
			}
		}
	}
}

// compiler puts drafts into the trees of their domains.
type compiler struct {
	*completer
	domains  map[string]*domain
	builders map[string]*builder
	queues   map[[2]string]*Rule // by domain and label
	faults   Faults
	paths    int // bytes of the paths of all rules
}

// maxPaths bounds what rules take for their paths: each nested rule has those of
// all above it in its own.
const maxPaths = 64 << 20

func pathLength(path []part) int {
	length := 0
	for i := range path {
		length += len(path[i].key) + len(path[i].text) + len("=, ")
	}
	return length
}

// shortPath is the path for a fault, which has no use for long values.
func shortPath(path []part) string {
	const most = 1000
	text := pathText(path)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// makeRoom makes the domains, each with as much room as its rules and counters take.
func (c *compiler) makeRoom(docs []*Document) {
	rules, counters := map[string]int{}, map[string]int{}
	for _, doc := range docs {
		for i := range doc.drafts {
			name := doc.stated[i].in.domain
			if doc.drafts[i].rule != nil {
				rules[name]++
			}
			counters[name] += max(0, len(doc.drafts[i].limits)-1)
		}
	}
	for name := range counters {
		c.domains[name] = &domain{name: name, overrides: overrideID(name), rules: make([]Rule, 0, rules[name]), counters: make([]counterID, 0, counters[name])}
		c.builders[name] = newBuilder()
	}
}

func (c *compiler) add(at *stated, draft *statedDraft) {
	dom := c.domains[at.in.domain]
	n := c.builders[at.in.domain].reach(at)
	if draft.rule == nil {
		return
	}
	if n.rule > 0 {
		c.faults = append(c.faults, at.fault("the path "+shortPath(at.path)+" has a rule already, at "+dom.rules[n.rule-1].Place()))
		return
	}
	was := c.paths
	if c.paths += pathLength(at.path); c.paths > maxPaths {
		if was <= maxPaths { // said once
			c.faults = append(c.faults, at.fault(fmt.Sprintf("with this rule, the paths of all rules take over %d MiB: shorten what is in them", maxPaths>>20)))
		}
		return
	}
	dom.rules = append(dom.rules, c.rule(dom, at, draft))
	n.rule = uint32(len(dom.rules))
	c.checkQueueName(&dom.rules[n.rule-1])
}

// checkQueueName finds queues that could not be told apart by their names.
func (c *compiler) checkQueueName(r *Rule) {
	if r.Overflow == nil {
		return
	}
	name := [2]string{r.Domain, r.Label()}
	if other := c.queues[name]; other != nil {
		c.faults = append(c.faults, r.fault("the rule with over_limit: queue at "+other.Place()+" has the same name, by which queues are told apart"))
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

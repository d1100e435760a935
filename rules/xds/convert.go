package xds

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/rules"
)

// typeURL is that of the resources.
const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

const (
	maxDepth = 64        // levels of descriptors, as in files, and of metadata, which rules bound more closely
	maxText  = 128 << 20 // bytes of YAML: indenting makes many of few
)

// The nested spelling of rules, as far as the protos know it.
type (
	document struct {
		Domain      str          `yaml:"domain"`
		Descriptors []descriptor `yaml:"descriptors,omitempty"`
	}
	descriptor struct {
		Key            str          `yaml:"key"`
		Value          str          `yaml:"value,omitempty"` // "" is any value, as in files
		RateLimit      *rateLimit   `yaml:"rate_limit,omitempty"`
		ShadowMode     bool         `yaml:"shadow_mode,omitempty"`
		QuotaMode      bool         `yaml:"quota_mode,omitempty"`
		DetailedMetric bool         `yaml:"detailed_metric,omitempty"`
		Metadata       map[str]any  `yaml:"metadata,omitempty"`
		Descriptors    []descriptor `yaml:"descriptors,omitempty"`
	}
	rateLimit struct {
		Name            str       `yaml:"name,omitempty"`
		Unlimited       bool      `yaml:"unlimited,omitempty"`
		RequestsPerUnit *uint32   `yaml:"requests_per_unit,omitempty"`
		Unit            string    `yaml:"unit,omitempty"`
		Replaces        []replace `yaml:"replaces,omitempty"`
	}
	replace struct {
		Name str `yaml:"name"`
	}
)

// str is a text that the YAML library quotes where that is needed. For several
// lines it would take the block style, in which it loses some texts.
type str string

// MarshalYAML implements yaml.Marshaler.
func (s str) MarshalYAML() (any, error) {
	if !strings.Contains(string(s), "\n") {
		return string(s), nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: string(s), Style: yaml.DoubleQuotedStyle}, nil
}

// fingerprint tells sets of resources apart, whatever their order.
type fingerprint [sha256.Size]byte

// resources are what one response holds.
type resources struct {
	configs []*pb.RateLimitConfig
	faults  []string // of what is no RateLimitConfig
	print   fingerprint
	unknown []string // set by convert: names of those with fields that the protos here do not have
}

// decode reads the resources of a response. Servers may send the same ones in
// another order, and encode the same one in another way.
func decode(list []*anypb.Any) *resources {
	set := &resources{}
	sums := make([][]byte, 0, len(list))
	for _, item := range list {
		config := &pb.RateLimitConfig{}
		encoded := item.GetValue()
		if item.GetTypeUrl() != typeURL {
			set.faults = append(set.faults, fmt.Sprintf("a resource is a %q, not a %q", item.GetTypeUrl(), typeURL))
		} else if err := proto.Unmarshal(item.GetValue(), config); err != nil {
			set.faults = append(set.faults, fmt.Sprintf("a resource is not the RateLimitConfig that it says it is: %v", err))
		} else {
			set.configs = append(set.configs, config)
			if again, err := (proto.MarshalOptions{Deterministic: true}).Marshal(config); err == nil {
				encoded = again
			}
		}
		sum := sha256.Sum256(append([]byte(item.GetTypeUrl()+"\x00"), encoded...))
		sums = append(sums, sum[:])
	}
	slices.SortFunc(sums, bytes.Compare)
	// What begins the text tells no resources from nothing seen yet.
	set.print = sha256.Sum256(append([]byte("set"), slices.Concat(sums...)...))
	return set
}

// convert returns the resources as rule files, by name, and what is wrong with
// those that cannot be. Names are the control plane's: if two are alike, the second
// is called NAME#2.
func (set *resources) convert(url string) (map[string][]byte, rules.Faults) {
	files := make(map[string][]byte, len(set.configs))
	var faults rules.Faults
	for _, problem := range set.faults {
		faults = append(faults, rules.Fault{File: url, Msg: problem})
	}
	texts := &texts{left: maxText}
	for _, config := range set.configs {
		texts.add(config)
	}
	slices.SortFunc(texts.list, func(a, b text) int {
		return cmp.Or(strings.Compare(a.name, b.name), bytes.Compare(a.yaml, b.yaml))
	})
	taken := map[string]bool{}
	for _, t := range texts.list {
		name := url + "/" + t.name
		for n := 2; taken[name]; n++ {
			name = url + "/" + t.name + "#" + strconv.Itoa(n)
		}
		taken[name] = true
		for _, problem := range t.problems {
			faults = append(faults, rules.Fault{File: name, Msg: problem})
		}
		if t.unknown {
			set.unknown = append(set.unknown, name)
		}
		if t.yaml != nil {
			files[name] = t.yaml
		}
	}
	return files, faults
}

// texts makes YAML of resources, until there is too much of it.
type texts struct {
	list []text
	left int // bytes
}

// text is a resource as YAML.
type text struct {
	name     string
	yaml     []byte // nil: there are problems
	problems []string
	unknown  bool
}

func (t *texts) add(config *pb.RateLimitConfig) {
	c := &converter{}
	doc := document{Domain: str(config.GetDomain()), Descriptors: c.descriptors(config.GetDescriptors(), 0)}
	c.look(config)
	out := text{name: label(cmp.Or(config.GetName(), config.GetDomain())), unknown: c.unknown}
	// In a file no domain is the default one. A control plane that names none has
	// made a mistake, for no request of its proxies asks for it; envoyproxy/ratelimit
	// refuses it too.
	if doc.Domain == "" {
		c.fault("the resource has no domain")
	}
	if len(c.problems) == 0 {
		buffer := &limited{left: t.left}
		encoder := yaml.NewEncoder(buffer)
		encoder.SetIndent(2)
		err := encoder.Encode(doc)
		if err == nil {
			err = encoder.Close()
		}
		if err == nil {
			t.left, out.yaml = buffer.left, buffer.Bytes()
		} else {
			c.fault("writing it as YAML: %v", err)
		}
	}
	out.problems = c.problems
	t.list = append(t.list, out)
}

// limited is a buffer that takes no more than what is left.
type limited struct {
	bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, fmt.Errorf("the resources are over %d MiB as YAML", maxText>>20)
	}
	l.left -= len(p)
	return l.Buffer.Write(p)
}

// label makes a name fit for a line of a log.
func label(name string) string {
	quoted := strconv.Quote(name)
	return quoted[1 : len(quoted)-1]
}

// converter makes one resource a document. Whether what it says makes sense is
// left to rules.Parse, but for what YAML cannot say.
type converter struct {
	problems []string
	unknown  bool
}

func (c *converter) fault(format string, args ...any) {
	if problem := fmt.Sprintf(format, args...); !slices.Contains(c.problems, problem) {
		c.problems = append(c.problems, problem)
	}
}

// look notes fields of later protos.
func (c *converter) look(m proto.Message) {
	c.unknown = c.unknown || len(m.ProtoReflect().GetUnknown()) > 0
}

func (c *converter) descriptors(list []*pb.RateLimitDescriptor, depth int) []descriptor {
	if len(list) == 0 {
		return nil
	}
	if depth == maxDepth {
		c.fault("descriptors are deeper than %d levels", maxDepth)
		return nil
	}
	out := make([]descriptor, len(list))
	for i, d := range list {
		c.look(d)
		out[i] = descriptor{
			Key:            str(d.GetKey()),
			Value:          str(d.GetValue()),
			RateLimit:      c.rateLimit(d.GetRateLimit()),
			ShadowMode:     d.GetShadowMode(),
			QuotaMode:      d.GetQuotaMode(),
			DetailedMetric: d.GetDetailedMetric(),
			Metadata:       c.metadata(d.GetMetadata(), 0),
			Descriptors:    c.descriptors(d.GetDescriptors(), depth+1),
		}
	}
	return out
}

func (c *converter) rateLimit(p *pb.RateLimitPolicy) *rateLimit {
	if p == nil {
		return nil
	}
	c.look(p)
	out := &rateLimit{Name: str(p.GetName()), Unlimited: p.GetUnlimited()}
	// Beside unlimited, a unit or a number is only said if it is set. Else a unit
	// that is missing is said too, as UNKNOWN, which Parse refuses.
	if requests := p.GetRequestsPerUnit(); requests != 0 || !out.Unlimited {
		out.RequestsPerUnit = &requests
	}
	if p.GetUnit() != pb.RateLimitUnit_UNKNOWN || !out.Unlimited {
		out.Unit = p.GetUnit().String()
	}
	for _, r := range p.GetReplaces() {
		c.look(r)
		out.Replaces = append(out.Replaces, replace{Name: str(r.GetName())})
	}
	return out
}

func (c *converter) metadata(s *structpb.Struct, depth int) map[str]any {
	if s == nil {
		return nil
	}
	out := make(map[str]any, len(s.GetFields()))
	for key, value := range s.GetFields() {
		out[str(key)] = c.value(value, depth+1)
	}
	return out
}

func (c *converter) value(v *structpb.Value, depth int) any {
	if depth > maxDepth {
		c.fault("metadata is deeper than %d levels", maxDepth)
		return nil
	}
	switch kind := v.GetKind().(type) {
	case *structpb.Value_BoolValue:
		return kind.BoolValue
	case *structpb.Value_StringValue:
		return str(kind.StringValue)
	case *structpb.Value_NumberValue:
		return number(kind.NumberValue)
	case *structpb.Value_StructValue:
		return c.metadata(kind.StructValue, depth)
	case *structpb.Value_ListValue:
		list := []any{}
		for _, item := range kind.ListValue.GetValues() {
			list = append(list, c.value(item, depth+1))
		}
		return list
	}
	return nil
}

// number is a whole number where it can be, as a file would say it: all numbers of
// a Struct are doubles.
func number(n float64) any {
	if n == math.Trunc(n) && math.Abs(n) <= 1<<53 {
		return int(n)
	}
	return n
}

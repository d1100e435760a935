package rules

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"weir/limiter"
)

// A counter's key is a digest of what the rules say of its identity, and then
// what the request says of it:
//
//	rule      counterID of the limit ‖ for each variable: length and masked bit, value
//	override  counterID of the domain ‖ unit, multiplier, number of entries ‖ each key and value
//
// All parts have a length before them or a fixed one, and each digest stands for
// one shape of what follows, so that no two identities have one key. Digests of
// rules and overrides differ, for what is hashed names which it is.

// keyFormat changes with anything that gives a counter another meaning, so that
// versions of Weir that share a store share no counter that they read in
// different ways.
const keyFormat = "weir counter 1"

// counterID is the digest of a limit's identity, as far as the rules know it.
type counterID [16]byte

// identify digests an identity. Its 128 bits are as good as unique.
func identify(identity []byte) counterID {
	sum := sha256.Sum256(identity)
	return counterID(sum[:len(counterID{})])
}

// appendCounterIDs appends an identity for each limit of a rule. Of the limit, only
// algorithm and window are in it: a limit that is raised keeps what was used. The
// generation is 0 but for rules that were reset as a whole, and then not in it.
func appendCounterIDs(ids []counterID, domain string, path []part, limits []limiter.Limit, generation uint64) []counterID {
	if len(limits) == 0 {
		return ids
	}
	fixed := ruleIdentity(domain, path, "rule")
	var ordinals map[string]uint64 // of limits that count in the same way
	for _, limit := range limits {
		identity := appendText(fixed, limit.Algorithm.String()) // over that of the limit before
		identity = appendText(identity, limit.Window.String())
		ordinal := uint64(0)
		if len(limits) > 1 {
			if ordinals == nil {
				ordinals = map[string]uint64{}
			}
			ordinal = ordinals[string(identity)]
			ordinals[string(identity)]++
		}
		identity = binary.AppendUvarint(identity, ordinal)
		if generation > 0 {
			identity = binary.AppendUvarint(identity, generation)
		}
		ids = append(ids, identify(identity))
	}
	return ids
}

// RuleID names a rule by its domain and path, wherever it stands: 128 bits of
// SHA-256, in base64url.
type RuleID string

// ID is the rule's. It is that of all rules with this domain and path.
func (r *Rule) ID() RuleID { return ruleID(r.Domain, r.path) }

func ruleID(domain string, path []part) RuleID {
	id := identify(ruleIdentity(domain, path, "rule"))
	return RuleID(base64.RawURLEncoding.EncodeToString(id[:]))
}

// queueKey is the key of a rule's queue. What waits there stays where it is,
// whatever becomes of the limit.
func queueKey(domain string, path []part) limiter.Key {
	id := identify(ruleIdentity(domain, path, "queue"))
	return id[:]
}

// ruleIdentity is the identity of a rule, and what of the rule it is.
func ruleIdentity(domain string, path []part, what string) []byte {
	b := make([]byte, 0, 256)
	b = appendText(b, keyFormat)
	b = appendText(b, domain)
	b = appendText(b, what)
	b = binary.AppendUvarint(b, uint64(len(path)))
	for i := range path {
		b = appendText(b, path[i].key)
		b = appendText(b, path[i].text)
		b = appendBool(b, path[i].share)
	}
	return b
}

// overrideID is the identity that all overrides of a domain begin with.
func overrideID(domain string) counterID {
	identity := appendText(nil, keyFormat)
	identity = appendText(identity, domain)
	return identify(appendText(identity, "override"))
}

// appendKey appends the key of a rule's counter for the values of entries.
func (r *Rule) appendKey(keys []byte, id *counterID, entries []Entry) []byte {
	keys = append(keys, id[:]...)
	for _, v := range r.variables {
		keys = v.appendValue(keys, entries[v.entry].Value)
	}
	return keys
}

// appendValue appends a value, or the network that it is masked to. The lowest
// bit of the length tells them apart: "10.0.0.0/8" may be a value too.
func (v variable) appendValue(keys []byte, value string) []byte {
	if v.mask.set() {
		if addr, ok := parseAddress(value); ok {
			var text [64]byte
			network := v.mask.network(addr).AppendTo(text[:0])
			keys = binary.AppendUvarint(keys, uint64(len(network))<<1|1)
			return append(keys, network...)
		}
	}
	keys = binary.AppendUvarint(keys, uint64(len(value))<<1)
	return append(keys, value...)
}

// appendKey appends the key of an override's counter in the domain of the id.
func (o *Override) appendKey(keys []byte, id counterID, entries []Entry) []byte {
	keys = append(keys, id[:]...)
	keys = append(keys, byte(o.unit))
	keys = binary.AppendUvarint(keys, uint64(o.times))
	keys = binary.AppendUvarint(keys, uint64(len(entries)))
	for _, e := range entries {
		keys = appendText(keys, e.Key)
		keys = appendText(keys, e.Value)
	}
	return keys
}

func appendText(b []byte, text string) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

func appendBool(b []byte, on bool) []byte {
	if on {
		return append(b, 1)
	}
	return append(b, 0)
}

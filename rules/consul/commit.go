package consul

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	consulapi "github.com/hashicorp/consul/api"

	"weir/rules/kv"
)

// commitTimeout is how long a transaction may take, with an election of a leader.
const commitTimeout = 10 * time.Second

// limits of a transaction. Consul takes 128 operations (64 before 1.14, and the
// patches of its time), and some of ours are two of its own; and a request of 512
// KiB (txn_max_req_len), in which values are in base64: 320 KiB become 427, and
// 64 operations without their keys some 13. That leaves 60 KiB for what JSON
// makes of keys and for naming them twice. A single value has a request of its
// own, which may have 512 KiB (kv_max_value_size).
var limits = kv.Limits{Ops: 32, Bytes: 320 << 10, Value: 512 << 10}

// Limits is kv.Writer's. Servers may be configured to take less.
func (s *Store) Limits() kv.Limits { return limits }

// Commit is kv.Writer's. To check that a key does not exist needs the right to
// write it.
func (s *Store) Commit(ctx context.Context, ops []kv.Op) (uint64, error) {
	doing := "writing to " + s.at
	if len(ops) == 1 {
		doing = fmt.Sprintf("writing %s to %s", ops[0].Key, s.at)
	}
	for _, op := range ops {
		if !utf8.ValidString(op.Key) { // JSON would make it another
			return 0, fmt.Errorf("%s: key %q is not UTF-8", doing, op.Key)
		}
	}
	within, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	version, err := s.commit(within, doing, ops)
	if err != nil && !errors.Is(err, kv.ErrConflict) && !errors.Is(err, kv.ErrDenied) {
		err = s.failed(ctx, doing, mayWrite(ops), commitTimeout, err)
	}
	return version, err
}

func (s *Store) commit(ctx context.Context, doing string, ops []kv.Op) (uint64, error) {
	if len(ops) == 1 && ops[0].Kind == kv.Put && len(ops[0].Key)+len(ops[0].Value) > limits.Bytes {
		return s.putLarge(ctx, doing, ops[0])
	}
	t := transaction{}
	for _, op := range ops {
		t.add(op)
	}
	if len(t.ops) == 0 {
		return 0, nil
	}
	// One that only checks is a read, which may be stale if nothing is said.
	done, answer, _, err := s.client.Txn().Txn(t.ops, (&consulapi.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	if err != nil {
		return 0, err
	}
	if answer == nil {
		return 0, errors.New("the answer is not Consul's: is the address right?")
	}
	if !done {
		return 0, s.refused(doing, t.from, answer.Errors)
	}
	return t.version(answer.Results)
}

// transaction is ops in Consul's terms.
type transaction struct {
	ops   consulapi.TxnOps
	from  []kv.Op         // the one that each is of
	puts  map[string]bool // keys
	nonce uint64
}

func (t *transaction) add(op kv.Op) {
	switch {
	case op.Kind == kv.Put:
		t.put(op)
	case op.If == 0: // a check, and that of what is not there need not be removed
		t.append(op, consulapi.KVCheckNotExists)
	case op.Kind == kv.Check && op.If != kv.AnyVersion:
		t.append(op, consulapi.KVCheckIndex)
	case op.Kind == kv.Delete:
		if op.If != kv.AnyVersion {
			t.append(op, consulapi.KVCheckIndex) // delete-cas would take a key that is gone for done
		}
		t.append(op, consulapi.KVDelete)
	}
}

// put writes a key with a random number as its flags. Consul leaves a key as it
// is, with its version, when the same is written again; with other flags it is
// never the same.
func (t *transaction) put(op kv.Op) {
	if t.puts == nil {
		t.puts, t.nonce = map[string]bool{}, newNonce()
	}
	t.puts[op.Key] = true
	verb := consulapi.KVCAS
	if op.If == kv.AnyVersion {
		verb = consulapi.KVSet
	}
	kvOp := t.append(op, verb)
	kvOp.Value, kvOp.Flags = op.Value, t.nonce
}

// newNonce is a number that no two writes have. It fits into a float64, which is
// what JavaScript makes of it.
func newNonce() uint64 { return 1 + rand.Uint64N(1<<53-1) }

func (t *transaction) append(op kv.Op, verb consulapi.KVOp) *consulapi.KVTxnOp {
	kvOp := &consulapi.KVTxnOp{Verb: verb, Key: op.Key}
	if op.If != kv.AnyVersion {
		kvOp.Index = op.If
	}
	t.ops, t.from = append(t.ops, &consulapi.TxnOp{KV: kvOp}), append(t.from, op)
	return kvOp
}

// version finds the version that the keys have which were put: all the same, the
// index of the transaction in Consul's log.
func (t *transaction) version(results consulapi.TxnResults) (uint64, error) {
	version := uint64(0)
	for _, r := range results {
		if r != nil && r.KV != nil && t.puts[r.KV.Key] {
			version = r.KV.ModifyIndex
		}
	}
	if version == 0 && len(t.puts) > 0 {
		return 0, errors.New("it is done, but the answer does not say which version the keys have")
	}
	return version, nil
}

// refused says which ops of a transaction cannot be done, and why.
func (s *Store) refused(doing string, ops []kv.Op, why consulapi.TxnErrors) error {
	var denied, conflicts []kv.Op
	var texts []string
	for _, e := range why {
		if e == nil {
			continue
		}
		texts = append(texts, e.What)
		if e.OpIndex < 0 || e.OpIndex >= len(ops) {
			continue
		}
		switch op := ops[e.OpIndex]; {
		case strings.Contains(e.What, "Permission denied"):
			denied = append(denied, op)
		case op.If != kv.AnyVersion && strings.Contains(e.What, `key "`): // not that of a log that fails
			conflicts = append(conflicts, op)
		}
	}
	cause := errors.New(strings.Join(texts, "; "))
	switch {
	case len(denied) > 0:
		return kv.Denied(doing, s.needs(mayWrite(denied)), cause)
	case len(conflicts) > 0:
		return conflict(doing, conflicts, cause)
	}
	return cause
}

// conflict names the keys, but no more than a line holds.
func conflict(doing string, ops []kv.Op, cause error) error {
	const most = 5
	var keys []string
	for _, op := range ops[:min(len(ops), most)] {
		keys = append(keys, op.Key)
	}
	if more := len(ops) - most; more > 0 {
		keys = append(keys, fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("%s: %s: %w (%w)", doing, strings.Join(keys, ", "), kv.ErrConflict, cause)
}

// mayWrite is the right to do the ops.
func mayWrite(ops []kv.Op) string {
	right := "read"
	for _, op := range ops {
		if op.Kind != kv.Check || op.If == 0 {
			right = "write"
		}
	}
	if len(ops) == 1 {
		return fmt.Sprintf("key %q { policy = %q }", ops[0].Key, right)
	}
	return fmt.Sprintf("key_prefix %q { policy = %q }", commonPrefix(ops), right)
}

// commonPrefix is what all keys begin with.
func commonPrefix(ops []kv.Op) string {
	prefix := ops[0].Key
	for _, op := range ops {
		for !strings.HasPrefix(op.Key, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return prefix
}

// putLarge puts a value that is too large for a transaction, and reads which
// version the key has then. Somebody may have written it again in between, but
// not with the same nonce.
func (s *Store) putLarge(ctx context.Context, doing string, op kv.Op) (uint64, error) {
	pair := &consulapi.KVPair{Key: op.Key, Value: op.Value, Flags: newNonce()}
	options := (&consulapi.WriteOptions{}).WithContext(ctx)
	if op.If == kv.AnyVersion {
		if _, err := s.client.KV().Put(pair, options); err != nil {
			return 0, err
		}
	} else {
		pair.ModifyIndex = op.If
		done, _, err := s.client.KV().CAS(pair, options)
		if err != nil {
			return 0, err
		}
		if !done {
			return 0, conflict(doing, []kv.Op{op}, errors.New("its version is another"))
		}
	}
	now, _, err := s.client.KV().Get(op.Key, (&consulapi.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	if err != nil {
		return 0, fmt.Errorf("it is done, but its version cannot be read: %w", err)
	}
	if now == nil || now.Flags != pair.Flags {
		return 0, errors.New("it is done, but somebody has changed the key since")
	}
	return now.ModifyIndex, nil
}

// plain leaves the URL out of an error of HTTP.
func plain(err error) error {
	var full *url.Error
	if errors.As(err, &full) {
		return full.Err
	}
	return err
}

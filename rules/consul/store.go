// Package consul keeps rules in Consul's key-value store, and tells which
// instances of Weir its catalog knows.
package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	consulapi "github.com/hashicorp/consul/api"

	"weir/rules/kv"
)

// patience is how long Consul may take for an answer, beyond what it was asked to
// wait. Without a leader it looks for one for seven seconds, and says so then.
const patience = 10 * time.Second

// Store is Consul's key-value store. A key's version is its ModifyIndex. A write
// of others that does not change a key's value leaves it its version, which is no
// harm: nothing was changed.
type Store struct {
	client *client
	at     string // which Consul, for errors
}

var _ kv.Store = (*Store)(nil)

// New returns the store. It connects to nothing yet, and fails only for options
// that can never work.
func New(options Options) (*Store, error) {
	client, err := newClient(options)
	if err != nil {
		return nil, err
	}
	s := &Store{client: client, at: "Consul at " + client.addr}
	if options.Datacenter != "" {
		s.at += " (datacenter " + options.Datacenter + ")"
	}
	return s, nil
}

// Addr is the address of the agent, as a URL.
func (s *Store) Addr() string { return s.client.addr }

// Close ends connections that nothing uses.
func (s *Store) Close() error {
	s.client.close()
	return nil
}

// List is kv.Reader's.
func (s *Store) List(ctx context.Context, q kv.Query) (kv.Listing, error) {
	doing := fmt.Sprintf("listing %s in %s", q.Prefix, s.at)
	if q.Since > 0 && q.Wait > 0 {
		if err := s.await(ctx, doing, q); err != nil {
			return kv.Listing{}, err
		}
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pairs, meta, err := s.client.KV().List(q.Prefix, query(q).WithContext(within))
	if err != nil {
		return kv.Listing{}, s.failed(ctx, doing, mayRead(q.Prefix, err), patience, err)
	}
	// What a token may not read is left out without an error: rules with holes.
	if meta.ResultsFilteredByACLs {
		return kv.Listing{}, kv.Denied(doing, s.needs(mayRead(q.Prefix, nil)), errFiltered)
	}
	// Where there is nothing, nothing is left out; and to whom has no token it is
	// not told. Other than a listing, a read of a key is refused.
	if q.Prefix != "" && (len(pairs) == 0 || s.client.token.get() == "") {
		if err := s.mayRead(ctx, q); err != nil {
			return kv.Listing{}, s.failed(ctx, doing, mayRead(q.Prefix, err), patience, err)
		}
	}
	if meta.LastIndex == 0 && len(pairs) == 0 {
		return kv.Listing{}, fmt.Errorf("%s: the answer is not Consul's, it has no X-Consul-Index: is the address right?", doing)
	}
	l := kv.Listing{Index: max(meta.LastIndex, 1), Pairs: make([]kv.Pair, len(pairs))}
	for i, p := range pairs { // in the order of their keys, for Consul keeps them in a radix tree
		if p == nil {
			return kv.Listing{}, fmt.Errorf("%s: the answer is not Consul's, there is a null in it: is the address right?", doing)
		}
		l.Pairs[i] = kv.Pair{Key: p.Key, Value: p.Value, Version: p.ModifyIndex}
	}
	return l, nil
}

// step is how long one blocking query waits.
const step = 5 * time.Second

// await returns when the prefix should be listed: something has changed, or the
// wait is over. It asks by blocking queries of the keys alone, and not for long
// at once: a Consul that began anew is far from the index that the query waits
// for, and shows so only in its answer.
func (s *Store) await(ctx context.Context, doing string, q kv.Query) error {
	for end := time.Now().Add(q.Wait); ; {
		options := query(q)
		options.WaitIndex, options.WaitTime = q.Since, min(step, max(time.Until(end), time.Millisecond))
		limit := options.WaitTime + options.WaitTime/16 + patience // Consul spreads the ends of waits by a sixteenth
		within, cancel := context.WithTimeout(ctx, limit)
		asked := time.Now()
		_, meta, err := s.client.KV().Keys(q.Prefix, "", options.WithContext(within))
		cancel()
		if err != nil {
			return s.failed(ctx, doing, mayRead(q.Prefix, err), limit, err)
		}
		if meta.LastIndex != q.Since || !time.Now().Before(end) {
			return nil
		}
		if time.Since(asked) < options.WaitTime/2 { // what is there does not wait
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func query(q kv.Query) *consulapi.QueryOptions {
	return &consulapi.QueryOptions{AllowStale: q.Stale, RequireConsistent: !q.Stale}
}

var errFiltered = errors.New("something was left out that the token may not read")

// mayRead tells by an error that the keys beneath the prefix are not to be read.
func (s *Store) mayRead(ctx context.Context, q kv.Query) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, _, err := s.client.KV().Get(q.Prefix, query(q).WithContext(ctx))
	return err
}

// mayRead is the right to list a prefix. With acl.enable_key_list_policy, Consul
// wants one of its own.
func mayRead(prefix string, err error) string {
	right := "read"
	if err != nil && strings.Contains(err.Error(), "key:list") {
		right = "list"
	}
	return fmt.Sprintf("key_prefix %q { policy = %q }", prefix, right)
}

// failed says what was being done when Consul or the way to it failed, with the
// right that is needed if it is one that is missing.
func (s *Store) failed(ctx context.Context, doing, right string, limit time.Duration, err error) error {
	switch {
	case ctx.Err() != nil: // the caller's
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: no answer within %v: %w", doing, limit.Round(time.Millisecond), context.DeadlineExceeded)
	case strings.Contains(err.Error(), "ACL not found"):
		return kv.Denied(doing, "a token that this Consul knows", err)
	case isDenied(err):
		return kv.Denied(doing, s.needs(right), err)
	}
	var syntax *json.SyntaxError
	var other *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &other) {
		return fmt.Errorf("%s: the answer is not Consul's: is the address right? %w", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, plain(err))
}

// needs is what is missing where a right is.
func (s *Store) needs(right string) string {
	if s.client.token.get() == "" {
		return "a token (CONSUL_HTTP_TOKEN) with " + right
	}
	return right
}

// isDenied tells by the text too, since a transaction's answer has no status.
func isDenied(err error) bool {
	var status consulapi.StatusError
	return errors.As(err, &status) && status.Code == http.StatusForbidden || strings.Contains(err.Error(), "Permission denied")
}

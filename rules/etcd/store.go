// Package etcd keeps rules in etcd.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"weir/rules/kv"
)

// Store is etcd. A key's version is the revision of its last write, and the index
// of a listing the revision of the whole store.
type Store struct {
	config clientv3.Config
	addr   string // for errors

	connecting chan struct{} // held by who uses what follows
	client     *clientv3.Client
	closed     bool
}

var _ kv.Store = (*Store)(nil)

// New returns the store. It connects to nothing yet, and fails only for options
// that can never work.
func New(options Options) (*Store, error) {
	config, err := options.config()
	if err != nil {
		return nil, err
	}
	return &Store{config: config, addr: strings.Join(config.Endpoints, ","), connecting: make(chan struct{}, 1)}, nil
}

// List is kv.Reader's. It waits by a watch of the prefix, and reads it then.
func (s *Store) List(ctx context.Context, q kv.Query) (kv.Listing, error) {
	begun := time.Now()
	doing := fmt.Sprintf("listing %s in etcd at %s", q.Prefix, s.addr)
	right := fmt.Sprintf("read on %q and all beneath (etcdctl role grant-permission ROLE read --prefix %s)", q.Prefix, q.Prefix)
	client, err := s.connect(ctx)
	if err != nil {
		return kv.Listing{}, s.failed(ctx, doing, right, begun, err)
	}
	var changed int64
	var unwatched error
	if q.Since > 0 && q.Wait > 0 {
		changed, unwatched = await(ctx, client, q)
		if client, err = s.connect(ctx); err != nil { // it was closed meanwhile
			return kv.Listing{}, s.failed(ctx, doing, right, begun, err)
		}
	}
	answer, err := get(ctx, client, q.Prefix, q.Stale)
	if err == nil && answer.Header.Revision < changed {
		// Another server answered, to which the change has not come yet.
		answer, err = get(ctx, client, q.Prefix, false)
	}
	if err == nil {
		err = unwatched // else whoever lists again and again would not pause
	}
	if err != nil {
		return kv.Listing{}, s.failed(ctx, doing, right, begun, err)
	}
	l := kv.Listing{Index: uint64(answer.Header.Revision), Pairs: make([]kv.Pair, len(answer.Kvs))}
	for i, p := range answer.Kvs {
		l.Pairs[i] = kv.Pair{Key: string(p.Key), Value: p.Value, Version: uint64(p.ModRevision)}
	}
	return l, nil
}

// get reads all keys beneath a prefix, in their order, as of one revision.
func get(ctx context.Context, client *clientv3.Client, prefix string, stale bool) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	options := []clientv3.OpOption{clientv3.WithPrefix()}
	if stale {
		options = append(options, clientv3.WithSerializable())
	}
	return client.Get(ctx, prefix, options...)
}

// await returns when the prefix should be read: something has changed, and in
// which revision; or the wait is over; or the watch would not tell. Which that is,
// reading shows: a server that is away, one that began anew, and history that was
// compacted. An error is of a watch that is refused.
//
// The client goes on with a watch on whatever server it finds, also on one that
// began anew, from a revision which that one may not have for long. So the watch
// ends with the connection.
func await(ctx context.Context, client *clientv3.Client, q kv.Query) (changed int64, err error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), q.Wait)
	defer cancel()
	begin := time.AfterFunc(patience, cancel)
	defer begin.Stop()
	watch := client.Watch(ctx, q.Prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(q.Since)+1), clientv3.WithCreatedNotify())
	var lost chan struct{}
	for {
		select {
		case <-ctx.Done():
			return 0, nil
		case <-lost:
			return 0, nil
		case answer, ok := <-watch:
			err := answer.Err()
			switch {
			case !ok || errors.Is(err, rpctypes.ErrCompacted):
				return 0, nil
			case err != nil:
				return 0, err
			case answer.Created && answer.Header.Revision < int64(q.Since):
				return 0, nil
			case answer.Created:
				begin.Stop()
				lost = make(chan struct{})
				go func() {
					if client.ActiveConnection().WaitForStateChange(ctx, connectivity.Ready) {
						close(lost)
					}
				}()
			case len(answer.Events) > 0:
				return answer.Header.Revision, nil
			}
		}
	}
}

// failed says what was being done when etcd or the way to it failed, with the
// right that is needed if it is one that is missing.
func (s *Store) failed(ctx context.Context, doing, right string, begun time.Time, err error) error {
	user := "user " + s.config.Username
	switch {
	case ctx.Err() != nil: // the caller's
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		return fmt.Errorf("%s: no answer after %v: %w", doing, time.Since(begun).Round(100*time.Millisecond), context.DeadlineExceeded)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return kv.Denied(doing, right+" for "+user, err)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return kv.Denied(doing, "a user (ETCDCTL_USER)", err)
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return kv.Denied(doing, "the password of "+user, err)
	case errors.Is(err, rpctypes.ErrInvalidAuthToken):
		return kv.Denied(doing, "a new login of "+user, err)
	}
	if answer, ok := status.FromError(err); ok {
		err = errors.New(answer.Message())
	}
	return fmt.Errorf("%s: %w", doing, err)
}

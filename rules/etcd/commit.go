package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"weir/rules/kv"
)

// commitTimeout is how long a transaction may take, with an election of a leader.
const commitTimeout = 10 * time.Second

// limits of a transaction. etcd takes 128 comparisons and 128 operations
// (--max-txn-ops), and a request of 1.5 MiB (--max-request-bytes). In that a key
// is up to three times: to compare, to write, and to look up in a conflict.
var limits = kv.Limits{Ops: 128, Bytes: 1 << 20, Value: 1 << 20}

// Limits is kv.Writer's. Servers may be configured to take less.
func (s *Store) Limits() kv.Limits { return limits }

// Commit is kv.Writer's.
func (s *Store) Commit(ctx context.Context, ops []kv.Op) (uint64, error) {
	begun := time.Now()
	doing := fmt.Sprintf("writing to etcd at %s", s.addr)
	if len(ops) == 1 {
		doing = fmt.Sprintf("writing %s to etcd at %s", ops[0].Key, s.addr)
	}
	version, err := s.commit(ctx, doing, ops)
	if err != nil && !errors.Is(err, kv.ErrConflict) {
		err = s.failed(ctx, doing, mayWrite(ops), begun, err)
	}
	return version, err
}

func (s *Store) commit(ctx context.Context, doing string, ops []kv.Op) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	client, err := s.connect(ctx)
	if err != nil {
		return 0, err
	}
	var holds []clientv3.Cmp
	var do, look []clientv3.Op
	var checked []kv.Op // which look looks up
	puts := false
	for _, op := range ops {
		if op.If != kv.AnyVersion {
			holds = append(holds, clientv3.Compare(clientv3.ModRevision(op.Key), "=", int64(op.If)))
			look = append(look, clientv3.OpGet(op.Key, clientv3.WithKeysOnly()))
			checked = append(checked, op)
		}
		switch {
		case op.Kind == kv.Put:
			do = append(do, clientv3.OpPut(op.Key, string(op.Value)))
			puts = true
		case op.Kind == kv.Delete && op.If != 0:
			do = append(do, clientv3.OpDelete(op.Key))
		}
	}
	if len(holds)+len(do) == 0 {
		return 0, ctx.Err()
	}
	answer, err := client.Txn(ctx).If(holds...).Then(do...).Else(look...).Commit()
	switch {
	case err != nil:
		return 0, err
	case !answer.Succeeded:
		return 0, conflict(doing, checked, answer)
	case !puts:
		return 0, nil
	}
	return uint64(answer.Header.Revision), nil // which all have that it wrote
}

// conflict names the keys that have another version, as looked up together with
// the comparison.
func conflict(doing string, checked []kv.Op, answer *clientv3.TxnResponse) error {
	var others []kv.Op
	for i, r := range answer.Responses {
		var version uint64
		for _, p := range r.GetResponseRange().GetKvs() {
			version = uint64(p.ModRevision)
		}
		if i < len(checked) && version != checked[i].If {
			others = append(others, checked[i])
		}
	}
	return fmt.Errorf("%s: %s: %w", doing, names(others), kv.ErrConflict)
}

// names lists keys, but no more than a line holds.
func names(ops []kv.Op) string {
	const most = 5
	var keys []string
	for _, op := range ops[:min(len(ops), most)] {
		keys = append(keys, op.Key)
	}
	if more := len(ops) - most; more > 0 {
		keys = append(keys, fmt.Sprintf("%d more", more))
	}
	return strings.Join(keys, ", ")
}

// mayWrite is the right to do the ops. To compare a key is to read it; etcd does
// not say which key it is.
func mayWrite(ops []kv.Op) string {
	right := "read"
	for _, op := range ops {
		if op.Kind != kv.Check {
			right = "readwrite"
		}
	}
	return fmt.Sprintf("%s on %s (etcdctl role grant-permission ROLE %s --prefix …)", right, names(ops), right)
}

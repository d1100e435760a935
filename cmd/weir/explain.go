package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
	"weir/limiter/redis"
	"weir/rules"
)

func newExplain() *cobra.Command {
	var addr, keyPrefix string
	var keySecret keySecretFlags
	var t clientTLSFlags
	var paths []string
	cmd := &cobra.Command{
		Use:   "explain DOMAIN key=value…",
		Short: "tell which rule matches a descriptor and why, and which nearly did",
		Long: `Tell which rule matches a descriptor and why, which rules nearly did and what is
missing: by the rules that a running server has in force, or by files (--rules). A
server also tells what the counters of the rule hold now; nothing is charged.`,
		Example: `  weir explain default endpoint=/api/posts user=alice
  weir explain --rules rules/ api endpoint=/api/login remote_address=192.0.2.7`,
		Args: atLeast(2, "a domain and one key=value at least"),
		RunE: func(cmd *cobra.Command, args []string) error {
			descriptors, err := parseDescriptors(args[1:])
			if err != nil {
				return err
			}
			if len(descriptors) > 1 {
				return usagef("explain takes one descriptor")
			}
			var text string
			if len(paths) > 0 {
				var secret []byte
				if secret, err = keySecret.secret(cmd.Flags()); err != nil {
					return err
				}
				text, err = explainFiles(paths, redis.NewNaming(keyPrefix, secret), args[0], descriptors[0])
			} else {
				text, err = explainRemote(cmd.Context(), addr, &t, args[0], descriptors[0])
			}
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringVar(&addr, "addr", defaultAddr, "the server's gRPC address: host:port or unix:PATH")
	t.addGRPCFlags(cmd.Flags())
	cmd.Flags().StringArrayVar(&paths, "rules", nil, "explain by this rule file or folder instead of asking a server (repeatable)")
	cmd.Flags().StringVar(&keyPrefix, "key-prefix", redis.DefaultKeyPrefix, "with --rules: the key prefix of the servers, for the counters' names")
	keySecret.addFlags(cmd.Flags(), "with --rules: as the servers have it: ")
	return cmd
}

func explainFiles(paths []string, naming *redis.Naming, domain string, entries []rules.Entry) (string, error) {
	set, err := compileFiles(paths)
	if err != nil {
		return "", err
	}
	return set.Explain(domain, entries).NameCounters(naming.Counter).String(), nil
}

func explainRemote(ctx context.Context, addr string, t *clientTLSFlags, domain string, entries []rules.Entry) (string, error) {
	conn, err := connect(addr, t)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req := &weirv1.ExplainRequest{Domain: domain}
	for _, e := range entries {
		req.Entries = append(req.Entries, weirv1.NewEntry(e.Key, e.Value))
	}
	client := weirv1.NewWeirServiceClient(conn)
	resp, err := client.Explain(ctx, req)
	if err != nil {
		return "", askFailed(conn, addr, t, err)
	}
	if len(resp.Limits) == 0 {
		return resp.Text, nil // nothing is counted
	}
	peeked, err := client.Peek(ctx, &weirv1.PeekRequest{Domain: domain, Descriptors: []*weirv1.Descriptor{{Entries: req.Entries}}})
	if err != nil {
		return fmt.Sprintf("%s  what the counters hold now is not known: %s\n", resp.Text, grpcstatus.Convert(err).Message()), nil
	}
	return resp.Text + heldText(peeked), nil
}

// heldText says what the counters hold now, a line for each limit.
func heldText(peeked *weirv1.PeekResponse) string {
	var b strings.Builder
	b.WriteString("  now (this was not charged):\n")
	for _, d := range peeked.Decisions {
		fmt.Fprintf(&b, "    %d per %v %s: ", d.Limit, d.Window.AsDuration(), d.Algorithm)
		reset := d.ResetAfter.AsDuration()
		switch {
		case d.DecidedBy == "allow" || d.DecidedBy == "deny":
			b.WriteString("not known, for the store is away (on_store_failure: " + d.DecidedBy + ")")
		case reset == 0 && d.Allowed:
			fmt.Fprintf(&b, "%d left, all of it", d.Remaining)
		case d.Remaining > 0:
			fmt.Fprintf(&b, "%d left", d.Remaining)
		default:
			b.WriteString("0 left, the next request is refused")
		}
		if reset > 0 {
			fmt.Fprintf(&b, "; full again in %v", weirv1.Milliseconds(reset))
		}
		if d.Shadow {
			b.WriteString(" (in shadow: it refuses nothing)")
		}
		if d.DecidedBy == "local" {
			b.WriteString(" (the store is away: this is what the server itself has counted)")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

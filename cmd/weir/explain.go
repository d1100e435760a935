package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

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
		Long: `Tell which rule matches a descriptor and why, and which rules nearly did: by the
rules that a running server has in force, or by files (--rules). Nothing is charged.`,
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
	resp, err := weirv1.NewWeirServiceClient(conn).Explain(ctx, req)
	if err != nil {
		return "", askFailed(conn, addr, t, err)
	}
	return resp.Text, nil
}

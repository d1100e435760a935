package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	weirv1 "weir/api/weir/v1"
)

func newReset() *cobra.Command {
	var o operatorFlags
	var rule string
	cmd := &cobra.Command{
		Use:   "reset DOMAIN key=value… | DOMAIN --rule NAME",
		Short: "have counters begin anew: those of a descriptor, or all of a rule",
		Long: `Have counters begin anew: those that a descriptor charges, or with --rule all of
the rules of this name or path. With counters in Redis all instances follow,
within two seconds. What waits in a queue stays there. It is for operators:
show the server's admin token, unless the server has none and is on this machine.`,
		Example: `  weir reset default endpoint=/api/posts user=alice
  weir reset default --rule login`,
		Args: atLeast(1, "a domain, and key=value words or --rule"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &weirv1.ResetRequest{Domain: args[0]}
			switch {
			case cmd.Flags().Changed("rule") == (len(args) > 1):
				return usagef("want either key=value words or --rule")
			case len(args) == 1:
				req.What = &weirv1.ResetRequest_Rule{Rule: rule}
			default:
				descriptors, err := parseDescriptors(args[1:])
				if err != nil {
					return err
				}
				if len(descriptors) > 1 {
					return usagef("reset takes one descriptor")
				}
				d := &weirv1.Descriptor{}
				for _, e := range descriptors[0] {
					d.Entries = append(d.Entries, weirv1.NewEntry(e.Key, e.Value))
				}
				req.What = &weirv1.ResetRequest_Descriptor_{Descriptor_: d}
			}
			return o.with(cmd.Context(), func(ctx context.Context, client weirv1.WeirServiceClient) error {
				ctx, cancel := context.WithTimeout(ctx, o.timeout)
				defer cancel()
				resp, err := client.Reset(ctx, req)
				if err != nil {
					return err
				}
				for _, name := range resp.Rules {
					if len(args) == 1 {
						fmt.Fprintf(cmd.OutOrStdout(), "all counters of %s begin anew\n", name)
					} else {
						fmt.Fprintf(cmd.OutOrStdout(), "%s begins anew for this descriptor (%s held something)\n", name, count(int(resp.Counters), "counter"))
					}
				}
				return nil
			})
		},
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&rule, "rule", "", "the name of a rule, or its path where it has none, such as endpoint=/api/posts")
	return cmd
}

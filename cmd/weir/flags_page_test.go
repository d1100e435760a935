package main

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/golden"
)

var update = flag.Bool("update", false, "write docs/flags.md anew")

// TestTheFlagsPageIsUpToDate holds docs/flags.md against the commands. After a
// change of flags: go test ./cmd/weir -run FlagsPage -update
func TestTheFlagsPageIsUpToDate(t *testing.T) {
	golden.Check(t, "../../docs/flags.md", flagsText(newRoot()), *update)
}

// flagsText is the page.
func flagsText(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(`# The command line

<!-- Generated from the commands: go test ./cmd/weir -run FlagsPage -update -->

A flag wins over the environment, which wins over the default. The environment's name of a flag is ` + "`WEIR_`" + ` and the
flag's name in capitals, with ` + "`_` for `-`: `--grpc-addr` is `WEIR_GRPC_ADDR`" + `. Durations are written as ` + "`500ms`, `10s`, `1h30m`" + `.
Exit codes: 0 done, 1 it failed, 2 wrong use.
`)
	for _, cmd := range root.Commands() {
		if cmd.Name() != "help" {
			commandText(&b, cmd)
		}
	}
	return b.String()
}

func commandText(b *strings.Builder, cmd *cobra.Command) {
	text := cmd.Long
	if text == "" {
		text = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
	}
	use := strings.TrimPrefix(cmd.CommandPath()+strings.TrimPrefix(cmd.Use, cmd.Name()), "weir ")
	fmt.Fprintf(b, "\n## `weir %s`\n\n%s\n", use, strings.ReplaceAll(strings.ReplaceAll(text, "<", "&lt;"), "*", `\*`))
	if cmd.Example != "" {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.ReplaceAll(cmd.Example, "  weir", "weir"))
	}
	rows := 0
	flags := cmd.LocalNonPersistentFlags()
	if cmd.PersistentFlags().HasFlags() {
		flags = cmd.PersistentFlags() // of all its commands, and said once
	}
	flags.SortFlags = false // as they are declared: what belongs together stands together
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		if rows++; rows == 1 {
			b.WriteString("\n| flag | value | default | meaning |\n|---|---|---|---|\n")
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name += ", `-" + f.Shorthand + "`"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, valueText(f), defaultText(f), strings.ReplaceAll(f.Usage, "|", `\|`))
	})
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" {
			commandText(b, sub)
		}
	}
}

func valueText(f *pflag.Flag) string {
	if c, ok := f.Value.(*choice); ok {
		return "`" + strings.Join(c.allowed, "`, `") + "`"
	}
	switch kind := f.Value.Type(); kind {
	case "bool":
		return "`true`, `false`"
	case "int", "uint32", "uint64":
		return "whole number"
	case "float64":
		return "number"
	case "string":
		return "text"
	case "stringArray":
		return "text, repeatable"
	default:
		return kind
	}
}

func defaultText(f *pflag.Flag) string {
	if f.DefValue == "" || f.DefValue == "[]" {
		return ""
	}
	return "`" + f.DefValue + "`"
}

package main

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// logFlags say what to log, and how.
type logFlags struct {
	level, format choice
	refused       int
	values        bool
}

func (l *logFlags) addFlags(f *pflag.FlagSet) {
	l.level = choice{[]string{"debug", "info", "warn", "error"}, "info"}
	f.Var(&l.level, "log-level", "what to log")
	l.format = choice{[]string{"text", "json"}, "text"}
	f.Var(&l.format, "log-format", "how to log")
}

// addRefusals adds the flags of who decides requests.
func (l *logFlags) addRefusals(f *pflag.FlagSet) {
	f.IntVar(&l.refused, "log-refused", 1, "lines a second that the log has on refused requests at most, at info: with the rule, and how many were left out (0: none)")
	f.BoolVar(&l.values, "log-values", false, "those lines have the values of the refused descriptor too, which may be personal data")
}

func (l *logFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.level.value)) // the flag took only level names
	opts := &slog.HandlerOptions{Level: level}
	if l.format.value == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	goredis "github.com/redis/go-redis/v9"
)

// Reasons are all that Reason returns.
func Reasons() []string {
	reasons := []string{"timeout", "refused", "connection", "overload", "calendar", "reply", "error", "other"}
	for _, r := range replies {
		if !slices.Contains(reasons, r.reason) {
			reasons = append(reasons, r.reason)
		}
	}
	return reasons
}

// replies are the errors of Redis's own that are told apart, by what they begin
// with.
var replies = [...]struct{ prefix, reason string }{
	{"READONLY", "readonly"},
	{"LOADING", "loading"},
	{"OOM", "out_of_memory"},
	{"NOAUTH", "auth"},
	{"WRONGPASS", "auth"},
	{"NOPERM", "permission"},
	{"CLUSTERDOWN", "cluster_down"},
	{"MASTERDOWN", "master_down"},
	{"NOREPLICAS", "no_replicas"},
	{"MISCONF", "misconfigured"},
	{"BUSY", "busy"},
	{"MOVED", "moved"},
}

// isERR tells of Redis's errors that have no word of their own but ERR, which
// HasErrorPrefix does not see.
func isERR(err error) bool {
	var own goredis.Error
	return errors.As(err, &own) && strings.HasPrefix(own.Error(), "ERR ")
}

// Reason puts an error of Events.Failed into one of a few classes, for metrics.
func Reason(err error) string {
	for _, r := range replies {
		if goredis.HasErrorPrefix(err, r.prefix) {
			return r.reason
		}
	}
	var own goredis.Error
	var network net.Error
	switch {
	case errors.As(err, &own):
		return "error"
	case errors.Is(err, errTimeout), errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, goredis.ErrAutoPipelineQueueFull), errors.Is(err, goredis.ErrPoolTimeout), errors.Is(err, goredis.ErrPoolExhausted):
		return "overload"
	case errors.Is(err, errReply):
		return "reply"
	case errors.Is(err, errCalendar):
		return "calendar"
	case errors.As(err, &network), errors.Is(err, net.ErrClosed), errors.Is(err, goredis.ErrClosed),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection"
	}
	return "other"
}

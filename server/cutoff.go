package server

import (
	"net/http"
	"time"
)

// stalled is how long a client may take to read a part of its answer.
const stalled = 10 * time.Second

// cutOff has the connection of a client closed that does not read what the handler
// writes: else each would keep a goroutine and its buffers for ever. It bounds each
// write, and not the time until the first, for a leaky bucket may hold an answer for long.
// A handler that sets a deadline of its own has that in place of this.
func cutOff(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := &bounded{ResponseWriter: w, control: http.NewResponseController(w)}
		_ = b.control.SetWriteDeadline(time.Time{}) // that of the answer before it on this connection; a test's writer may have none
		defer b.extend()                            // the last part is sent when the handler has returned
		handler.ServeHTTP(b, r)
	})
}

// bounded is the writer of one answer.
type bounded struct {
	http.ResponseWriter
	control *http.ResponseController
	own     bool // the handler has set a deadline
}

func (b *bounded) extend() {
	if !b.own {
		_ = b.control.SetWriteDeadline(time.Now().Add(stalled))
	}
}

// Write implements http.ResponseWriter.
func (b *bounded) Write(p []byte) (int, error) {
	b.extend()
	return b.ResponseWriter.Write(p)
}

// SetWriteDeadline is for http.ResponseController.
func (b *bounded) SetWriteDeadline(at time.Time) error {
	b.own = true
	return b.control.SetWriteDeadline(at)
}

// Unwrap is for http.ResponseController.
func (b *bounded) Unwrap() http.ResponseWriter { return b.ResponseWriter }

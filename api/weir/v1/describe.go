package weirv1

import (
	"fmt"
	"time"
)

// Describe is what the limit says, such as "refuses, 5 per 1m0s fixed_window, 0
// left, retry after 12.345s (posts)".
func (d *Decision) Describe() string {
	text := "passes"
	if !d.Allowed {
		text = "refuses"
	}
	if d.Shadow {
		text += " in shadow"
	}
	text += fmt.Sprintf(", %d per %v %s, %d left", d.Limit, d.Window.AsDuration(), d.Algorithm, d.Remaining)
	if !d.Allowed {
		switch {
		case d.RetryAfter != nil:
			text += fmt.Sprintf(", retry after %v", Milliseconds(d.RetryAfter.AsDuration()))
		case d.DecidedBy != "deny":
			text += ", waiting cannot help"
		}
	}
	switch d.DecidedBy {
	case "allow", "deny", "local":
		text += ", without the store (on_store_failure: " + d.DecidedBy + ")"
	}
	if wait := d.Delay.AsDuration(); wait > 0 {
		text += fmt.Sprintf(", held for %v", Milliseconds(wait))
	}
	if reset := d.ResetAfter.AsDuration(); reset > 0 {
		text += fmt.Sprintf(", full again in %v", Milliseconds(reset))
	}
	if d.Rule != "" {
		text += " (" + d.Rule + ")"
	}
	return text
}

// Milliseconds rounds up, for who comes earlier is refused.
func Milliseconds(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

package kv

import "time"

// SetAlarm says after how long a push that stands is told of.
func (s *Source) SetAlarm(d time.Duration) { s.alarm = d }

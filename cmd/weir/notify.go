package main

import (
	"log/slog"

	"github.com/coreos/go-systemd/v22/daemon"
)

// tellManager tells systemd how it stands, where it has asked to be told
// (NOTIFY_SOCKET; Type=notify). A manager that cannot be told is no reason to stop.
func tellManager(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd cannot be told (NOTIFY_SOCKET)", "err", err)
	}
}

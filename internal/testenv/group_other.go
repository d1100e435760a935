//go:build unix && !linux

package testenv

import "syscall"

// ownGroup gives a program a process group of its own, so that its children end
// with it. Here nothing ends it where no cleanup runs.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

package testenv

import "syscall"

// ownGroup gives a program a process group of its own, so that its children end
// with it. Pdeathsig ends it also where no cleanup runs, as when `go test
// -timeout` aborts the test binary; the kernel ties it to the thread that
// started the program, and the Go runtime does not end its threads.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

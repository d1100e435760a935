package chaos

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

// fileSizeLimit sets RLIMIT_FSIZE (the soft one) of a process.
func fileSizeLimit(pid int, size uint64) error {
	call := uintptr(261) // prlimit64, as newer architectures number it
	if runtime.GOARCH == "amd64" {
		call = 302
	}
	const fsize = 1
	limit := [2]uint64{size, ^uint64(0)}
	_, _, errno := syscall.RawSyscall6(call, uintptr(pid), fsize, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 && errno != syscall.ESRCH { // it may have ended
		return fmt.Errorf("setting the file size limit of process %d: %w", pid, errno)
	}
	return nil
}

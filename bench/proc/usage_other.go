//go:build !linux

package proc

import (
	"errors"
	"runtime"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Measurable says whether CPU and memory of other processes can be read here.
const Measurable = false

var errNotHere = errors.New("CPU and memory of other processes are read from /proc, which only Linux has")

// CPUSeconds fails: there is no /proc.
func CPUSeconds(int) (float64, error) { return 0, errNotHere }

// Resident fails: there is no /proc.
func Resident(int) (int64, error) { return 0, errNotHere }

// Machine is what the figures were measured on.
func Machine() (cpu, kernel string) { return runtime.GOARCH, runtime.GOOS }

package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Measurable says whether CPU and memory of other processes can be read here.
const Measurable = true

// CPUSeconds is the user and system time that a process has used, in steps of
// 10 ms.
func CPUSeconds(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU of process %d: %w", pid, err)
	}
	return parseStat(string(b))
}

// parseStat reads fields 14 and 15, in ticks of 1/100 s on every Linux; the
// second field, a name in parentheses, may have blanks and parentheses in it.
func parseStat(stat string) (float64, error) {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) < 13 {
		return 0, fmt.Errorf("unknown form of /proc/PID/stat: %q", stat)
	}
	user, err1 := strconv.ParseUint(f[11], 10, 64)
	system, err2 := strconv.ParseUint(f[12], 10, 64)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("unknown form of /proc/PID/stat: %q", stat)
	}
	return float64(user+system) / 100, nil
}

// Resident is the memory that a process holds (VmRSS), in bytes.
func Resident(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("process %d tells no VmRSS", pid)
}

// Machine is what the figures were measured on: the processor, and the kernel.
func Machine() (cpu, kernel string) {
	cpu, kernel = "unknown", "Linux"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = "Linux " + strings.TrimSpace(string(b))
	}
	return cpu, kernel
}

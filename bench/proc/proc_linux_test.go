package proc

import (
	"os"
	"testing"
)

func TestCPUIsReadPastAnyName(t *testing.T) {
	for _, x := range []struct {
		remark, stat string
		want         float64
		bad          bool
	}{
		{"as the kernel writes it", "42 (weir) S 1 42 42 0 -1 4194560 900 0 0 0 150 50 0 0 20 0 9 0 1 2 3", 2, false},
		{"a name like the fields", "42 (a) R 1 (b) S 1 42 42 0 -1 4194560 900 0 0 0 7 3 0 0 20", .1, false},
		{"cut short", "42 (weir) S 1", 0, true},
		{"no numbers", "42 (weir) S 1 42 42 0 -1 4194560 900 0 0 0 x y 0", 0, true},
		{"empty", "", 0, true},
	} {
		got, err := parseStat(x.stat)
		if got != x.want || (err != nil) != x.bad {
			t.Errorf("%s: %v, %v", x.remark, got, err)
		}
	}
}

func TestOwnUsageCanBeRead(t *testing.T) {
	if cpu, err := CPUSeconds(os.Getpid()); err != nil || cpu < 0 {
		t.Errorf("CPU: %v, %v", cpu, err)
	}
	if rss, err := Resident(os.Getpid()); err != nil || rss < 1<<20 {
		t.Errorf("memory: %v, %v", rss, err)
	}
	if _, err := CPUSeconds(1 << 30); err == nil {
		t.Error("a process that is not there has used CPU")
	}
}

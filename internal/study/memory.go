package study

import "fmt"

// Memory is what counters take, as the tests of this package measure it on the stores.
type Memory struct {
	Redis string      `json:"redis"` // its version
	Rows  []MemoryRow `json:"rows"`
}

// MemoryRow is the bytes of one counter, its key included.
type MemoryRow struct {
	Algorithm string `json:"algorithm"`
	Hits      int64  `json:"hits,omitempty"` // that are in it, where that matters: a log's
	Memory    int64  `json:"memory"`         // rounded: how full the store's tables are is chance
	Redis     int64  `json:"in_redis"`       // by MEMORY USAGE
}

func (r *Results) memory() string {
	rows := [][]string{{"algorithm", "`--store memory`", "in Redis " + r.Memory.Redis}}
	for _, m := range r.Memory.Rows {
		name := "`" + m.Algorithm + "`"
		switch {
		case m.Hits == 1:
			name += ", 1 hit in it"
		case m.Hits > 1:
			name += fmt.Sprintf(", %s hits in it", thousands(m.Hits))
		}
		rows = append(rows, []string{name, "about " + thousands(m.Memory), thousands(m.Redis)})
	}
	return table(rows, 1)
}

// bytes are what a counter takes in memory and in Redis, and each hit in it beside.
func (m *Memory) bytes(algorithm string) string {
	first, last := m.rows(algorithm)
	if first == last {
		return fmt.Sprintf("%d; %d", first.Memory, first.Redis)
	}
	memory, redis := eachHit(first, last)
	return fmt.Sprintf("%d + %d a hit; %d + %d a hit", first.Memory, memory, first.Redis, redis)
}

// rows are the first and the last of an algorithm; but for a log's they are the same.
func (m *Memory) rows(algorithm string) (first, last *MemoryRow) {
	for i := range m.Rows {
		if row := &m.Rows[i]; row.Algorithm == algorithm {
			if first == nil {
				first = row
			}
			last = row
		}
	}
	return first, last
}

// eachHit is what each hit takes beside the first.
func eachHit(first, last *MemoryRow) (memory, redis int64) {
	more := last.Hits - first.Hits
	return (last.Memory - first.Memory + more/2) / more, (last.Redis - first.Redis + more/2) / more
}

package soak

import (
	"fmt"
	"regexp"
	"slices"
	"sync"
)

// faults are errors that must not be, by what they say without their numbers.
type faults struct {
	mu    sync.Mutex
	kinds map[string]*fault
	all   int64
}

type fault struct {
	first string
	n     int64
}

var digits = regexp.MustCompile(`[0-9]+`)

// maxKinds bounds what is kept of them.
const maxKinds = 50

func (f *faults) add(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all++
	kind := digits.ReplaceAllString(text, "#")
	if f.kinds == nil {
		f.kinds = map[string]*fault{}
	}
	if f.kinds[kind] == nil {
		if len(f.kinds) == maxKinds {
			return
		}
		f.kinds[kind] = &fault{first: text}
	}
	f.kinds[kind].n++
}

func (f *faults) count() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all
}

func (f *faults) list() (texts []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.kinds {
		texts = append(texts, fmt.Sprintf("%d times: %s", x.n, x.first))
	}
	slices.Sort(texts)
	return texts
}

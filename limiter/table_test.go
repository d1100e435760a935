package limiter

import (
	"math/rand/v2"
	"testing"
)

// A table does what a map would do, however its digests crowd: of few homes, around
// the end of the array, and removed in the middle of others.
func TestATableIsAMap(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var table table
		want := map[digest]record{}
		homes := 1 + rng.Uint64N(20)
		anyDigest := func() digest {
			return digest{rng.Uint64N(40), ^uint64(0) / homes * rng.Uint64N(homes+1)} // the last home is that of all ones
		}
		for range 2000 {
			d := anyDigest()
			switch rng.IntN(10) {
			case 0, 1, 2:
				if _, was := want[d]; table.remove(d) != was {
					t.Fatalf("seed %d: removing told the wrong thing", seed)
				}
				delete(want, d)
			case 3:
				now := rng.Int64N(100)
				table.sweep(now, func(d digest) {
					if r, was := want[d]; !was || r.expires > now {
						t.Fatalf("seed %d: swept what had not ended, or was not there", seed)
					}
					delete(want, d)
				})
				for _, r := range want {
					if r.expires <= now {
						t.Fatalf("seed %d: a sweep left what had ended", seed)
					}
				}
			default:
				r := record{
					time: rng.Int64() - rng.Int64(), used: rng.Int64N(1 << usedBits), previous: rng.Int64N(1 << 33), expires: 1 + rng.Int64N(200),
				}
				if _, was := want[d]; table.put(d, r) == was {
					t.Fatalf("seed %d: putting told the wrong thing", seed)
				}
				want[d] = r
			}
			if table.n != len(want) {
				t.Fatalf("seed %d: it counts %d, want %d", seed, table.n, len(want))
			}
			if table.n*10 < len(table.slots) && len(table.slots) > 40 && rng.IntN(50) == 0 {
				table.sweep(0, nil)
				if len(table.slots) > 2*table.n+16 {
					t.Fatalf("seed %d: a sweep keeps %d slots for %d counters", seed, len(table.slots), table.n)
				}
			}
		}
		for d, r := range want {
			if got := table.get(d); got == nil || got.record() != r {
				t.Fatalf("seed %d: %v holds %v, want %v", seed, d, got, r)
			}
		}
		if table.get(digest{1 << 60, 0}) != nil {
			t.Fatalf("seed %d: it holds what nobody put there", seed)
		}
	}
}

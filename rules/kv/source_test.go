package kv_test

import (
	"strings"
	"testing"
	"time"
)

func TestDocumentsAreInForceSoonAfterTheyAreWritten(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		r := reading(t, s, s.url, 0)
		eventually(t, "an empty prefix is told of", func() bool { return strings.Contains(r.status().LastError, "no rules beneath weir/rules/") })
		if r.status().Failures != 1 || !r.status().LoadedAt.IsZero() {
			t.Errorf("%+v", r.status())
		}
		s.put(prefix+"/a.yaml", rule("/a"))
		eventually(t, "/a", func() bool { return r.has("/a") && r.status().LastError == "" })
		s.put(prefix+"/team/b", rule("/b"))
		eventually(t, "/b", func() bool { return r.has("/b") })

		for key, value := range map[string]string{ // none of them is a document
			prefix + "/.hidden.yaml":     "not: [rules",
			prefix + "/.weir/other":      "not: [rules",
			prefix + "/team/.git/config": "not: [rules",
			prefix + "-not/c.yaml":       "not: [rules",
			prefix + "/folder/":          "",
		} {
			s.put(key, value)
		}
		s.put(prefix+"/d.yaml", rule("/d"))
		eventually(t, "/d", func() bool { return r.has("/d") })
		if st := r.status(); st.Failures != 1 || st.Documents != 3 {
			t.Errorf("%+v", st)
		}
		s.delete(prefix + "/a.yaml")
		eventually(t, "/a is gone", func() bool { return !r.has("/a") && r.has("/d") })

		reloads := r.live.Status().Reloads
		s.put(prefix+"/d.yaml", rule("/d")) // the same once more
		s.put(prefix+"/.weir/noise", "x")
		s.put(prefix+"/z.yaml", rule("/z"))
		eventually(t, "/z", func() bool { return r.has("/z") })
		if n := r.live.Status().Reloads; n != reloads+1 {
			t.Errorf("%d reloads for one change", n-reloads)
		}
	})
}

func TestABadDocumentRejectsTheChangeAndKeepsTheRules(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		s.put(prefix+"/a.yaml", rule("/a"))
		r := reading(t, s, s.url, 0)
		eventually(t, "/a", func() bool { return r.has("/a") })
		failures := uint64(0)
		for _, bad := range []struct{ remark, key, value, want string }{
			{"an unknown field", "/bad.yaml", "rules: [{endpoint: /x, limt: 1}]", s.url + "/bad.yaml:1:24: "},
			{"not YAML", "/bad.yaml", "rules: [", s.url + "/bad.yaml:1:"},
			{"bytes", "/bad.yaml", "\x00\xff\xfe\x01", s.url + "/bad.yaml:1:1: "},
			{"a path that another document has", "/bad.yaml", rule("/a"), "has a rule already, at " + s.url + "/a.yaml:2:5"},
			{"a name without an ending", "/notes", "buy milk", s.url + "/notes:1:1: "},
		} {
			s.put(prefix+bad.key, bad.value)
			failures++
			eventually(t, bad.remark, func() bool { return r.status().Failures == failures })
			if st := r.status(); !strings.Contains(st.LastError, bad.want) || !r.has("/a") || r.has("/x") {
				t.Errorf("%s: %q, want %q", bad.remark, st.LastError, bad.want)
			}
			s.put(prefix+"/good.yaml", rule("/good")) // not taken as long as the other is bad
			s.delete(prefix + bad.key)
			eventually(t, bad.remark+": mended", func() bool { return r.status().LastError == "" && r.has("/good") })
			s.delete(prefix + "/good.yaml")
			eventually(t, bad.remark+": as before", func() bool { return !r.has("/good") })
			failures = r.status().Failures
		}
	})
}

func TestAPrefixThatVanishesKeepsTheRulesAndAnEmptyDocumentClearsThem(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		s.put(prefix+"/a.yaml", rule("/a"))
		r := reading(t, s, s.url, 0)
		eventually(t, "/a", func() bool { return r.has("/a") })
		s.delete(prefix + "/a.yaml")
		eventually(t, "it is told of", func() bool { return r.status().LastError != "" })
		if !strings.Contains(r.status().LastError, "an empty document clears them") || !r.has("/a") {
			t.Errorf("%+v", r.status())
		}
		s.put(prefix+"/none.yaml", "")
		eventually(t, "cleared", func() bool { return !r.has("/a") && r.status().LastError == "" })
	})
}

func TestTheLastGoodRulesOutliveTheStore(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		s.put(prefix+"/a.yaml", rule("/a"))
		r := reading(t, s, s.url, 0)
		eventually(t, "/a", func() bool { return r.has("/a") })
		reloads := r.live.Status().Reloads

		s.kill()
		eventually(t, "its end is told of", func() bool { return r.status().LastError != "" })
		s.start(false)
		eventually(t, "it is back", func() bool { return r.status().LastError == "" })
		if st := r.live.Status(); st.Failures != 1 || st.Reloads != reloads {
			t.Errorf("%d failures and %d reloads for one outage without a change", st.Failures, st.Reloads-reloads)
		}

		s.kill()
		s.start(true)
		eventually(t, "that it is empty is told of", func() bool { return strings.Contains(r.status().LastError, "no rules beneath") })
		if !r.has("/a") {
			t.Error("an empty store cleared the rules")
		}
		s.put(prefix+"/b.yaml", rule("/b"))
		eventually(t, "/b", func() bool { return r.has("/b") && !r.has("/a") })
	})
}

func TestWhileAMarkerStandsNothingChanges(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		marker := `{"version": 2, "digest": "d", "by": "bob@example", "at": "2026-12-02T09:00:00Z"}`
		s.put(prefix+"/.weir/push", marker)
		s.put(prefix+"/a.yaml", rule("/a"))
		r := reading(t, s, s.url, 3*time.Second)
		eventually(t, "a start during a push is told of", func() bool {
			return strings.Contains(r.status().LastError, "a push is under way (version 2 by bob@example")
		})
		s.delete(prefix + "/.weir/push")
		eventually(t, "/a", func() bool { return r.has("/a") && r.status().LastError == "" })

		s.put(prefix+"/.weir/push", marker)
		s.put(prefix+"/b.yaml", rule("/b"))
		eventually(t, "the alarm", func() bool { return strings.Contains(r.status().LastError, "is not finished after 3s") })
		if r.has("/b") || !r.has("/a") || !strings.Contains(r.status().LastError, "push --abort") {
			t.Errorf("%+v", r.status())
		}
		s.delete(prefix + "/.weir/push")
		eventually(t, "/b", func() bool { return r.has("/b") && r.status().LastError == "" })

		s.put(prefix+"/.weir/push", "\xffnot JSON") // whoever wrote it: it holds
		s.put(prefix+"/c.yaml", rule("/c"))
		eventually(t, "the alarm of a marker that is not understood", func() bool { return strings.Contains(r.status().LastError, "not understood") })
		if r.has("/c") {
			t.Error("it did not hold")
		}
	})
}

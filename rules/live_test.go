package rules

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func snapshot(name, text string) Snapshot {
	return ParseSnapshot(map[string][]byte{name: []byte(text)})
}

const (
	ruleA    = "rules: [{endpoint: /a, unlimited: true}]"
	ruleB    = "rules: [{endpoint: /b, unlimited: true}]"
	rulesAB  = "rules: [{endpoint: /a, unlimited: true}, {endpoint: /b, unlimited: true}]"
	badRules = "rules: [{endpoint: /a, unlimted: true}]"
)

// has tells which of the endpoints /a and /b have a rule.
func has(l *Live) string {
	found := ""
	for _, endpoint := range []string{"a", "b"} {
		if matched(l.Current(), "default", "endpoint=/"+endpoint) != "" {
			found += endpoint
		}
	}
	return found
}

func TestAFaultySnapshotChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := NewLive(LiveOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if domains, rules := l.Current().Size(); domains != 0 || rules != 0 || has(l) != "" {
			t.Fatal("rules before any were loaded")
		}
		for _, step := range []struct {
			remark, source, text string
			fails                bool
			want                 string
		}{
			{"a first source", "file", ruleA, false, "a"},
			{"a second one", "consul", ruleB, false, "ab"},
			{"a faulty file", "file", badRules, true, "ab"},
			{"a rule that another source has", "file", rulesAB, true, "ab"},
			{"sound again: no reload", "file", ruleA, false, "ab"},
			{"no rules any more", "consul", "", false, "a"},
		} {
			before := l.Current()
			time.Sleep(time.Second)
			err := l.Apply(step.source, snapshot(step.source+".yaml", step.text))
			if (err != nil) != step.fails || has(l) != step.want || step.fails && l.Current() != before {
				t.Errorf("%s: error %v, rules %q", step.remark, err, has(l))
			}
		}
		status := l.Status()
		file := status.Sources["file"]
		ago := func(seconds int) time.Time { return time.Now().Add(time.Duration(-seconds) * time.Second) }
		if status.Reloads != 3 || status.Failures != 2 || status.Version != l.Current().Version() || !status.LoadedAt.Equal(ago(0)) ||
			!file.LoadedAt.Equal(ago(5)) || !file.AsOf.Equal(ago(1)) || file.Digest != Digest(map[string][]byte{"": []byte(ruleA)}) ||
			file.LastError != "" || !file.FailedAt.Equal(ago(2)) || file.Failures != 2 || file.Documents != 1 {
			t.Errorf("%+v", status)
		}
		if !strings.Contains(log.String(), `did you mean`) || !strings.Contains(log.String(), "file.yaml:1:24") {
			t.Errorf("the log does not say why: %s", &log)
		}
	})
}

func TestTheStatusCountsRulesAndLeavesOutWhatNeverWas(t *testing.T) {
	l := NewLive(LiveOptions{})
	text := func() string {
		t.Helper()
		data, err := json.Marshal(l.Status())
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if got := text(); strings.Contains(got, "_at") || !strings.Contains(got, `"domains":0,"rules":0`) {
		t.Error(got)
	}
	for _, next := range []string{rulesAB, badRules} { // the counts are of the rules in force
		_ = l.Apply("s", snapshot("s", next))
		if got := text(); !strings.Contains(got, `"domains":1,"rules":2,"loaded_at":"`) || strings.Contains(got, "failed_at") != (next == badRules) {
			t.Error(got)
		}
	}
}

func TestASourceThatCannotBeReadIsAFailureAndNoChange(t *testing.T) {
	l := NewLive(LiveOptions{})
	if err := l.Apply("s", snapshot("s", ruleA)); err != nil {
		t.Fatal(err)
	}
	err := l.Apply("s", Snapshot{Faults: Faults{{File: "a.yaml", Msg: "gone"}}})
	if status := l.Status(); err == nil || has(l) != "a" || status.Failures != 1 || status.Sources["s"].LastError != "a.yaml: gone" {
		t.Errorf("error %v, rules %q, %+v", err, has(l), status)
	}
}

func TestTheErrorHasTheFaultsWithinAndBetweenFilesOnce(t *testing.T) {
	l := NewLive(LiveOptions{})
	err := l.Apply("s", ParseSnapshot(map[string][]byte{"a": []byte(ruleA), "b": []byte(ruleA), "c": []byte(badRules)}))
	if err == nil || strings.Count(err.Error(), "\n")+1 != 3 {
		t.Error(err)
	}
}

func TestARuleMovesFromOneSourceToAnother(t *testing.T) {
	l := NewLive(LiveOptions{})
	for _, step := range []struct {
		source, text string
		fails        bool
		want         string
	}{
		{"file", rulesAB, false, "ab"},
		{"consul", ruleB, true, "ab"},
		{"file", ruleA, false, "ab"}, // consul's fits now
		{"file", "", false, "b"},
	} {
		err := l.Apply(step.source, snapshot(step.source, step.text))
		if (err != nil) != step.fails || has(l) != step.want {
			t.Errorf("%s %s: error %v, rules %q", step.source, step.text, err, has(l))
		}
	}
	if s := l.Status(); s.Sources["consul"].LastError != "" {
		t.Errorf("%+v", s)
	}
}

func TestRequestsReadWhileRulesChange(t *testing.T) {
	l := NewLive(LiveOptions{})
	if err := l.Apply("s", snapshot("s", ruleA)); err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			for range 1000 {
				if found := has(l); !strings.Contains("abab", found) || found == "" {
					t.Errorf("rules %q", found)
				}
			}
		})
	}
	for i := range 100 {
		text := rulesAB
		if i%2 == 0 {
			text = ruleA
		}
		if err := l.Apply("s", snapshot("s", text)); err != nil {
			t.Error(err)
		}
	}
	done.Wait()
}

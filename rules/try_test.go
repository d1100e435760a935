package rules

import ("testing";"os";"path/filepath";"go.yaml.in/yaml/v3";_ "time/tzdata")

func TestTryCases(t *testing.T) {
	files, _ := filepath.Glob("/work/shared/cases/*.yaml")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		var c struct{ Rules string }
		yaml.Unmarshal(b, &c)
		doc, err := Parse(f, []byte(c.Rules))
		if err != nil { t.Errorf("%v", err); continue }
		s, err := Compile(doc)
		if err != nil { t.Errorf("%v", err); continue }
		for _, w := range s.Warnings() { t.Log(w) }
		d, r := s.Size()
		t.Log(filepath.Base(f), d, r, s.Version())
		if filepath.Base(f) == "nested-wildcards.yaml" { t.Log(s.Explain("shop", []Entry{{"pre", "abcd"}})) ; t.Log(s.Explain("shop", []Entry{{"fil", "abcd"}}))}
		if filepath.Base(f) == "nested-path.yaml" { t.Log(s.Explain("shop", []Entry{{"tenant", "acme"},{"route","/pai"}})) ; t.Log(s.Explain("shop", []Entry{{"route", "/pay"},{"tenant","acme"}}))}
	}
}

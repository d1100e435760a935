package ruletest

import (
	"encoding/xml"
	"fmt"
	"io"
)

// The elements of a JUnit report, as CI servers read it. The encoder replaces what
// XML cannot hold.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		File    string        `xml:"file,attr"`
		Line    int           `xml:"line,attr,omitempty"`
		Time    string        `xml:"time,attr"`
		Failure *junitProblem `xml:"failure"`
		Error   *junitProblem `xml:"error"`
		Skipped *junitProblem `xml:"skipped"`
	}
	junitProblem struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes reports as JUnit XML: a suite for each file.
func WriteJUnit(w io.Writer, reports []Report) error {
	all := junitSuites{Name: "weir test"}
	total := 0.0
	for i := range reports {
		suite, seconds := suiteOf(&reports[i])
		total += seconds
		all.Tests += suite.Tests
		all.Failures += suite.Failures
		all.Errors += suite.Errors
		all.Skipped += suite.Skipped
		all.Suites = append(all.Suites, suite)
	}
	all.Time = secondsText(total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func suiteOf(r *Report) (suite junitSuite, seconds float64) {
	suite.Name = r.Path
	for _, result := range r.Results {
		c := junitCase{Name: result.Test.Name, Class: r.Path, File: r.Path, Line: result.Test.Line, Time: secondsText(result.Took.Seconds())}
		seconds += result.Took.Seconds()
		switch {
		case result.Unplayed != "":
			suite.Skipped++
			c.Skipped = &junitProblem{Message: result.Unplayed}
		case result.Failed():
			suite.Failures++
			c.Failure = &junitProblem{Message: firstDifference(r.Path, result), Text: stepsText(r.Path, result, false)}
		}
		suite.Cases = append(suite.Cases, c)
	}
	if r.Err != nil {
		suite.Errors++
		suite.Cases = append(suite.Cases, junitCase{
			Name: "the file can be played", Class: r.Path, File: r.Path, Time: secondsText(0),
			Error: &junitProblem{Message: "the file has faults", Text: faultsText(r.Err)},
		})
	}
	suite.Tests, suite.Time = len(suite.Cases), secondsText(seconds)
	return suite, seconds
}

func firstDifference(path string, result *Result) string {
	for i := range result.Steps {
		if s := &result.Steps[i]; len(s.Differs) > 0 {
			return fmt.Sprintf("%s:%d: %s", path, s.Line, s.Differs[0])
		}
	}
	return ""
}

func secondsText(seconds float64) string { return fmt.Sprintf("%.6f", seconds) }

package study

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// short is the page in a few lines.
func (r *Results) short() string {
	all := &r.AllBlocks
	even, roomy := all.findRoom("steady", 100), all.findRoom("steady", 150)
	bursty := all.findRoom("bursty", 200)
	lines := []string{
		fmt.Sprintf("**No algorithm lets more than twice the limit pass in one window's time** (a token bucket: more with a larger burst), and only the log and the leaky bucket never more than the limit. A fixed window "+
			"can let %d of 100 pass in an instant. A sliding counter and a token bucket take a whole window for it: at once they let %d pass, in half a window %d.",
			r.passes(fixedWindow, 0), r.passes(slidingCounter, 0), r.passes(slidingCounter, worstWindow/2)),
		fmt.Sprintf("**The sliding counter lets about as many pass as an exact log**: %s of it where steady clients are near their limit, %s where they come in bursts. Which requests "+
			"pass is another matter: of steady clients whose average is the limit it decides %s otherwise, somewhat more of them too kindly than too strictly. With half as much limit again it is %s.",
			r.beside("steady"), r.beside("bursty"), percent(even.Wrong, even.Requests), percent(roomy.Wrong, roomy.Requests)),
		fmt.Sprintf("**Whole limits sent at once, as a cron job does each minute, are what it is wrong for**: it refuses %s of them. So does the exact log, %s, since many come a moment less than a "+
			"window after the ones before. A fixed window refuses %s, a token bucket %s.",
			r.refusedOf("batch", slidingCounter), r.refusedOf("batch", exactLog), r.refusedOf("batch", fixedWindow), r.refusedOf("batch", tokenBucket)),
		fmt.Sprintf("**How bursty clients are matters more than the algorithm.** Of steady clients a limit of 1.5 × their average refuses next to nothing. Of those who send bursts of 40 requests, "+
			"2 × their average still refuses %s by a token bucket, %s by a fixed window and %s by a sliding counter.",
			percent(bursty.Refused[roomToken], bursty.Requests), percent(bursty.Refused[roomFixed], bursty.Requests), percent(bursty.Refused[roomCounter], bursty.Requests)),
		fmt.Sprintf("**A log that counts refused tries, as it does unless told not to, is the strictest by far**: of steady clients whose average is the limit it refuses %s; without them, %s.",
			percent(even.Refused[roomTries], even.Requests), percent(even.Refused[roomLog], even.Requests)),
	}
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(wrap("- "+line, 155))
	}
	return b.String()
}

// wrap breaks a line of a list where it is too wide.
func wrap(text string, width int) string {
	var b strings.Builder
	n := 0
	text = strings.ReplaceAll(text, " %", noBreak+"%")
	for i, word := range strings.Fields(text) {
		switch size := utf8.RuneCountInString(word); {
		case i == 0:
			n = size
		case n+1+size > width:
			b.WriteString("\n  ")
			n = 2 + size
		default:
			b.WriteByte(' ')
			n += 1 + size
		}
		b.WriteString(word)
	}
	b.WriteByte('\n')
	return strings.ReplaceAll(b.String(), noBreak, " ")
}

const noBreak = "\x00"

// passes is the most that an attack gets through within a time.
func (r *Results) passes(algorithm int, within int64) int64 {
	return r.Worst.Curves[algorithm][within/curveStep]
}

// beside is what the sliding counter lets pass beside the log.
func (r *Results) beside(traffic string) string {
	s := r.AllBlocks.find(traffic)
	return percent(s.Outcomes[slidingCounter].Passed, s.Outcomes[exactLog].Passed)
}

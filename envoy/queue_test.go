package envoy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/testenv"
)

// orders is an upstream that keeps what it gets, in order.
type orders struct {
	mu  sync.Mutex
	got []order
}

type order struct {
	number   int
	delivery string // "": it came directly
	at       time.Time
}

func (o *orders) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	n, _ := strconv.Atoi(string(body))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, order{n, r.Header.Get("X-Weir-Delivery"), time.Now()})
}

func (o *orders) all() []order {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]order(nil), o.got...)
}

// startQueue runs queue.yaml. Workers are the test's to start.
func startQueue(t *testing.T, upstream http.Handler) (r *recipe, work func() *testenv.Process, queueCommand func(args ...string) string) {
	t.Helper()
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	store, queueAddr := "redis://"+redis.Addr, testenv.FreeAddr(t)
	r = startRecipe(t, "queue", recipeOptions{
		upstream: upstream,
		replace:  map[string]string{"port_value: 8082}": "port_value: " + port(t, queueAddr) + "}"},
		weirArgs: []string{"--store", store, "--queue-addr", queueAddr, "--store-timeout", "5s"},
	})
	upstreamURL := "http://" + r.upstream
	work = func() *testenv.Process {
		return testenv.Start(t, testenv.Program{Path: testenv.WeirBinary(t), Args: []string{"worker", "--store", store, "--upstream", upstreamURL}})
	}
	queueCommand = func(args ...string) string {
		t.Helper()
		out, err := exec.Command(testenv.WeirBinary(t), append([]string{"queue", "--store", store}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("weir queue %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	eventually(t, "queues can be used", func() bool { return strings.Contains(queueCommand("ls"), "queue/orders") })
	return r, work, queueCommand
}

// post sends one order through Envoy.
func (r *recipe) post(t *testing.T, client *http.Client, body string, header ...string) response {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+r.addr+"/orders", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return response{}
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return response{}
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return response{what: "order " + body, code: resp.StatusCode, header: resp.Header, body: string(text)}
}

// Five hundred at once onto fifty a second and a queue of four hundred, and the
// worker is killed twice.
func TestOrdersAreQueuedAndReplayedInOrderAtTheirRate(t *testing.T) {
	t.Parallel()
	upstream := &orders{}
	r, work, queueCommand := startQueue(t, upstream)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 500}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()

	var mu sync.Mutex
	codes := map[int]int{}
	accepted := map[int]string{} // number → where to ask
	var slowest time.Duration
	var sending sync.WaitGroup
	for i := range 500 {
		sending.Go(func() {
			begin := time.Now()
			a := r.post(t, client, strconv.Itoa(i), "X-Weir-Overflow", "orders", "X-Weir-Delivery", "9")
			mu.Lock()
			defer mu.Unlock()
			slowest = max(slowest, time.Since(begin))
			codes[a.code]++
			switch a.code {
			case 200:
				accepted[i] = ""
			case 202:
				accepted[i] = a.header.Get("Location")
				if a.header.Get("Retry-After") == "" || !strings.HasPrefix(accepted[i], "/queue/") {
					t.Errorf("%s: 202 with %v", a.what, a.header)
				}
			case 429:
			default:
				t.Errorf("%s: %d %s", a.what, a.code, a.body)
			}
		})
	}
	sending.Wait()
	t.Logf("answers %v, the slowest after %v", codes, slowest)
	if codes[200] < 1 || codes[202] < 390 || codes[202] > 400 || codes[429] < 50 {
		t.Errorf("answers %v, want a few 200, about 400 202, and the rest 429", codes)
	}
	waiting := strings.Fields(strings.Split(queueCommand("ls"), "\n")[1])[1]
	if waiting != strconv.Itoa(codes[202]) {
		t.Errorf("%s wait, and %d were told so", waiting, codes[202])
	}
	peeked := queueCommand("peek", "queue/orders", "-n", "1000")
	var want []int // in the order of the queue
	for line := range strings.Lines(peeked) {
		id, _, _ := strings.Cut(line, " ")
		for n, location := range accepted {
			if location == "/queue/"+id {
				want = append(want, n)
			}
		}
	}
	if len(want) != codes[202] {
		t.Fatalf("of %d that wait, %d were told so", codes[202], len(want))
	}

	for n := range 3 {
		worker := work()
		before := len(upstream.all())
		eventually(t, "some are delivered", func() bool { return len(upstream.all()) >= min(before+60, len(accepted)) })
		if n < 2 {
			worker.Kill()
		}
	}
	eventually(t, "all are delivered", func() bool { return len(distinct(upstream.all())) == len(accepted) })
	checkOrders(t, upstream.all(), want)
	for n, location := range accepted {
		if location == "" {
			continue
		}
		resp, err := client.Get("http://" + r.addr + location)
		if err != nil {
			t.Fatal(err)
		}
		var status struct {
			State  string
			Status int
		}
		err = json.NewDecoder(resp.Body).Decode(&status)
		resp.Body.Close()
		if err != nil || status.State != "done" && n != want[len(want)-1] {
			t.Fatalf("order %d is %+v, %v", n, status, err)
		}
		break
	}
}

func distinct(got []order) map[int]bool {
	m := map[int]bool{}
	for _, o := range got {
		m[o.number] = true
	}
	return m
}

// checkOrders holds what came from the queue against the order of the queue, and
// the rate against the limit's.
func checkOrders(t *testing.T, got []order, want []int) {
	t.Helper()
	var queued []order
	for _, o := range got {
		if o.delivery != "" {
			queued = append(queued, o)
		}
	}
	seen := map[int]int{}
	next := 0
	for _, o := range queued {
		seen[o.number]++
		if fmt.Sprint(seen[o.number]) > o.delivery {
			t.Errorf("order %d came the %d. time, and says it is the %s.", o.number, seen[o.number], o.delivery)
		}
		switch {
		case next < len(want) && o.number == want[next]:
			next++
		case seen[o.number] == 1:
			t.Fatalf("order %d came out of order", o.number)
		}
	}
	if next != len(want) {
		t.Errorf("%d of %d came", next, len(want))
	}
	// The longest run without a gap, which a killed worker leaves.
	from := 0
	for i := 1; i < len(queued); i++ {
		if queued[i].at.Sub(queued[i-1].at) > time.Second {
			from = i
		}
	}
	if n := len(queued) - 1 - from; n > 50 {
		rate := float64(n) / queued[len(queued)-1].at.Sub(queued[from].at).Seconds()
		t.Logf("%.1f a second over %d", rate, n)
		if rate > 55 || rate < 20 {
			t.Errorf("%.1f a second, want 50", rate)
		}
	}
}

func TestClientsCannotChooseTheQueue(t *testing.T) {
	t.Parallel()
	upstream := &orders{}
	r, _, _ := startQueue(t, upstream)
	for i, header := range [][]string{
		{"X-Weir-Overflow", "orders"},
		{"X-Weir-Overflow", "orders", "X-Weir-Overflow-Ticket", "a.b"},
		{"X-Weir-Queue", "queue/orders", "X-Weir-Queue-Secret", "x", "X-Weir-Delivery", "2"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+"/elsewhere", strings.NewReader(strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		for j := 0; j < len(header); j += 2 {
			req.Header.Set(header[j], header[j+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		got := upstream.all()
		if resp.StatusCode != http.StatusOK || len(got) != i+1 || got[i].delivery != "" {
			t.Errorf("%v: %d, and the upstream got %v", header, resp.StatusCode, got)
		}
	}
}

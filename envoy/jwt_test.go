package envoy_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"weir/internal/testenv"
)

// issuer signs tokens as the one of jwt.yaml does.
type issuer struct{ key *rsa.PrivateKey }

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{key}
}

// jwks is the file of public keys.
func (i *issuer) jwks(t *testing.T) string {
	t.Helper()
	e := binary.BigEndian.AppendUint32(nil, uint32(i.key.E))[1:] // 65537: three bytes
	return testenv.WriteFile(t, "jwks.json", fmt.Sprintf(`{"keys":[{"kty":"RSA","alg":"RS256","kid":"k","n":%q,"e":%q}]}`,
		base64.RawURLEncoding.EncodeToString(i.key.N.Bytes()), base64.RawURLEncoding.EncodeToString(e)))
}

// bearer is the Authorization header of a token with these claims.
func (i *issuer) bearer(t *testing.T, claims map[string]any) []string {
	t.Helper()
	all := map[string]any{"iss": "https://issuer.example", "aud": "api", "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range claims {
		all[name] = value
	}
	payload, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"k","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString(payload)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return []string{"Authorization", "Bearer " + text + "." + base64.RawURLEncoding.EncodeToString(signature)}
}

func TestAVerifiedClaimIsLimited(t *testing.T) {
	t.Parallel()
	i, forger := newIssuer(t), newIssuer(t)
	sub := func(name string) map[string]any { return map[string]any{"sub": name} }
	quota := func(n int, unit string) map[string]any {
		return map[string]any{"sub": fmt.Sprint("quota of ", n, " ", unit), "quota": map[string]any{"requests_per_unit": n, "unit": unit}}
	}
	steps := []step{
		{remark: "the first of three", path: "/", header: i.bearer(t, sub("alice")), code: 200, want: left("3", "2")},
		{remark: "another token of the same user, from elsewhere", client: bob, path: "/", header: i.bearer(t, map[string]any{"sub": "alice", "jti": "2"}), code: 200, want: left("3", "1")},
		{remark: "not verified: no counter is touched", path: "/", header: forger.bearer(t, sub("alice")), code: 401, want: map[string]string{"X-Ratelimit-Limit": ""}},
		{remark: "the last", path: "/", header: i.bearer(t, sub("alice")), code: 200, want: left("3", "0")},
		{remark: "over", path: "/", header: i.bearer(t, sub("alice")), code: 429, want: over("3")},
		{remark: "another user", path: "/", header: i.bearer(t, sub("bob")), code: 200, want: left("3", "2")},
		{remark: "no token", path: "/", code: 401},

		{remark: "no claim: no limit", path: "/", header: i.bearer(t, nil), code: 200, want: map[string]string{"X-Ratelimit-Limit": ""}},

		{remark: "a limit that the token brings", path: "/", header: i.bearer(t, quota(1, "HOUR")), code: 200, want: left("1", "0")},
		{remark: "which is over", path: "/", header: i.bearer(t, quota(1, "HOUR")), code: 429, want: over("1")},
		{remark: "a quota of no known unit: the rule's", path: "/", header: i.bearer(t, quota(1, "FORTNIGHT")), code: 200, want: left("3", "2")},
	}
	// What a header could not carry.
	for _, name := range []string{"a\r\nb: c", "a\x00b", "a\x00c", "\u202e\U0010ffff", "a\x7f\x1b[31m"} {
		for _, remaining := range []string{"2", "1", "0"} {
			steps = append(steps, step{remark: fmt.Sprintf("%q", name), path: "/", header: i.bearer(t, sub(name)), code: 200, want: left("3", remaining)})
		}
		steps = append(steps, step{remark: fmt.Sprintf("%q over", name), path: "/", header: i.bearer(t, sub(name)), code: 429, want: over("3")})
	}
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			startRecipe(t, "jwt", recipeOptions{replace: map[string]string{"filename: jwks.json": "filename: " + i.jwks(t)}}).play(t, protocol, steps)
		})
	}
}

func TestAClaimThatIsNoTextIsNotSent(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	r := startRecipe(t, "jwt", recipeOptions{replace: map[string]string{"filename: jwks.json": "filename: " + i.jwks(t), "{key: sub}": "{key: id}"}})
	r.play(t, "HTTP/1.1", []step{
		{remark: "a text", path: "/", header: i.bearer(t, map[string]any{"id": "7"}), code: 200, want: left("3", "2")},
		{remark: "a number", path: "/", header: i.bearer(t, map[string]any{"id": 7}), code: 200, want: map[string]string{"X-Ratelimit-Limit": ""}},
	})
}

// A limit in the token has a unit of Envoy's and no multiplier. What is not there
// or no number Envoy does not send, and the rule's limit holds; other numbers it
// bends to 32 bits. A unit UNKNOWN it sends, which is no request: it passes for
// want of an answer.
func TestALimitThatTheTokenBringsHasEnvoysUnits(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	r := startRecipe(t, "jwt", recipeOptions{
		replace:  map[string]string{"filename: jwks.json": "filename: " + i.jwks(t)},
		weirArgs: []string{"--headers", "ietf"},
	})
	type quota = map[string]any
	for n, c := range []struct {
		quota  quota
		policy string // the one beside that of the user
	}{
		{quota{"requests_per_unit": 7, "unit": "SECOND"}, `"per-second";q=7;w=1`},
		{quota{"requests_per_unit": 7, "unit": "MINUTE"}, `"per-minute";q=7;w=60`},
		{quota{"requests_per_unit": 7, "unit": "HOUR"}, `"per-hour";q=7;w=3600`},
		{quota{"requests_per_unit": 7, "unit": "DAY"}, `"per-day";q=7;w=86400`},
		{quota{"requests_per_unit": 7, "unit": "MONTH"}, `"per-month";q=7;w=2592000`},
		{quota{"requests_per_unit": 7, "unit": "YEAR"}, `"per-year";q=7;w=31536000`},
		{quota{"requests_per_unit": 4294967295, "unit": "SECOND"}, `"per-second";q=4294967295;w=1`},
		{quota{"requests_per_unit": 7, "unit": "HOUR", "unit_multiplier": 6}, `"per-hour";q=7;w=3600`},
		{quota{"requests_per_unit": 7, "unit": "WEEK"}, `"plan";q=100;w=3600`},
		{quota{"requests_per_unit": 7, "unit": "hour"}, `"plan";q=100;w=3600`},
		{quota{"requests_per_unit": 7}, `"plan";q=100;w=3600`},
		{quota{"unit": "HOUR"}, `"plan";q=100;w=3600`},
		{quota{"requests_per_unit": "7", "unit": "HOUR"}, `"plan";q=100;w=3600`},
		{quota{"requests_per_unit": 7.5, "unit": "HOUR"}, `"per-hour";q=7;w=3600`},
		{quota{"requests_per_unit": -1, "unit": "HOUR"}, `"per-hour";q=4294967295;w=3600`},
		{quota{"requests_per_unit": 7, "unit": "UNKNOWN"}, ""},
		{nil, `"plan";q=100;w=3600`},
	} {
		want := map[string]string{"RateLimit-Policy": `"user";q=3;w=3600, ` + c.policy}
		if c.policy == "" {
			want["RateLimit-Policy"] = ""
		}
		got := r.send(t, "HTTP/1.1", step{path: "/", header: i.bearer(t, map[string]any{"sub": fmt.Sprint("user ", n), "quota": c.quota})})
		got.what = fmt.Sprint(c.quota)
		got.want(t, 200, want)
	}
}

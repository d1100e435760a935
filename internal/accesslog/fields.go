package accesslog

import (
	"bytes"
	"slices"
	"strings"
)

// Fields that formats have, by the names that mappings call them.
const (
	remoteAddress = "remote_address"
	method        = "method"
	path          = "path"
	query         = "query"
	target        = "target"
	host          = "host"
)

// timeField is the place of the time among a mapping's fields.
const timeField = 0

// known are fields whose names differ between logs: what JSON objects and CSV columns
// are known to call them, the surest first. Of path, query and target it is the whole
// target of a request that is there.
var known = map[string][]string{
	"time": {"time", "timestamp", "@timestamp", "ts", "start_time", "time_iso8601", "time_local", "datetime", "date", "msec", "StartUTC", "httpRequest.timestamp", "event.created"},
	remoteAddress: {remoteAddress, "remote_addr", "client_ip", "clientip", "client_address", "client_addr", "remote_ip", "remote_host", "downstream_remote_address",
		"source_ip", "source_address", "ip", "client", "ClientHost", "ClientAddr", "request.client_ip", "request.remote_ip", "client.ip", "source.ip", "httpRequest.remoteIp"},
	method:       {method, "request_method", "http_method", "verb", "RequestMethod", "request.method", "http.request.method", "httpRequest.requestMethod"},
	target:       {target, path, "request_uri", "uri", "url", "request_path", "RequestPath", "request.uri", "request.path", "url.original", "url.path", "http.target", "httpRequest.requestUrl"},
	host:         {host, "authority", ":authority", "http_host", "server_name", "vhost", "RequestHost", "request.host", "url.domain"},
	"user":       {"user", "remote_user", "user_id", "username", "ClientUsername", "user.name"},
	"user_agent": {"user_agent", "http_user_agent", "agent", "useragent", "request.headers.User-Agent", "request_User-Agent", "user_agent.original", "httpRequest.userAgent"},
	"referer":    {"referer", "http_referer", "referrer", "request.headers.Referer", "request_Referer", "http.request.referrer", "httpRequest.referer"},
	"status":     {"status", "status_code", "response_code", "code", "DownstreamStatus", "http.response.status_code", "httpRequest.status"},
	"protocol":   {"protocol", "server_protocol", "RequestProtocol", "request.proto", "httpRequest.protocol"},
	"bytes":      {"bytes", "bytes_sent", "body_bytes_sent", "size", "DownstreamContentSize", "http.response.body.bytes", "httpRequest.responseSize"},
}

// knownAs lists what a field may be called, itself first.
func knownAs(field string) []string {
	names := []string{field}
	name := common(field)
	if name == path || name == query {
		name = target
	}
	for _, other := range known[name] {
		if other != field {
			names = append(names, other)
		}
	}
	return names
}

// common is a header's name as fields are called: header.User-Agent is user_agent.
func common(field string) string {
	name := strings.ReplaceAll(strings.ToLower(field), "-", "_")
	for _, prefix := range []string{"header.", "headers.", "request.headers."} {
		name = strings.TrimPrefix(name, prefix)
	}
	switch name {
	case ":method":
		return method
	case ":path":
		return target
	case ":authority", "authority":
		return host
	}
	return name
}

// extract takes from a value what the field is a part of; nil: it is not there.
func extract(field string, value []byte) []byte {
	switch field {
	case path:
		return pathOf(value)
	case query:
		if i := bytes.IndexByte(value, '?'); i >= 0 {
			return value[i+1:]
		}
		return nil
	case remoteAddress:
		return withoutPort(value)
	}
	return value
}

// pathOf is the path of a request's target: without a query, and without the scheme and
// host that proxies are sent.
func pathOf(target []byte) []byte {
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		target = target[:i]
	}
	if len(target) > 0 && target[0] == '/' {
		return target
	}
	if i := bytes.Index(target, []byte("://")); i >= 0 {
		rest := target[i+3:]
		if j := bytes.IndexByte(rest, '/'); j >= 0 {
			return rest[j:]
		}
		return []byte("/")
	}
	return target
}

// withoutPort is the address of address:port.
func withoutPort(value []byte) []byte {
	if len(value) > 0 && value[0] == '[' {
		if i := bytes.IndexByte(value, ']'); i > 0 {
			return value[1:i]
		}
		return value
	}
	i := bytes.IndexByte(value, ':')
	if i >= 0 && i == bytes.LastIndexByte(value, ':') {
		return value[:i]
	}
	return value
}

// requestLine takes "GET /path HTTP/1.1" apart. What is none has no method.
func requestLine(line []byte) (method, target, protocol []byte) {
	i := bytes.IndexByte(line, ' ')
	if i <= 0 || !isMethod(line[:i]) {
		return nil, nil, nil
	}
	method, target = line[:i], line[i+1:]
	if j := bytes.LastIndexByte(target, ' '); j >= 0 && bytes.HasPrefix(target[j+1:], []byte("HTTP/")) {
		target, protocol = target[:j], target[j+1:]
	}
	if len(target) == 0 {
		return nil, nil, nil
	}
	return method, target, protocol
}

// isMethod tells of a token as RFC 9110 has it.
func isMethod(word []byte) bool {
	for _, c := range word {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return true
}

// given is the value, or nil where the log says that there is none.
func given(value []byte) []byte {
	if len(value) == 0 || len(value) == 1 && value[0] == '-' {
		return nil
	}
	return value
}

// lastOf is the last of a list with commas, as x-forwarded-for is one: the address that
// the proxy itself saw.
func lastOf(list []byte) []byte {
	if i := bytes.LastIndexByte(list, ','); i >= 0 {
		list = list[i+1:]
	}
	return bytes.TrimSpace(list)
}

// quotedList writes names for people.
func quotedList(names []string) string {
	return strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

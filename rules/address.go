package rules

import (
	"fmt"
	"net/netip"
	"strings"
)

// longestAddress is the length of the longest text of an address without zone.
const longestAddress = len("0000:0000:0000:0000:0000:ffff:255.255.255.255")

// parseAddress reads an address: an IPv4-mapped one as IPv4, without its zone.
// What is obviously none costs next to nothing, where netip.ParseAddr allocates
// an error.
func parseAddress(text string) (netip.Addr, bool) {
	if i := strings.IndexByte(text, '%'); i >= 0 && i+1 < len(text) && strings.Contains(text[:i], ":") {
		text = text[:i]
	}
	if len(text) < len("::") || len(text) > longestAddress {
		return netip.Addr{}, false
	}
	separated := false
	for i := range len(text) {
		switch c := text[i]; {
		case c == '.' || c == ':':
			separated = true
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f', 'A' <= c && c <= 'F':
		default:
			return netip.Addr{}, false
		}
	}
	if !separated {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(text)
	return addr.Unmap(), err == nil
}

// mask says how many leading bits of an address count. A family that is not set
// keeps its addresses whole.
type mask struct {
	ipv4, ipv6       uint8
	hasIPv4, hasIPv6 bool
}

func (m mask) set() bool { return m.hasIPv4 || m.hasIPv6 }

// String writes the mask as a rule file has it.
func (m mask) String() string {
	var parts []string
	if m.hasIPv4 {
		parts = append(parts, fmt.Sprintf("ipv4: %d", m.ipv4))
	}
	if m.hasIPv6 {
		parts = append(parts, fmt.Sprintf("ipv6: %d", m.ipv6))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// or returns m, with what it leaves unset taken from fallback.
func (m mask) or(fallback mask) mask {
	if !m.hasIPv4 {
		m.ipv4, m.hasIPv4 = fallback.ipv4, fallback.hasIPv4
	}
	if !m.hasIPv6 {
		m.ipv6, m.hasIPv6 = fallback.ipv6, fallback.hasIPv6
	}
	return m
}

// network is the part of the address that counts.
func (m mask) network(addr netip.Addr) netip.Prefix {
	bits := addr.BitLen()
	switch {
	case addr.Is4() && m.hasIPv4:
		bits = int(m.ipv4)
	case addr.Is6() && m.hasIPv6:
		bits = int(m.ipv6)
	}
	prefix, _ := addr.Prefix(bits) // bits are in range: the mask was checked
	return prefix
}

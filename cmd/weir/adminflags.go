package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"weir/server"
)

// adminFlags say by which token a server knows its operators.
type adminFlags struct {
	token, file string

	access *server.Access // of them, once they are complete
}

func (a *adminFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&a.token, "admin-token", "", "what operators show who reset counters, list rules, watch statistics or profile the process; 16 characters at least; a file is safer (default: they have a certificate that --tls-client-ca checks, or are on this machine)")
	f.StringVar(&a.file, "admin-token-file", "", "a file with this token, read at the start")
}

// complete reads the token.
func (a *adminFlags) complete(f *pflag.FlagSet) error {
	for _, name := range []string{"admin-token", "admin-token-file"} {
		// An empty variable of a script must not let in who has no token.
		if flag := f.Lookup(name); flag.Changed && flag.Value.String() == "" {
			return usagef("--%s is empty; give a token, or leave the flag out", name)
		}
	}
	if a.token != "" && a.file != "" {
		return usagef("--admin-token and --admin-token-file exclude each other")
	}
	if a.file != "" {
		text, err := readToken(a.file)
		if err != nil {
			return usagef("--admin-token-file: %w", err)
		}
		a.token = text
	}
	access, err := server.NewAccess(server.AccessOptions{Token: a.token})
	if err != nil {
		name := "--admin-token"
		if a.file != "" {
			name += "-file"
		}
		return usagef("%s: %w", name, err)
	}
	a.access = access
	return nil
}

// maxTokenFile is more than any token has, in bytes.
const maxTokenFile = 64 << 10

// readToken reads a file that has a token, and maybe the end of a line after it.
func readToken(path string) (string, error) {
	text, err := readSmall(path, maxTokenFile)
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", err
	case token == "":
		return "", fmt.Errorf("%s is empty", path)
	case len(text) > maxTokenFile:
		return "", fmt.Errorf("%s has more than %d bytes, which no token has", path, maxTokenFile)
	}
	return token, nil
}

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"weir/limiter/redis"
)

// addStoreTLSFlags adds the flags of TLS to Redis, for all commands that take
// --store.
func addStoreTLSFlags(f *pflag.FlagSet, t *redis.TLSFiles) {
	f.StringVar(&t.CAFile, "store-ca-file", "", "Redis with TLS: certificates that sign the server's, as PEM (default: the system's); these files are read again for each connection")
	f.StringVar(&t.CertFile, "store-cert-file", "", "Redis with TLS: this client's certificate, as PEM")
	f.StringVar(&t.KeyFile, "store-key-file", "", "Redis with TLS: its key")
	f.StringVar(&t.ServerName, "store-tls-server-name", "", "Redis with TLS: the name in the server's certificate, or * for any (default: the host)")
}

// checkStoreTLS says of flags that were given and are empty, as an unset variable
// of a script leaves them, that they do not say what they seem to.
func checkStoreTLS(f *pflag.FlagSet, store string) error {
	for _, name := range []string{"store-ca-file", "store-cert-file", "store-key-file", "store-tls-server-name"} {
		switch flag := f.Lookup(name); {
		case flag.Changed && flag.Value.String() == "":
			return usagef("--%s is empty; leave it out, or say what it is", name)
		case flag.Changed && store == memoryStore:
			return usagef("--%s is for Redis, and --store is memory", name)
		}
	}
	return nil
}

// keySecretFlags are the secret that counters in Redis are named with.
type keySecretFlags struct{ text, file string }

func (k *keySecretFlags) addFlags(f *pflag.FlagSet, with string) {
	f.StringVar(&k.file, "key-secret-file", "", with+"a file with a secret for the names of counters in Redis, so that who reads Redis cannot try which client a counter is of; the same for all instances; a new one begins all counters anew")
	f.StringVar(&k.text, "key-secret", "", with+"that secret itself; a file, or the environment, shows it to fewer")
}

// maxSecret is more than any secret has.
const maxSecret = 4096

// secret reads it; nil: there is none.
func (k *keySecretFlags) secret(f *pflag.FlagSet) ([]byte, error) {
	ofFile, ofText := f.Changed("key-secret-file"), f.Changed("key-secret")
	name, secret := "--key-secret", []byte(k.text)
	switch {
	case ofFile && ofText:
		return nil, usagef("--key-secret-file and --key-secret are both given; leave one out")
	case ofFile:
		name = "--key-secret-file " + k.file
		text, err := readSmall(k.file, maxSecret+int64(len("\r\n")))
		if err != nil {
			return nil, fmt.Errorf("--key-secret-file: %w", err)
		}
		secret = bytes.TrimRight(text, "\r\n") // an editor's
	case !ofText:
		return nil, nil
	}
	if len(secret) < redis.MinSecret || len(secret) > maxSecret {
		return nil, usagef("%s: the secret has %d bytes; %d to %d are allowed, such as openssl rand -base64 32 makes", name, len(secret), redis.MinSecret, maxSecret)
	}
	return secret, nil
}

// readSmall reads a file, at most so many bytes of it and one more, which shows that
// it is longer.
func readSmall(path string, most int64) (text []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	return io.ReadAll(io.LimitReader(f, most+1))
}

package redis

import (
	"context"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// The oldest Redis whose commands the scripts know.
const oldestMajor, oldestMinor = 6, 2

// checkVersion fails on a Redis that is too old. One that will not say its
// version, as its ACL may have it, is taken as new enough.
func checkVersion(ctx context.Context, c goredis.Cmdable) error {
	info, err := c.Info(ctx, "server").Result()
	if goredis.HasErrorPrefix(err, "NOPERM") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("asking Redis for its version: %w", err)
	}
	return tooOld(info)
}

// tooOld reads INFO server.
func tooOld(info string) error {
	for line := range strings.Lines(info) {
		version, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:")
		if !ok {
			continue
		}
		var major, minor int
		if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
			return nil // not Redis's way of numbering: it is something new
		}
		if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
			return fmt.Errorf("redis %s is too old: the scripts need %d.%d at least", version, oldestMajor, oldestMinor)
		}
	}
	return nil
}

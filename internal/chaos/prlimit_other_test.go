//go:build !linux

package chaos

// fileSizeLimit does nothing where a process cannot set another's: disks are not
// full there.
func fileSizeLimit(int, uint64) error { return nil }

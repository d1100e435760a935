package file

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// watch tells that something in some folders has changed. It is a help only:
// where it does not work, files are read at intervals.
type watch struct {
	watcher *fsnotify.Watcher // nil: does not work here
	log     *slog.Logger
	folders folders         // that follow was called with last
	listed  map[string]bool // folders that were watched then
	failed  map[string]bool // folders that were warned of
}

func newWatch(log *slog.Logger) *watch {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("rules cannot be watched, and are read at intervals", "error", err)
	}
	return &watch{watcher: watcher, log: log, failed: map[string]bool{}}
}

// follow watches these folders, and no others, and tells whether some are new.
// A folder that is gone falls away by itself, and is new when it is made again.
func (w *watch) follow(folders folders) (more bool) {
	if w.watcher == nil {
		return false
	}
	before := w.list()
	for folder := range before {
		if _, wanted := folders[folder]; !wanted {
			_ = w.watcher.Remove(folder) // fails if it is gone
		}
	}
	for folder := range folders {
		err := w.watcher.Add(folder) // changes nothing for one that is watched
		if err != nil && !w.failed[folder] && !errors.Is(err, fs.ErrNotExist) {
			w.log.Warn("folder cannot be watched, and is read at intervals", "folder", folder, "error", err)
		}
		w.failed[folder] = err != nil
		_, known := w.folders[folder]
		fellAway := w.listed[folder] && !before[folder]
		more = more || err == nil && (!known || fellAway)
	}
	w.folders, w.listed = folders, w.list()
	return more
}

func (w *watch) list() map[string]bool {
	list := map[string]bool{}
	for _, folder := range w.watcher.WatchList() {
		list[folder] = true
	}
	return list
}

// concerns tells whether an event is about something that is watched.
func (w *watch) concerns(event fsnotify.Event) bool {
	if _, itself := w.folders[event.Name]; itself {
		return true
	}
	names, watched := w.folders[filepath.Dir(event.Name)]
	return watched && (names == nil || slices.Contains(names, filepath.Base(event.Name)))
}

// events is nil, and so never ready, where watching does not work.
func (w *watch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *watch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
		w.watcher = nil
	}
}

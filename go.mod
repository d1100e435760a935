module weir

go 1.26.0

require (
	github.com/agnivade/levenshtein v1.2.2 // indirect
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/sys v0.13.0 // indirect
)

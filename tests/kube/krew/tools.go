//go:build tools

// Package tools keeps the program that tests/kube/build compiles in this module's requirements.
package tools

import _ "sigs.k8s.io/krew/cmd/krew"

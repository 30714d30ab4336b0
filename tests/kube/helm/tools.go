//go:build tools

// Package tools keeps the program that tests/kube/build compiles in this module's requirements.
package tools

import _ "helm.sh/helm/v3/cmd/helm"

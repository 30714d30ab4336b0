// Konnectivity beside the pinned Kubernetes release (tests/kube/kubernetes/go.mod has the same version of its client).
module tombolo/tests/konnectivity

go 1.26.0

require (
	sigs.k8s.io/apiserver-network-proxy v0.34.0
	sigs.k8s.io/apiserver-network-proxy/konnectivity-client v0.34.0
)

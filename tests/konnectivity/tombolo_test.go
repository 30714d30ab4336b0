// Starts tunnel-server in place of konnectivity's proxy-server, for konnectivity's own integration tests: this file joins their
// package `tests` (see run).
package tests

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
	metricsserver "sigs.k8s.io/apiserver-network-proxy/pkg/server/metrics"
	metricstest "sigs.k8s.io/apiserver-network-proxy/pkg/testing/metrics"
	"sigs.k8s.io/apiserver-network-proxy/tests/framework"
)

// The cluster of all agents of a test.
const cluster = "edge"

// The limit for a server to become ready.
const readyMax = time.Minute

// A silent agent is lost within this time, the shortest that may be configured.
const outageLimitSeconds = 9

func init() {
	Framework.ProxyServerRunner = tombolo{}
}

// tombolo starts a server for each test. TOMBOLO_BIN is the folder of its programs, TOMBOLO_PKI one of certificates, made by run.
type tombolo struct{}

type tunnelServer struct {
	process       *exec.Cmd
	stop          sync.Once
	agents, front string
	probes        string
}

func (tombolo) Start(t testing.TB, opts framework.ProxyServerOpts) (framework.ProxyServer, error) {
	if opts.Mode != server.ModeHTTPConnect {
		t.Skip("the gRPC mode of the frontend is not served")
	}
	folder, err := os.MkdirTemp("", "tombolo-konnectivity-")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	ports, err := framework.FreePorts(3)
	if err != nil {
		return nil, err
	}
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	if opts.AgentPort != 0 {
		ports[0] = opts.AgentPort
	}
	ps := &tunnelServer{agents: at(ports[0]), probes: at(ports[1]), front: filepath.Join(folder, "egress.sock")}
	pki, socket := os.Getenv("TOMBOLO_PKI"), filepath.Join(folder, "admin", "admin.sock")
	for name, text := range map[string]string{
		"server.yaml": fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: ServerConfig
tls: { certificateFile: %[1]s/server.crt, keyFile: %[1]s/server.key }
gateway:
  listen: %[2]q
  authentication:
    clientCertificate: { caFile: %[1]s/caller-ca.crt, usernamePrefix: "", groupsPrefix: "" }
tunnel: { listen: %[3]q, agentCAFile: %[1]s/agent-ca.crt, outageLimitSeconds: %[4]d }
policy: { file: policy.yaml }
egress: [{ name: host, cluster: %[5]s, uds: { path: egress.sock, uids: [%[6]d] } }]
admin: { socket: %[7]s }
stateDir: state
probes: { listen: %[8]q }
`, pki, at(ports[2]), ps.agents, outageLimitSeconds, cluster, os.Getuid(), socket, ps.probes),
		"policy.yaml": fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: Policy
rules:
- name: host
  effect: Allow
  subjects: [{ method: "entry-point:host", user: "*" }]
  clusters: { names: [%s] }
  mode: dial
  targets: [{ hosts: ["*"], ports: ["*"] }]
`, cluster),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	ps.process = exec.Command(filepath.Join(os.Getenv("TOMBOLO_BIN"), "tunnel-server"), "--config", filepath.Join(folder, "server.yaml"))
	ps.process.Stdout, ps.process.Stderr = os.Stdout, os.Stderr
	if err := ps.process.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(ps.Stop)
	if err := await(ps.Ready); err != nil {
		return nil, fmt.Errorf("tunnel-server is not ready: %w", err)
	}
	for _, words := range [][]string{
		{"cluster", "create", cluster},
		{"cluster", "update", cluster, "--advertise", "127.0.0.1/32"},
	} {
		command := exec.Command(filepath.Join(os.Getenv("TOMBOLO_BIN"), "tombolo"), append(words, "--socket", socket)...)
		if said, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("tombolo %v: %w: %s", words, err, said)
		}
	}
	return ps, nil
}

func (ps *tunnelServer) AgentAddr() string { return ps.agents }
func (ps *tunnelServer) FrontAddr() string { return ps.front }
func (ps *tunnelServer) Ready() bool       { return status(ps.probes, "/readyz") == http.StatusOK }

// Stop kills the server at once, as konnectivity's tests do.
func (ps *tunnelServer) Stop() {
	ps.stop.Do(func() {
		ps.process.Process.Signal(syscall.SIGKILL)
		ps.process.Wait()
	})
}

// ConnectedBackends counts agents of one id once: here that is a cluster.
func (ps *tunnelServer) ConnectedBackends() (int, error) {
	connected, err := metric(ps.probes, `tombolo_server_cluster_connected{cluster="`+cluster+`"}`)
	return int(connected), err
}

// Metrics are ours, by other names.
func (ps *tunnelServer) Metrics() metricstest.ServerTester { return ps }

func (ps *tunnelServer) ExpectServerDialFailure(reason metricsserver.DialFailureReason, count int) error {
	return ps.ExpectServerDialFailures(map[metricsserver.DialFailureReason]int{reason: count})
}

func (ps *tunnelServer) ExpectServerDialFailures(expected map[metricsserver.DialFailureReason]int) error {
	wanted := expected[metricsserver.DialFailureErrorResponse]
	found, err := metric(ps.probes, `tombolo_server_refusals_total{reason="TargetUnreachable"}`)
	if err == nil && int(found) != wanted {
		err = fmt.Errorf("%v dials have failed, not %d", found, wanted)
	}
	return err
}

func (ps *tunnelServer) ExpectServerPendingDials(int) error     { return nil }
func (ps *tunnelServer) ExpectServerReadyBackends(int) error    { return nil }
func (ps *tunnelServer) ExpectServerEstablishedConns(int) error { return nil }

func await(is func() bool) error {
	for until := time.Now().Add(readyMax); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if is() {
			return nil
		}
	}
	return fmt.Errorf("not within %v", readyMax)
}

// No connection stays open, which the tests check.
var once = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

func status(address, path string) int {
	response, err := once.Get("http://" + address + path)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// metric is a series' value; none is zero.
func metric(address, series string) (float64, error) {
	text, err := scraped(address)
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(text, "\n") {
		if value, found := strings.CutPrefix(line, series+" "); found {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, nil
}

func scraped(address string) (string, error) {
	response, err := once.Get("http://" + address + "/metrics")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

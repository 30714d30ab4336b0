// Starts tunnel-agent in place of konnectivity's proxy-agent: it takes the same flags, and serves health, readiness and metrics by
// the same names, as far as konnectivity's own integration tests check them.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The cluster of all agents of a test.
const cluster = "edge"

// The state of a listening socket in /proc/net/tcp.
const listening = "0A"

func main() {
	// The agent ends with this process. For the kernel the parent is this thread.
	runtime.LockOSThread()
	flags := map[string]string{}
	for _, word := range os.Args[1:] {
		name, value, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		flags[name] = value
	}
	folder := must(os.MkdirTemp("", "tombolo-konnectivity-agent-"))
	defer os.RemoveAll(folder)
	probes := freeAddress()
	config := filepath.Join(folder, "agent.yaml")
	check(os.WriteFile(config, []byte(configuration(flags, folder, probes)), 0o600))
	agent := exec.Command(filepath.Join(os.Getenv("TOMBOLO_BIN"), "tunnel-agent"), "--config", config)
	agent.Stdout, agent.Stderr = os.Stdout, os.Stderr
	agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(agent.Start())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		for range signals {
			check(agent.Process.Signal(syscall.SIGTERM))
		}
	}()
	go serve(net.JoinHostPort(flags["health-server-host"], flags["health-server-port"]), probes)
	check(agent.Wait())
}

// configuration is an agent's that dials what its parent, the test, listens at: on loopback an address has to be named in full.
func configuration(flags map[string]string, folder, probes string) string {
	pki, id := os.Getenv("TOMBOLO_PKI"), fmt.Sprintf("p%d", os.Getpid())
	issue := exec.Command(filepath.Join(os.Getenv("TOMBOLO_BIN"), "tombolo"), "ca", "issue", "agent", "--dir", pki, "--cluster", cluster, "--id", id)
	if said, err := issue.CombinedOutput(); err != nil {
		log.Fatalf("no certificate: %v: %s", err, said)
	}
	ca := base64.StdEncoding.EncodeToString(must(os.ReadFile(filepath.Join(pki, "server-ca.crt"))))
	kubeconfig := filepath.Join(folder, "kubeconfig")
	check(os.WriteFile(kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: none
contexts: [{ name: none, context: { cluster: none, user: none } }]
clusters: [{ name: none, cluster: { server: "https://127.0.0.1:1", certificate-authority-data: %s } }]
users: [{ name: none, user: { token: none } }]
`, ca), 0o600))
	return fmt.Sprintf(`apiVersion: tombolo.dev/v1alpha1
kind: AgentConfig
cluster: %[1]s
servers: [%[2]q]
tls: { certificateFile: %[3]s/%[1]s.%[4]s-agent.crt, keyFile: %[3]s/%[1]s.%[4]s-agent.key, serverCAFile: %[3]s/server-ca.crt }
apiServer: { kubeconfig: %[5]s }
advertise: ["127.0.0.1:1"]
targets: [%[6]s]
stateDir: %[7]s/state
probes: { listen: %[8]q }
`, cluster, net.JoinHostPort(flags["proxy-server-host"], flags["proxy-server-port"]), pki, id, kubeconfig,
		strings.Join(listenersOf(os.Getppid()), ", "), folder, probes)
}

// listenersOf are the addresses of loopback at which a process listens, as YAML strings.
func listenersOf(process int) []string {
	sockets := map[string]bool{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", process))
	for _, file := range files {
		if link, err := os.Readlink(file); err == nil {
			if inode, found := strings.CutPrefix(link, "socket:["); found {
				sockets[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	var found []string
	table := must(os.Open("/proc/net/tcp"))
	defer table.Close()
	for lines := bufio.NewScanner(table); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != listening || !sockets[fields[9]] {
			continue
		}
		address, port, _ := strings.Cut(fields[1], ":")
		bytes, err := hex.DecodeString(address)
		number, other := strconv.ParseUint(port, 16, 16)
		if err == nil && other == nil && len(bytes) == net.IPv4len {
			// In the byte order of the machine: x86 and ARM have the last one first.
			found = append(found, fmt.Sprintf("%q", fmt.Sprintf("%s:%d", net.IPv4(bytes[3], bytes[2], bytes[1], bytes[0]), number)))
		}
	}
	return found
}

// serve answers like konnectivity's agent.
func serve(address, probes string) {
	http.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if sum(probes, "tombolo_agent_tunnels_connected{") == 0 {
			http.Error(w, "no server is connected", http.StatusInternalServerError)
		}
	})
	http.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `# HELP konnectivity_network_proxy_agent_open_server_connections Current number of open server connections.
# TYPE konnectivity_network_proxy_agent_open_server_connections gauge
konnectivity_network_proxy_agent_open_server_connections %v
# HELP konnectivity_network_proxy_agent_endpoint_dial_failure_total Number of failures dialing the remote endpoint, by reason (example: timeout).
# TYPE konnectivity_network_proxy_agent_endpoint_dial_failure_total counter
konnectivity_network_proxy_agent_endpoint_dial_failure_total{reason="unknown"} %v
`, sum(probes, "tombolo_agent_tunnels_connected{"), sum(probes, `tombolo_agent_target_dials_total{outcome="unreachable"}`))
	})
	check(http.ListenAndServe(address, nil))
}

// sum adds the values of the series with this prefix. It returns nothing while the agent does not answer.
func sum(probes, series string) (total float64) {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get("http://" + probes + "/metrics")
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, series) {
			fields := strings.Fields(line)
			value, _ := strconv.ParseFloat(fields[len(fields)-1], 64)
			total += value
		}
	}
	return total
}

func freeAddress() string {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	return listener.Addr().String()
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

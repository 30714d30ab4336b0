// Asks a target through an HTTP CONNECT proxy: many callers with kept connections, one bulk download, and many beside a reader
// that never reads. Prints what each came to, and the CPU time of the proxy's processes.
package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// What a small answer has.
	smallBytes = 1024
	// What a reader asks for that never reads.
	hugeBytes = 1 << 30
	// The requests beside it, one after the other, and how long each may take.
	besides   = 200
	beside    = 50 * time.Millisecond
	besideMax = 10 * time.Second
	// Who asks beside uploads that nobody reads.
	fewCallers = 8
	// Ticks of a clock in which Linux counts CPU time.
	ticksPerSecond = 100
)

func main() {
	certificates := flag.String("certificates", "", "make certificates in this folder, and nothing else")
	proxy := flag.String("proxy", "", "HOST:PORT of the proxy; none: the target itself is asked, without TLS")
	target := flag.String("target", "", "HOST:PORT at which this program listens and that is asked for")
	folder := flag.String("folder", "", "the folder of the certificates")
	callers := flag.Int("callers", 64, "callers at once")
	seconds := flag.Int("seconds", 10, "how long each measure takes")
	uploads := flag.Int("deaf", 0, "uploads that the target does not read, beside which a few callers ask")
	processes := flag.String("processes", "", "the proxy's process ids, joined by commas")
	flag.Parse()
	if *certificates != "" {
		makeCertificates(*certificates)
		return
	}
	go serve(must(net.Listen("tcp", *target)))
	dialer := dialer(*proxy, *target, *folder)
	duration := time.Duration(*seconds) * time.Second
	ids := strings.FieldsFunc(*processes, func(r rune) bool { return r == ',' })

	small(dialer, *target, *callers, time.Second) // warm
	before := cpu(ids)
	answered, latencies := small(dialer, *target, *callers, duration)
	used := cpu(ids) - before
	fmt.Printf("small rps=%.0f p50_us=%d p99_us=%d cpu_us=%.1f\n", float64(answered)/duration.Seconds(),
		percentile(latencies, 50).Microseconds(), percentile(latencies, 99).Microseconds(), used.Seconds()*1e6/float64(answered))
	before = cpu(ids)
	moved := float64(bulk(dialer, *target, duration))
	used = cpu(ids) - before
	fmt.Printf("bulk mb_per_s=%.0f cpu_s_per_gb=%.2f\n", moved/duration.Seconds()/1e6, used.Seconds()/(moved/1e9))
	fmt.Printf("stalled answered=%d of=%d\n", stalled(dialer, *target), besides)
	if *uploads > 0 {
		_, alone := small(dialer, *target, fewCallers, duration)
		held := deaf(dialer, *target, *uploads)
		_, beside := small(dialer, *target, fewCallers, duration)
		fmt.Printf("deaf uploads=%d alone_p99_us=%d p99_us=%d ratio=%.2f\n", len(held), percentile(alone, 99).Microseconds(),
			percentile(beside, 99).Microseconds(), percentile(beside, 99).Seconds()/percentile(alone, 99).Seconds())
		for _, connection := range held {
			connection.Close()
		}
	}
}

func percentile(all []time.Duration, percent int) time.Duration {
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return all[len(all)*percent/100]
}

type dial func() (net.Conn, error)

func dialer(proxy, target, folder string) dial {
	if proxy == "" {
		return func() (net.Conn, error) { return net.Dial("tcp", target) }
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "client.crt"), filepath.Join(folder, "client.key"))
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must(os.ReadFile(filepath.Join(folder, "ca.crt"))))
	host, _, _ := net.SplitHostPort(proxy)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: host}
	return func() (net.Conn, error) {
		// As kube-apiserver does.
		connection, err := tls.Dial("tcp", proxy, config)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(connection, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", target)
		reader := bufio.NewReader(connection)
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusOK || reader.Buffered() > 0 {
			return nil, errors.New(response.Status)
		}
		return connection, nil
	}
}

// kept is a connection on which one request follows the other. Neither it nor the target is made of net/http: what the driver
// takes of the machine it takes from what it measures, and of both sides' ratio.
type kept struct {
	net.Conn
	answers *bufio.Reader
	request []byte
}

func keep(connection net.Conn, target string) *kept {
	request := fmt.Appendf(nil, "GET /small HTTP/1.1\r\nHost: %s\r\n\r\n", target)
	return &kept{connection, bufio.NewReader(connection), request}
}

// get asks once and takes the whole answer.
func (k *kept) get() error {
	if _, err := k.Write(k.request); err != nil {
		return err
	}
	line, err := head(k.answers)
	if err == nil && line != "HTTP/1.1 200 OK" {
		err = errors.New(line)
	}
	if err == nil {
		_, err = k.answers.Discard(smallBytes)
	}
	return err
}

// head reads a head to its end, and says its first line.
func head(from *bufio.Reader) (first string, err error) {
	for {
		line, err := from.ReadSlice('\n')
		if err != nil {
			return "", err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return first, nil
		}
		if first == "" {
			first = string(line)
		}
	}
}

func small(dialer dial, target string, callers int, duration time.Duration) (int, []time.Duration) {
	var wait sync.WaitGroup
	var lock sync.Mutex
	var all []time.Duration
	until := time.Now().Add(duration)
	for range callers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			connection, own := keep(must(dialer()), target), []time.Duration{}
			defer connection.Close()
			for begun := time.Now(); begun.Before(until); {
				check(connection.get())
				ended := time.Now()
				own = append(own, ended.Sub(begun))
				begun = ended
			}
			lock.Lock()
			all = append(all, own...)
			lock.Unlock()
		}()
	}
	wait.Wait()
	return len(all), all
}

func bulk(dialer dial, target string, duration time.Duration) (total int64) {
	connection := must(dialer())
	defer connection.Close()
	fmt.Fprintf(connection, "GET /endless HTTP/1.1\r\nHost: %s\r\n\r\n", target)
	buffer, until := make([]byte, 256<<10), time.Now().Add(duration)
	for time.Now().Before(until) {
		n, err := connection.Read(buffer)
		check(err)
		total += int64(n)
	}
	return total
}

func stalled(dialer dial, target string) int {
	held := must(dialer())
	defer held.Close()
	fmt.Fprintf(held, "GET /huge HTTP/1.1\r\nHost: %s\r\n\r\n", target)
	time.Sleep(2 * time.Second)
	var answered atomic.Int64
	var wait sync.WaitGroup
	for range besides {
		wait.Add(1)
		go func() {
			defer wait.Done()
			done := make(chan error, 1)
			go func() { done <- once(dialer, target) }()
			select {
			case err := <-done:
				if err == nil {
					answered.Add(1)
				}
			case <-time.After(besideMax):
			}
		}()
		time.Sleep(beside)
	}
	wait.Wait()
	return int(answered.Load())
}

func once(dialer dial, target string) error {
	connection, err := dialer()
	if err != nil {
		return err
	}
	defer connection.Close()
	check(connection.SetDeadline(time.Now().Add(besideMax)))
	return keep(connection, target).get()
}

// deaf begins uploads that the target does not read, and returns once none of them is taken any further.
func deaf(dialer dial, target string, uploads int) (held []net.Conn) {
	var taken atomic.Int64
	for range uploads {
		connection := must(dialer())
		held = append(held, connection)
		fmt.Fprintf(connection, "POST /deaf HTTP/1.1\r\nHost: %s\r\n\r\n", target)
		go func() {
			chunk := make([]byte, 64<<10)
			for {
				n, err := connection.Write(chunk)
				taken.Add(int64(n))
				if err != nil {
					return
				}
			}
		}()
	}
	for before := int64(-1); before != taken.Load(); time.Sleep(2 * time.Second) {
		before = taken.Load()
	}
	return held
}

func serve(listener net.Listener) {
	for {
		go answer(must(listener.Accept()))
	}
}

func answer(connection net.Conn) {
	defer connection.Close()
	requests := bufio.NewReader(connection)
	text := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", smallBytes, make([]byte, smallBytes))
	chunk := make([]byte, 256<<10)
	for {
		line, err := head(requests)
		if err != nil {
			return
		}
		left := int64(0)
		switch line {
		case "GET /small HTTP/1.1":
			_, err = connection.Write(text)
		case "GET /endless HTTP/1.1":
			left = 1 << 62
		case "GET /huge HTTP/1.1":
			left = hugeBytes
		case "POST /deaf HTTP/1.1":
			select {}
		default:
			err = errors.New(line)
		}
		for ; left > 0 && err == nil; left -= int64(len(chunk)) {
			_, err = connection.Write(chunk)
		}
		if err != nil {
			return
		}
	}
}

// cpu is what the processes have used.
func cpu(ids []string) (total time.Duration) {
	for _, id := range ids {
		text := string(must(os.ReadFile("/proc/" + id + "/stat")))
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		var user, system int64
		fmt.Sscan(fields[11], &user)
		fmt.Sscan(fields[12], &system)
		total += time.Duration(user+system) * time.Second / ticksPerSecond
	}
	return total
}

// makeCertificates writes an authority, a server's and a client's certificate.
func makeCertificates(folder string) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	authority := template("peers", true)
	write(folder, "ca", authority, authority, key, key)
	for _, name := range []string{"server", "client"} {
		own := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		write(folder, name, template(name, false), authority, own, key)
	}
}

func template(name string, isAuthority bool) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, big.NewInt(1<<62))), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: isAuthority, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

func write(folder, name string, own, issuer *x509.Certificate, key, by *ecdsa.PrivateKey) {
	der := must(x509.CreateCertificate(rand.Reader, own, issuer, &key.PublicKey, by))
	secret := must(x509.MarshalPKCS8PrivateKey(key))
	for end, block := range map[string]*pem.Block{
		".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		check(os.WriteFile(filepath.Join(folder, name+end), pem.EncodeToMemory(block), 0o600))
	}
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

// Checks framing independently: prints the requests that a server of Go's net/http, which every kube-apiserver is, parses from a
// connection. Each argument is a file with a connection's bytes. Each line of the output has the requests of one.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

// A request, as a handler gets it.
type request struct {
	Method  string      `json:"method"`
	Target  string      `json:"target"`
	Host    string      `json:"host"`
	Headers [][2]string `json:"headers"`
	// Base64 in JSON.
	Body []byte `json:"body"`
	// Whether the body ended where its framing says.
	Complete bool `json:"complete"`
}

func main() {
	out := json.NewEncoder(os.Stdout)
	for _, name := range os.Args[1:] {
		received, err := os.ReadFile(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "second-parser:", err)
			os.Exit(1)
		}
		if err := out.Encode(seen(received)); err != nil {
			os.Exit(1)
		}
	}
}

// Serves one connection that received these bytes and then its end.
func seen(received []byte) []request {
	requests := []request{}
	ended := make(chan struct{})
	server := http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			one := request{Method: r.Method, Target: r.RequestURI, Host: r.Host, Headers: [][2]string{}}
			for name, values := range r.Header {
				for _, value := range values {
					one.Headers = append(one.Headers, [2]string{name, value})
				}
			}
			var err error
			one.Body, err = io.ReadAll(r.Body)
			one.Complete = err == nil
			requests = append(requests, one)
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(ended)
			}
		},
	}
	go server.Serve(&listener{connection: &connection{bytes.NewReader(received)}, closed: make(chan struct{})})
	<-ended
	server.Close()
	return requests
}

// A listener with one connection.
type listener struct {
	connection net.Conn
	closed     chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	if connection := l.connection; connection != nil {
		l.connection = nil
		return connection, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *listener) Close() error   { close(l.closed); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

// A connection whose peer has sent all its bytes.
type connection struct{ received *bytes.Reader }

func (c *connection) Read(into []byte) (int, error)    { return c.received.Read(into) }
func (c *connection) Write(from []byte) (int, error)   { return len(from), nil }
func (c *connection) Close() error                     { return nil }
func (c *connection) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *connection) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *connection) SetDeadline(time.Time) error      { return nil }
func (c *connection) SetReadDeadline(time.Time) error  { return nil }
func (c *connection) SetWriteDeadline(time.Time) error { return nil }

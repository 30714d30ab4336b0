// The program in the containers of the tests' pods. It is one static program, so an image is one file.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

const usage = `usage: pod pause            hold a sandbox until SIGTERM
       pod serve NAME       answer HTTP at port 8080 and echo at port 7777 until SIGTERM
       pod flood BYTES      write so many bytes of a pattern to stdout and end with the last of them
       pod exit CODE        end with that code`

func main() {
	words := os.Args[1:]
	switch {
	case len(words) == 1 && words[0] == "pause":
		pause()
	case len(words) == 2 && words[0] == "serve":
		serve(words[1])
	case len(words) == 2 && words[0] == "flood":
		flood(number(words[1]))
	case len(words) == 2 && words[0] == "exit":
		os.Exit(number(words[1]))
	default:
		fail(usage)
	}
}

// The first process of a pod's sandbox: it ends on a signal, and reaps children that nobody else waits for.
func pause() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for got := range signals {
		if got != syscall.SIGCHLD {
			return
		}
		for {
			if buried, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || buried <= 0 {
				break
			}
		}
	}
}

// The HTTP server returns its name or the posted body. The echo closes its half when the other one is closed.
func serve(name string) {
	go echo()
	http.HandleFunc("/", func(answer http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodPost {
			if _, err := io.Copy(answer, request.Body); err != nil {
				panic(http.ErrAbortHandler)
			}
			return
		}
		fmt.Fprintf(answer, "%s %s\n", name, request.URL.Path)
	})
	go func() { fail(http.ListenAndServe(":8080", nil)) }()
	fmt.Println("serving", name)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	<-ended
}

func echo() {
	listener, err := net.Listen("tcp", ":7777")
	if err != nil {
		fail(err)
	}
	for {
		stream, err := listener.Accept()
		if err != nil {
			fail(err)
		}
		go func() {
			defer stream.Close()
			// An error is the peer's: it sees its own connection break.
			_, _ = io.Copy(stream, stream)
			_ = stream.(*net.TCPConn).CloseWrite()
			fmt.Println("echoed")
		}()
	}
}

// The same bytes each time, without repetitions nearby: a loss or a repetition changes their hash.
func flood(bytes int) {
	block := make([]byte, 64*1024)
	for at := 0; at < bytes; {
		length := min(len(block), bytes-at)
		for i := range length {
			n := uint64(at + i)
			block[i] = byte(n * n / 251)
		}
		if _, err := os.Stdout.Write(block[:length]); err != nil {
			fail(err)
		}
		at += length
	}
}

func number(word string) int {
	number, err := strconv.Atoi(word)
	if err != nil {
		fail(err)
	}
	return number
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(2)
}

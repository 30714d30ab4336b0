package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Gives a second opinion about requests that another parser has read. Each line of the files has a method, the target as
// its caller has sent it, and the target as it is forwarded, both in hexadecimal. Each line of the output has one of:
//
//	unread                       net/http refuses the sent target, or kube-apiserver answers it with an error
//	differs WHY                  the two targets mean different things to kube-apiserver
//	path VERB PATH
//	resource VERB GROUP RESOURCE SUBRESOURCE NAMESPACE NAME SELECTED
//
// VERB stands behind a dot, and every later field in hexadecimal behind a dot. NAME is that of the path, and SELECTED is the one that
// a field selector adds.
func second(factory *request.RequestInfoFactory, files []string) {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "requestinfo:", err)
			os.Exit(1)
		}
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			fmt.Fprintln(out, opinion(factory, fields[0], decode(fields[1]), decode(fields[2])))
		}
		if err := lines.Err(); err != nil {
			fmt.Fprintln(os.Stderr, "requestinfo:", err)
			os.Exit(1)
		}
		file.Close()
	}
}

func opinion(factory *request.RequestInfoFactory, method, sent, forwarded string) string {
	first, err := read(method, sent)
	if err != nil {
		return "unread"
	}
	info, err := factory.NewRequestInfo(first)
	if err != nil {
		return "unread"
	}
	second, err := read(method, forwarded)
	if err != nil {
		return "differs unread"
	}
	if theirs, err := factory.NewRequestInfo(second); err != nil || !reflect.DeepEqual(info, theirs) {
		return "differs information"
	}
	if !reflect.DeepEqual(first.URL.Query(), second.URL.Query()) {
		return "differs query"
	}
	if !info.IsResourceRequest {
		return "path ." + info.Verb + " " + encode(info.Path)
	}
	alone, err := factory.NewRequestInfo(&http.Request{Method: method, URL: &url.URL{Path: first.URL.Path}})
	if err != nil {
		return "differs alone"
	}
	selected := ""
	if info.Name != alone.Name {
		selected = info.Name
	}
	fields := []string{info.APIGroup, info.Resource, info.Subresource, info.Namespace, alone.Name, selected}
	for n, field := range fields {
		fields[n] = encode(field)
	}
	return "resource ." + info.Verb + " " + strings.Join(fields, " ")
}

// A request as a server of net/http reads it.
func read(method, target string) (*http.Request, error) {
	head := method + " " + target + " HTTP/1.1\r\nHost: x\r\n\r\n"
	return http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
}

func encode(text string) string { return "." + hex.EncodeToString([]byte(text)) }

func decode(text string) string {
	bytes, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return string(bytes)
}

// Prints how kube-apiserver itself parses requests, one in each line: method, target, and the fields of its RequestInfo,
// separated by tabs. policy/src/action/tests/request_info.tsv is this program's output:
//
//	cd tests/kube/kubernetes && go run ./requestinfo > ../../../policy/src/action/tests/request_info.tsv
//
// With files as arguments, it reads requests from them instead (second.go).
package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

var queries = []string{
	"", "watch=true", "watch=1", "watch", "watch=false", "watch=False", "watch=0", "watch=0&watch=1", "watch=no",
	"%77atch=1", "Watch=1", "watch=1;x", "limit=x&watch=1", "limit=x", "fieldSelector=metadata.name%3Dx",
	"watch=1&fieldSelector=metadata.name%3Dx", "timeoutSeconds=5&watch=true",
}

// Relative to a group and version.
var resources = []string{
	"pods", "pods/", "pods/x", "pods/x/", "pods/x/log", "pods/x/exec", "pods/x/attach", "pods/x/portforward", "pods/x/proxy",
	"pods/x/proxy/", "pods/x/proxy/a/b", "pods/x:80/proxy/a", "pods/x/ephemeralcontainers", "pods/x/status", "pods/x/a/b/c",
	"nodes/n/proxy/exec/a/b/c", "services/https:x:web/proxy/a", "namespaces", "namespaces/", "namespaces/a",
	"namespaces/a/status", "namespaces/a/finalize", "namespaces/a/finalize/x", "namespaces/a/pods", "namespaces/a/pods/x",
	"namespaces/a/pods/x/log", "namespaces/a/pods/x/exec", "namespaces/a/pods/%78/%65xec", "namespaces/a/pods/x/proxy",
	"namespaces/a/services/x/proxy/y/z", "namespaces/a/namespaces/b", "namespaces/a/namespaces", "namespaces/status",
	"watch/pods", "watch/pods/x", "watch/namespaces/a/pods", "watch/namespaces/a/pods/x", "watch/namespaces/a",
	"watch/namespaces/a/pods/x/exec", "proxy/nodes/n", "proxy/nodes/n/a/b", "proxy/namespaces/a/pods/x", "proxy/pods/x/exec",
	"Pods", "pods%20x", "n%C3%B6des/x", "clusterroles/system%3Aadmin", "deployments/d/scale", "watch/watch/pods",
}

var others = []string{
	"/", "/version", "/version/", "/healthz", "/healthz/etcd", "/livez/", "/metrics", "/openapi/v3/apis/apps/v1", "/api",
	"/api/", "/api/v1", "/api/v1/", "/apis", "/apis/", "/apis/apps", "/apis/apps/v1", "/apis/apps/v1/", "/API/v1/pods",
	"/Apis/apps/v1/deployments", "/%61pi/v1/pods", "/%61pis/apps/v1/deployments", "/x/api/v1/pods", "/debug/pprof/profile",
	"/logs/", "/api%20/v1/pods", "/apis/apps/v1%20/deployments",
}

func main() {
	factory := request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	if len(os.Args) > 1 {
		second(&factory, os.Args[1:])
		return
	}
	var targets []string
	targets = append(targets, others...)
	for _, prefix := range []string{"/api/v1/", "/apis/apps/v1/"} {
		for _, resource := range resources {
			targets = append(targets, prefix+resource)
		}
	}
	for _, target := range targets {
		for _, method := range methods {
			tell(&factory, method, target)
		}
	}
	for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/a/pods/x", "/apis/apps/v1/deployments", "/version"} {
		for _, query := range queries {
			for _, method := range []string{"GET", "HEAD", "DELETE"} {
				tell(&factory, method, path+"?"+query)
			}
		}
	}
}

func tell(factory *request.RequestInfoFactory, method, target string) {
	parsed, err := url.ParseRequestURI(target)
	if err != nil {
		panic(err)
	}
	info, err := factory.NewRequestInfo(&http.Request{Method: method, URL: parsed})
	if err != nil {
		panic(fmt.Sprintf("%s %s: %v", method, target, err))
	}
	kind := "path"
	if info.IsResourceRequest {
		kind = "resource"
	}
	fields := []string{
		method, target, kind, info.Verb, info.APIGroup, info.Resource, info.Subresource, info.Namespace, info.Name, info.Path,
	}
	fmt.Println(strings.Join(fields, "\t"))
}

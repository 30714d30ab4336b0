// Command cluster-profiles is a program as others write it for a fleet: it finds clusters by the ClusterProfiles of a host cluster,
// reaches each by the access package of cluster-inventory-api, and prints the namespaces that it finds there as JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
)

const limit = 60 * time.Second

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig of the host cluster")
	namespace := flag.String("namespace", "default", "the namespace of the profiles")
	manager := flag.String("manager", "", "the cluster manager of the profiles")
	providers := access.SetupProviderFileFlag()
	flag.Parse()
	found, err := namespaces(*kubeconfig, *namespace, *manager, *providers)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		os.Exit(1)
	}
}

func namespaces(kubeconfig, namespace, manager, providers string) (map[string][]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	profiles, err := profiles(ctx, kubeconfig, namespace, manager)
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, profile := range profiles {
		// Anew for each cluster: the package adds what a profile says to the configuration that it was given.
		config, err := access.NewFromFile(providers)
		if err != nil {
			return nil, err
		}
		rest, err := config.BuildConfigFromCP(&profile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", profile.Name, err)
		}
		client, err := kubernetes.NewForConfig(rest)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", profile.Name, err)
		}
		list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", profile.Name, err)
		}
		for _, item := range list.Items {
			found[profile.Name] = append(found[profile.Name], item.Name)
		}
	}
	return found, nil
}

func profiles(ctx context.Context, kubeconfig, namespace, manager string) ([]v1alpha1.ClusterProfile, error) {
	rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(rest)
	if err != nil {
		return nil, err
	}
	resource := schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "clusterprofiles"}
	list, err := client.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: "x-k8s.io/cluster-manager=" + manager})
	if err != nil {
		return nil, err
	}
	var profiles []v1alpha1.ClusterProfile
	for _, item := range list.Items {
		var profile v1alpha1.ClusterProfile
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &profile); err != nil {
			return nil, fmt.Errorf("%s: %w", item.GetName(), err)
		}
		profiles = append(profiles, profile)
	}
	return profiles, nil
}

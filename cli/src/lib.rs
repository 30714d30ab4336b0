//! What a person types: certificates and kubeconfigs.

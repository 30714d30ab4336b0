//! End-to-end tests against real Kubernetes, and the floor plan as a test.

//! What makes a process a good daemon: configuration, telemetry, readiness, probes, structured shutdown.

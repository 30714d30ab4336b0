//! Compiles the protobuf schemas in `proto/` without a system `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let tunnel = protox::compile(["proto/tombolo/tunnel/v1/tunnel.proto"], ["proto"])?;
    prost_build::Config::new().compile_fds(tunnel)?;
    let trust = protox::compile(["proto/tombolo/trust/v1/trust.proto"], ["proto"])?;
    prost_build::Config::new().compile_fds(trust)?;
    let enrollment = protox::compile(["proto/tombolo/enrollment/v1/enrollment.proto"], ["proto"])?;
    // The same messages either way; agents need no service.
    #[cfg(feature = "grpc")]
    tonic_prost_build::configure().build_transport(false).compile_fds(enrollment)?;
    #[cfg(not(feature = "grpc"))]
    prost_build::Config::new().compile_fds(enrollment)?;
    #[cfg(feature = "grpc")]
    admin()?;
    Ok(())
}

/// The admin API, and its schema as data for gRPC reflection.
#[cfg(feature = "grpc")]
fn admin() -> Result<(), Box<dyn Error>> {
    use protox::prost::Message as _;

    let schema = protox::compile(["proto/tombolo/admin/v1/admin.proto"], ["proto"])?;
    let path = std::path::Path::new(&std::env::var("OUT_DIR")?).join("tombolo.admin.v1.fds");
    std::fs::write(path, schema.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_transport(false)
        // The other events are small.
        .boxed("tombolo.admin.v1.WatchClustersResponse.event.cluster")
        .compile_fds(schema)?;
    Ok(())
}

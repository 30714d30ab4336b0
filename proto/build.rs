//! Compiles the schemas in `proto/` without a system `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schemas = ["proto/tombolo/tunnel/v1/tunnel.proto"];
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(schemas, ["proto"])?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}

//! Generates Rust code from the `.proto` files. An installed `protoc` is not needed.

#[cfg(not(feature = "kubelet"))]
fn main() {}

#[cfg(feature = "kubelet")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let protos = [
        "proto/cri/v1/api.proto",
        "proto/deviceplugin/v1beta1/api.proto",
        "proto/dra-health/v1alpha1/api.proto",
        "proto/dra/v1/api.proto",
        "proto/dra/v1beta1/api.proto",
        "proto/pluginregistration/v1/api.proto",
        "proto/podresources/v1/api.proto",
    ];
    let descriptors = protox::compile(protos, ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}

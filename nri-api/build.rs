//! Turns the proto into Rust, without an installed `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/nri.proto"], ["proto"])?;
    prost_build::Config::new()
        .btree_map(["."])
        .bytes(["."])
        .compile_fds(descriptors)?;
    Ok(())
}

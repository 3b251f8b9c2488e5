//! The published types of the vendor's FPGA mappings, from which the resource
//! definitions in `deploy/webhook` are generated, and the related names. The only
//! module of this crate that names a vendor, because the API is the vendor's.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The prefix of the names of all resources.
pub const PREFIX: &str = "fpga.intel.com/";

/// The prefix of the variables that name the regions of a container.
pub const REGION_VARIABLE: &str = "FPGA_REGION_";

/// The prefix of the variables that name the functions of a container.
pub const FUNCTION_VARIABLE: &str = "FPGA_AFU_";

/// A function with which a port is, or can be, programmed.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[kube(
    group = "fpga.intel.com",
    version = "v2",
    kind = "AcceleratorFunction",
    namespaced,
    shortname = "af",
    status = "NoStatus",
    doc = "A function of an FPGA, under the name by which pods request it"
)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorFunctionSpec {
    /// The id of the function
    #[schemars(regex(pattern = r"^[0-9a-f]{8,40}$"))]
    pub afu_id: String,
    /// The id of the region's interface
    #[schemars(regex(pattern = r"^[0-9a-f]{8,32}$"))]
    pub interface_id: String,
    /// `af`: ports that hold the function; `region`: ports that are programmed with it
    /// when a container starts
    // No enum: one object with another mode must not stop all from being listed.
    #[schemars(regex(pattern = r"^(af|region)$"))]
    pub mode: String,
}

/// A region that a container programs by itself.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[kube(
    group = "fpga.intel.com",
    version = "v2",
    kind = "FpgaRegion",
    namespaced,
    shortname = "fpga",
    status = "NoStatus",
    doc = "A region of an FPGA, under the name by which pods request it"
)]
#[serde(rename_all = "camelCase")]
pub struct FpgaRegionSpec {
    /// The id of the region's interface
    #[schemars(regex(pattern = r"^[0-9a-f]{8,32}$"))]
    pub interface_id: String,
}

/// Nothing is reported.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
pub struct NoStatus {}

/// Returns the resource definitions of both kinds.
pub fn definitions() -> [CustomResourceDefinition; 2] {
    [AcceleratorFunction::crd(), FpgaRegion::crd()]
}

pub fn definitions_yaml() -> anyhow::Result<String> {
    let mut text = String::new();
    for definition in definitions() {
        text += "---\n";
        text += serde_saphyr::to_string(&definition)?.trim_end();
        text += "\n";
    }
    Ok(text)
}

//! Defines the API of the vendor's own FPGA webhook: its objects, and the names of resources and
//! variables. The CustomResourceDefinitions of the chart are generated from these types. No other
//! module of this crate contains a vendor's name.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The prefix of the names of FPGA resources: those that the device plugin offers, and the friendly
/// names by which pods request them.
pub const RESOURCE_PREFIX: &str = "fpga.intel.com/";

/// The prefix of the environment variables that contain the interface ids of a container's regions:
/// `FPGA_REGION_1`, `FPGA_REGION_2` and so on.
pub const REGION_VARIABLE_PREFIX: &str = "FPGA_REGION_";

/// The prefix of the environment variables that contain function ids. A container's regions are
/// programmed with these functions: `FPGA_AFU_1` is for the region of `FPGA_REGION_1`.
pub const FUNCTION_VARIABLE_PREFIX: &str = "FPGA_AFU_";

/// A function with which a port of an FPGA is, or can be, programmed.
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
    // This is not an enum, because one object with an unknown mode would make the list of all
    // objects unreadable.
    #[schemars(regex(pattern = r"^(af|region)$"))]
    pub mode: String,
}

/// A region of an FPGA that the container itself programs.
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

/// The status of an object, which is always empty.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
pub struct NoStatus {}

/// Returns the CustomResourceDefinitions of both kinds.
pub fn definitions() -> [CustomResourceDefinition; 2] {
    [AcceleratorFunction::crd(), FpgaRegion::crd()]
}

/// Returns the CustomResourceDefinitions of both kinds as a stream of YAML documents.
pub fn build_definitions_yaml() -> anyhow::Result<String> {
    let mut text = String::new();
    for definition in definitions() {
        text += "---\n";
        text += serde_saphyr::to_string(&definition)?.trim_end();
        text += "\n";
    }
    Ok(text)
}

//! Tests of the resource definitions and of the example objects.

use std::fs;

use cluster::webhook::api::{build_definitions_yaml, definitions};
use harness::manifests::{documents, repository};
use serde_json::Value;

#[test]
fn the_definitions_are_those_of_the_types() {
    let made = build_definitions_yaml().unwrap();
    let there = fs::read_to_string(repository("deploy/helm/fpga/crds.yaml")).unwrap();
    let command = "boathook-webhook crds > deploy/helm/fpga/crds.yaml";
    assert_eq!(there, made, "generate it again: {command}");
}

#[test]
fn the_definitions_are_compatible_with_the_published_ones() {
    let [function, region] = definitions().map(|one| serde_json::to_value(one).unwrap());
    let functions = "acceleratorfunctions.fpga.intel.com";
    let regions = "fpgaregions.fpga.intel.com";
    for (definition, kind, name, short) in [
        (&function, "AcceleratorFunction", functions, "af"),
        (&region, "FpgaRegion", regions, "fpga"),
    ] {
        let spec = &definition["spec"];
        assert_eq!(definition["metadata"]["name"], name);
        assert_eq!(spec["scope"], "Namespaced");
        assert_eq!(spec["names"]["kind"], kind);
        assert_eq!(spec["names"]["shortNames"][0], short);
        let versions = spec["versions"].as_array().unwrap();
        assert_eq!(versions.len(), 1);
        assert_eq!(versions[0]["name"], "v2");
        assert_eq!(versions[0]["served"], true);
    }
    let properties = |definition: &Value| {
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
    };
    let spec = properties(&function);
    assert_eq!(spec["properties"]["mode"]["pattern"], "^(af|region)$");
    assert_eq!(spec["properties"]["afuId"]["pattern"], "^[0-9a-f]{8,40}$");
    let required = serde_json::json!(["afuId", "interfaceId", "mode"]);
    assert_eq!(spec["required"], required);
    let interface = &properties(&region)["properties"]["interfaceId"];
    assert_eq!(interface["pattern"], "^[0-9a-f]{8,32}$");
}

/// Each of the vendor's published objects can be mapped.
#[test]
fn the_example_objects_can_be_mapped() {
    use cluster::webhook::api::{AcceleratorFunction, FpgaRegion};
    use cluster::webhook::mappings::{MappingObject, Mappings};
    use cluster::webhook::names::is_id;

    let text = fs::read_to_string(repository("deploy/webhook/mappings.yaml")).unwrap();
    let objects = documents(&text).unwrap();
    let mut mappings = Mappings::default();
    for object in &objects {
        let name = object["metadata"]["name"].as_str().unwrap();
        assert!(name.len() <= 63, "{name} is no name of a resource");
        let said = match object["kind"].as_str().unwrap() {
            "FpgaRegion" => {
                let region: FpgaRegion = serde_json::from_value(object.clone()).unwrap();
                MappingObject::Region(region.spec)
            }
            _ => {
                let function: AcceleratorFunction = serde_json::from_value(object.clone()).unwrap();
                assert!(is_id(&function.spec.afu_id, 40) && is_id(&function.spec.interface_id, 32));
                MappingObject::Function(function.spec)
            }
        };
        assert_eq!(mappings.set("fpga", name, said), None, "{name}");
    }
    // The mappings are those of four cards with two functions each in two modes, of one more
    // function, and of four regions.
    assert_eq!(mappings.count(), 4 * 2 * 2 + 1 + 4);
}

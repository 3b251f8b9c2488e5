use std::path::Path;

use device_class::host::RecordedHost;

use super::*;
use crate::cdi::CdiHookOptions;

fn class(name: &str, resource: &str) -> Result<DeviceClass, FileError> {
    class_with(name, resource, "")
}

fn class_with(name: &str, resource: &str, device: &str) -> Result<DeviceClass, FileError> {
    let text = format!(
        "version = 1\nresource = '{resource}'\nrequest = {{ env = 'X_{}' }}\n\
         [[discover]]\npath = '/dev/{name}{{index:number}}'\n\
         [device]\nid = '{name}-{{index}}'\nnodes = ['/dev/{name}{{index}}']\n{device}",
        name.to_uppercase()
    );
    parsed(name, &text)
}

fn parsed(name: &str, text: &str) -> Result<DeviceClass, FileError> {
    let path = format!("{name}.toml");
    DeviceClass::parse(name.to_owned().try_into().unwrap(), path.as_ref(), text)
}

fn generated(classes: Vec<Result<DeviceClass, FileError>>, host: &str) -> GeneratedSpecifications {
    generated_only(&[], classes, host)
}

fn generated_only(
    only: &[ClassName],
    classes: Vec<Result<DeviceClass, FileError>>,
    host: &str,
) -> GeneratedSpecifications {
    let generator = Generator {
        selected_classes: only,
        form: SpecificationForm {
            hook: Some(CdiHookOptions {
                program_path: Path::new("/boathook"),
                timeout_seconds: 1,
                config_path: None,
            }),
            host_root: Path::new("/"),
        },
    };
    generator.generate(classes, &RecordedHost::parse(host).unwrap())
}

fn names(generated: &GeneratedSpecifications) -> Vec<String> {
    let specifications = generated.specifications.iter();
    let names = specifications.flat_map(|specification| {
        let devices = specification.devices.iter();
        devices.map(|device| format!("{}={}", specification.kind, device.name))
    });
    names.collect()
}

/// Returns the omissions as text, each with whether it is an error.
fn omitted(generated: &GeneratedSpecifications) -> Vec<(bool, String)> {
    let omissions = generated.omissions.iter();
    let omitted = omissions.map(|one| (one.is_error(), one.to_string()));
    omitted.collect()
}

/// Returns the argument that the hook gets for each device, by the CDI name of the device.
fn grants(generated: &GeneratedSpecifications) -> BTreeMap<String, String> {
    let specifications = generated.specifications.iter();
    let grants = specifications.flat_map(|specification| {
        let devices = specification.devices.iter();
        devices.map(|device| {
            let edits = serde_json::to_value(&device.container_edits).unwrap();
            let grant = edits["hooks"][0]["args"][3].as_str().unwrap().to_owned();
            (format!("{}={}", specification.kind, device.name), grant)
        })
    });
    grants.collect()
}

/// This also applies if only one of the classes is requested. Otherwise the class that was
/// requested last would decide which devices the file describes.
#[test]
fn of_two_classes_with_one_resource_the_second_is_refused() {
    let host = "char /dev/a0 10:1\nchar /dev/b0 10:2\n";
    let of_first = ["x.com/npu=a-0", "x.com/npu=0", "x.com/npu=all"];
    let refused = [(true, "b-0 is left out".to_owned())];
    let only = |only: &[&str], host: &str| {
        let only = only
            .iter()
            .map(|class| (*class).to_owned().try_into().unwrap());
        let both = vec![class("a", "x.com/npu"), class("b", "x.com/npu")];
        generated_only(&only.collect::<Vec<_>>(), both, host)
    };
    let both = only(&[], host);
    assert_eq!(names(&both), of_first);
    assert_eq!(omitted(&both), refused);
    assert_eq!(names(&only(&["a"], host)), of_first);
    let second = only(&["b"], host);
    assert_eq!(names(&second), [""; 0]);
    assert!(second.omissions.iter().any(Omission::is_error));
    // Without devices of the first class there is nothing to mix up.
    assert_eq!(names(&only(&["b"], "char /dev/b0 10:2\n")).len(), 3);
    let apart = vec![class("a", "x.com/npu"), class("b", "x.com/b")];
    assert_eq!(names(&generated(apart, host)).len(), 6);
}

/// A container that has an unhealthy device must be able to start again.
#[test]
fn an_unhealthy_device_has_its_name_and_is_not_among_all() {
    let health = "health = [{ file = '/sys/temp{index}', below = 80 }]\n";
    let class = class_with("hot", "x.com/npu", health);
    let host = "char /dev/hot0 10:1\nfile /sys/temp0\n| 99\n\
                char /dev/hot1 10:2\nfile /sys/temp1\n| 30\n";
    let generated = generated(vec![class], host);
    let wanted = ["hot-0", "0", "hot-1", "1", "all"].map(|name| format!("x.com/npu={name}"));
    assert_eq!(names(&generated), wanted);
    assert_eq!(grants(&generated)["x.com/npu=all"], "hot=hot-1");
    let [(false, omission)] = &omitted(&generated)[..] else {
        panic!("{:?}", generated.omissions);
    };
    let wanted = "x.com/npu=all is without hot-0: unhealthy: ";
    assert!(omission.starts_with(wanted), "{omission}");
}

/// The hook would refuse such a device, and the engine could not read its node.
#[test]
fn a_device_whose_node_is_missing_is_left_out_alone() {
    let text = "version = 1\nresource = 'x.com/npu'\nrequest = { env = 'X' }\n\
                discover = [{ path = '/sys/a{index:number}' }]\n\
                device = { id = 'a-{index}', nodes = ['/dev/a{index}'] }\n";
    let host = "file /sys/a0\n| \nfile /sys/a1\n| \nchar /dev/a1 10:1\n";
    let generated = generated(vec![parsed("a", text)], host);
    let wanted = ["a-1", "1", "all"].map(|name| format!("x.com/npu={name}"));
    assert_eq!(names(&generated), wanted);
    assert_eq!(omitted(&generated), [(false, "a-0 is left out".to_owned())]);
}

/// Without this rule, `--device x.com/half=all` would give the whole devices as well.
#[test]
fn all_of_a_kind_are_not_those_of_the_classs_other_kinds() {
    let text = "version = 1\nresource = 'x.com/{model}'\nrequest = { env = 'X' }\n\
                [[discover]]\npath = '/dev/a{index:number}'\n\
                attributes = [{ name = 'model', file = '/sys/a{index}' }]\n\
                [device]\nid = 'a-{index}'\nnodes = ['/dev/a{index}']\n";
    let host: String = [(0, "whole"), (1, "half"), (2, "half")]
        .map(|(n, model)| format!("char /dev/a{n} 10:{n}\nfile /sys/a{n}\n| {model}\n"))
        .concat();
    let grants = grants(&generated(vec![parsed("a", text)], &host));
    assert_eq!(grants["x.com/half=all"], "a=a-1,a-2");
    assert_eq!(grants["x.com/whole=all"], "a=a-0");
}

#[test]
fn a_host_without_devices_and_a_class_that_cannot_be_used_are_omissions() {
    let broken = Err(FileError::whole("c.toml".as_ref(), "broken"));
    let nothing = generated(vec![class("a", "x.com/npu"), broken], "");
    assert_eq!(names(&nothing), [""; 0]);
    let found = "no class has a usable device on this host; see `boathook list`";
    let wanted = [(true, "class left out"), (false, found)];
    assert_eq!(
        omitted(&nothing),
        wanted.map(|(is_error, text)| (is_error, text.to_owned()))
    );
}

/// An engine would give another device than a variable of the same text.
#[test]
fn an_index_that_means_another_device_is_no_name() {
    let text = "version = 1\nresource = 'a.com/stick'\nrequest = { env = 'STICKS' }\n\
        [[discover]]\npath = '/sys/sticks/{port}'\n\
        attributes = [{ name = 'serial', file = 'serial' }, { name = 'seat', file = 'seat' }]\n\
        [device]\nid = 'usb-{port}'\nindex = '{seat}'\naliases = ['{serial}']\n\
        nodes = ['/dev/stick{port}']\n";
    let sticks = [
        ("1", "1", "0"),
        ("2", "b", "1"),
        ("3", "c", "2"),
        ("4", "d", "2"),
    ];
    let host = sticks.map(|(port, serial, seat)| {
        format!(
            "file /sys/sticks/{port}/serial\n| {serial}\nfile /sys/sticks/{port}/seat\n| {seat}\n\
             char /dev/stick{port} 120:{port}\n"
        )
    });
    let generated = generated(vec![parsed("stick", text)], &host.concat());
    let expected =
        ["usb-1", "0", "usb-2", "usb-3", "usb-4", "all"].map(|name| format!("a.com/stick={name}"));
    assert_eq!(names(&generated), expected);
}

use device_class::host::RecordedHost;

use super::*;

/// A check whose text has a number that changes.
const HEALTH: &str = "health = [{ file = '/sys/temp', below = 80 }]\n";

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
    let path = format!("{name}.toml");
    DeviceClass::parse(name.to_owned().try_into().unwrap(), path.as_ref(), &text)
}

fn generated(classes: Vec<Result<DeviceClass, FileError>>, host: &str) -> Generated {
    generated_only(&[], classes, host)
}

fn generated_only(
    only: &[ClassName],
    classes: Vec<Result<DeviceClass, FileError>>,
    host: &str,
) -> Generated {
    let config = Config::default();
    let generator = Generator {
        config: &config,
        only,
        form: Form::Plain,
        host_root: Path::new("/"),
    };
    generator.generate(classes, &RecordedHost::parse(host).unwrap())
}

fn names(generated: &Generated) -> Vec<String> {
    let specifications = generated.specifications.iter();
    let names = specifications.flat_map(|specification| {
        let devices = specification.devices.iter();
        devices.map(|device| format!("{}={}", specification.kind, device.name))
    });
    names.collect()
}

#[test]
fn of_two_classes_with_one_resource_the_second_is_refused() {
    let host = "char /dev/a0 10:1\nchar /dev/b0 10:2\n";
    let both = vec![class("a", "x.com/npu"), class("b", "x.com/npu")];
    let both = generated(both, host);
    assert_eq!(
        names(&both),
        ["x.com/npu=a-0", "x.com/npu=0", "x.com/npu=all"]
    );
    let [omission] = &*both.omissions else {
        panic!("{:?}", both.omissions);
    };
    assert!(omission.is_error());
    assert_eq!(omission.to_string(), "b-0 is left out");
    let apart = vec![class("a", "x.com/npu"), class("b", "x.com/b")];
    assert_eq!(names(&generated(apart, host)).len(), 6);
}

/// Otherwise a file would have the names of whichever class was named last.
#[test]
fn of_two_classes_with_one_resource_the_second_is_refused_if_named_alone() {
    let host = "char /dev/a0 10:1\nchar /dev/b0 10:2\n";
    let only = |class: &str| [ClassName::try_from(class.to_owned()).unwrap()];
    let both = || vec![class("a", "x.com/npu"), class("b", "x.com/npu")];
    let first = generated_only(&only("a"), both(), host);
    assert_eq!(
        names(&first),
        ["x.com/npu=a-0", "x.com/npu=0", "x.com/npu=all"]
    );
    let second = generated_only(&only("b"), both(), host);
    assert_eq!(names(&second), [] as [&str; 0]);
    assert!(second.omissions.iter().any(Omission::is_error));
    // Without devices of the first class there is nothing to mix up.
    let alone = generated_only(&only("b"), both(), "char /dev/b0 10:2\n");
    assert_eq!(names(&alone).len(), 3);
}

/// So that the plugin reports it once.
#[test]
fn an_unhealthy_device_has_one_key_whatever_was_measured() {
    let omission = |temperature: u32| {
        let class = class_with("hot", "x.com/npu", HEALTH);
        let host = format!("char /dev/hot0 10:1\nfile /sys/temp\n| {temperature}\n");
        let mut omissions = generated(vec![class], &host).omissions;
        omissions.remove(0)
    };
    let [first, second] = [81, 82].map(omission);
    assert!(first.to_string().contains("81"), "{first}");
    assert_ne!(first.to_string(), second.to_string());
    assert!(first.key().is_some());
    assert_eq!(first.key(), second.key());
}

#[test]
fn a_host_without_devices_and_a_class_that_cannot_be_used_are_omissions() {
    let broken = Err(FileError::whole("c.toml".as_ref(), "broken"));
    let nothing = generated(vec![class("a", "x.com/npu"), broken], "");
    assert_eq!(names(&nothing), [] as [&str; 0]);
    let omissions = nothing.omissions.iter();
    let omissions: Vec<_> = omissions
        .map(|one| (one.is_error(), one.to_string()))
        .collect();
    let nothing = "no class has a usable device on this host; see `boathook list`";
    assert_eq!(
        omissions,
        [
            (true, "class left out".to_owned()),
            (false, nothing.to_owned())
        ]
    );
}

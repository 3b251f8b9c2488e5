//! Devices of boards, which are no PCI devices and have no file with a vendor: a GPU of a Raspberry
//! Pi, the framebuffer of a firmware, and NPUs of Rockchip.

use device_class::discover;
use device_class::host::RecordedHost;
use device_class::load::ClassSource;

use crate::shipped;

/// The DRM and accel devices of a board, as drivers/gpu/drm/{v3d,tiny} and drivers/accel/rocket
/// register them.
const HOST: &str = "\
char /dev/dri/card0 226:0
char /dev/dri/card1 226:1
char /dev/dri/renderD128 226:128
char /dev/accel/accel0 261:0
link /sys/class/drm/card0 ../../devices/platform/simple-framebuffer.0/drm/card0
link /sys/devices/platform/simple-framebuffer.0/drm/card0/device ../../../simple-framebuffer.0
link /sys/devices/platform/simple-framebuffer.0/driver ../../../bus/platform/drivers/simple-framebuffer
link /sys/class/drm/card1 ../../devices/platform/axi/1002000000.v3d/drm/card1
link /sys/class/drm/renderD128 ../../devices/platform/axi/1002000000.v3d/drm/renderD128
link /sys/devices/platform/axi/1002000000.v3d/drm/card1/device ../../../1002000000.v3d
link /sys/devices/platform/axi/1002000000.v3d/drm/renderD128/device ../../../1002000000.v3d
link /sys/devices/platform/axi/1002000000.v3d/driver ../../../../bus/platform/drivers/v3d
link /sys/class/accel/accel0 ../../devices/platform/fdab0000.npu/accel/accel0
link /sys/devices/platform/fdab0000.npu/accel/accel0/device ../../../fdab0000.npu
link /sys/devices/platform/fdab0000.npu/driver ../../../bus/platform/drivers/rocket
";

/// A host without a card of a vendor has nothing to warn of.
#[test]
fn a_device_without_a_vendor_is_passed_over_in_silence() {
    let host = RecordedHost::parse(HOST).unwrap();
    let sources = shipped::sources();
    let classes = sources
        .iter()
        .map(|source: &ClassSource| source.parse().unwrap());
    let warnings = classes.flat_map(|class| {
        let name = class.name.to_string();
        let warnings = discover::find_devices(&class, &host).warnings;
        warnings
            .into_iter()
            .map(move |warning| format!("{name}: {warning}"))
    });
    let warnings: Vec<String> = warnings.collect();
    assert_eq!(warnings, [""; 0]);
}

//! Devices of boards and computers, as the kernel and udev name them.

use device_class::discover;
use device_class::host::RecordedHost;

use crate::{rows, shipped};

/// The class, the host, and the devices with their other names.
const CASES: &str = "
# A link that is named like a node is another name of the node's device.
gpio | char /dev/gpiochip0 254:0\\nlink /dev/gpiochip4 gpiochip0 | gpiochip0
i2c | char /dev/i2c-1 89:1\\nlink /dev/i2c-0 i2c-1 | i2c-1
spi | char /dev/spidev10.0 153:0\\nlink /dev/spidev9.0 spidev10.0 | spidev10.0
tpm | char /dev/tpmrm0 253:65536\\nlink /dev/tpmrm1 tpmrm0 | tpm0
sound | char /dev/snd/controlC0 116:1\\nlink /dev/snd/controlC5 controlC0 | card0
dvb | char /dev/dvb/adapter1/frontend0 212:1\\nlink /dev/dvb/adapter9 adapter1 | dvb-adapter1 dvb-1
# A card has the name of its place, which stays when the kernel numbers the cards in another order.
sound | char /dev/snd/controlC1 116:1\\nlink /sys/class/sound/card1/device ../../../devices/usb1/1-2/1-2:1.0
    \\ndir /sys/devices/usb1/1-2/1-2:1.0 | card1 1-2
sound | char /dev/snd/controlC0 116:1\\nlink /sys/class/sound/card0/device ../../../devices/pci0/0000:00:1f.3
    \\ndir /sys/devices/pci0/0000:00:1f.3 | card0 0000:00:1f.3
dvb | char /dev/dvb/adapter0/frontend0 212:1\\nlink /sys/class/dvb/dvb0.frontend0/device ../../../devices/usb1/1-3
    \\ndir /sys/devices/usb1/1-3 | dvb-1-3 dvb-0 1-3
# A camera has the name of its socket, before it is booted and afterwards, on another bus.
oak-camera | link /sys/bus/usb/devices/1-2 ../../../devices/1-2
    \\nfile /sys/devices/1-2/idVendor\\n| 03e7
    \\nfile /sys/devices/1-2/idProduct\\n| 2485
    \\nfile /sys/devices/1-2/busnum\\n| 1
    \\nfile /sys/devices/1-2/devnum\\n| 7
    \\nfile /sys/devices/1-2/speed\\n| 480
    \\nchar /dev/bus/usb/001/007 189:6
    \\nlink /sys/devices/1-2/port ../usb1-port2
    \\ndir /sys/devices/usb1-port2
    \\nlink /sys/devices/usb1-port2/peer ../usb2-port5
    \\ndir /sys/devices/usb2-port5
    | oak-usb1-port2 oak-1-2 1-2
oak-camera | link /sys/bus/usb/devices/2-5 ../../../devices/2-5
    \\nfile /sys/devices/2-5/idVendor\\n| 03e7
    \\nfile /sys/devices/2-5/idProduct\\n| f63b
    \\nfile /sys/devices/2-5/busnum\\n| 2
    \\nfile /sys/devices/2-5/devnum\\n| 7
    \\nfile /sys/devices/2-5/speed\\n| 5000
    \\nchar /dev/bus/usb/002/007 189:6
    \\nlink /sys/devices/2-5/port ../usb2-port5
    \\ndir /sys/devices/usb2-port5
    \\nlink /sys/devices/usb2-port5/peer ../usb1-port2
    \\ndir /sys/devices/usb1-port2
    | oak-usb1-port2 oak-2-5 2-5
oak-camera | link /sys/bus/usb/devices/2-5 ../../../devices/2-5
    \\nfile /sys/devices/2-5/idVendor\\n| 03e7
    \\nfile /sys/devices/2-5/idProduct\\n| f63b
    \\nfile /sys/devices/2-5/busnum\\n| 2
    \\nfile /sys/devices/2-5/devnum\\n| 7
    \\nfile /sys/devices/2-5/speed\\n| 10000
    \\nchar /dev/bus/usb/002/007 189:6
    \\nlink /sys/devices/2-5/port ../usb2-port5
    \\ndir /sys/devices/usb2-port5
    | oak-usb2-port5 oak-2-5 2-5
# A kernel that shows no ports.
oak-camera | link /sys/bus/usb/devices/1-2 ../../../devices/1-2
    \\nfile /sys/devices/1-2/idVendor\\n| 03e7
    \\nfile /sys/devices/1-2/idProduct\\n| 2485
    \\nfile /sys/devices/1-2/busnum\\n| 1
    \\nfile /sys/devices/1-2/devnum\\n| 7
    \\nfile /sys/devices/1-2/speed\\n| 480
    \\nchar /dev/bus/usb/001/007 189:6
    | oak-1-2 oak-1-2 1-2
# Drivers of the boards that people have, and of chips' makers.
can | dir /sys/bus/platform/drivers/mttcan/c310000.mttcan\\ndir /sys/bus/platform/devices/c310000.mttcan
    | can-c310000.mttcan
can | dir /sys/bus/spi/drivers/tcan4x5x/spi0.0 | can-spi0.0
can | dir /sys/bus/pci/drivers/c_can_pci/0000:02:0c.0 | can-0000:02:0c.0
serial-port | char /dev/ttyCH341USB0 169:0\\nlink /sys/class/tty/ttyCH341USB0/device ../../../devices/usb1/1-4/1-4:1.0
    \\ndir /sys/devices/usb1/1-4/1-4:1.0 | serial-1-4:1.0 ttyCH341USB0 ttyCH341USB0 1-4
";

#[test]
fn devices_have_the_names_of_their_places_and_no_link_is_a_device() {
    for [class_name, host_text, expected] in rows(CASES) {
        let host_text = host_text.replace(" \n", "\n").replace("\n ", "\n");
        let host = RecordedHost::parse(&format!("{host_text}\n")).unwrap();
        let inventory = discover::find_devices(&shipped::class(&class_name), &host);
        let devices = inventory.devices.iter().map(|device| {
            let names = [device.id.to_string()]
                .into_iter()
                .chain(device.aliases.clone());
            names.collect::<Vec<_>>().join(" ")
        });
        let devices: Vec<String> = devices.collect();
        assert_eq!(devices.join(", "), expected, "{class_name}: {host_text}");
    }
}

/// Hosts that were built without ldconfig, and a driver that left its libraries out of the cache.
#[test]
fn libraries_are_found_without_a_cache() {
    let host = "\
        file /proc/driver/nvidia/version\n\
        | NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n\
        file /proc/driver/nvidia/gpus/0000:01:00.0/information\n\
        | Model: NVIDIA A2\n| Device Minor: 0\nchar /dev/nvidia0 195:0\nchar /dev/nvidiactl 195:255\n\
        char /dev/nvidia-uvm 511:0\n";
    for directory in ["/usr/lib", "/usr/lib64", "/lib"] {
        let libraries = ["libcuda.so.1", "libnvidia-ml.so.1"].map(|soname| {
            let file = soname.replace(".so.1", ".so.550.54.15");
            format!("link {directory}/{soname} {file}\nfile {directory}/{file}\n")
        });
        let host = RecordedHost::parse(&format!("{host}dir /usr/lib\n{}", libraries.concat()));
        let class = shipped::class("nvidia-gpu");
        let capabilities = ["compute", "utility"].map(|name| name.to_owned().try_into().unwrap());
        let capabilities: std::collections::BTreeSet<_> = capabilities.into_iter().collect();
        let found = discover::look_up_class(&class, (&capabilities).into(), &host.unwrap());
        let found = found.unwrap().edits.libraries;
        for soname in ["libcuda.so.1", "libnvidia-ml.so.1"] {
            let library = found
                .iter()
                .find(|library| library.soname == soname)
                .unwrap();
            let path = format!("{directory}/{}", soname.replace(".so.1", ".so.550.54.15"));
            assert!(
                format!("{:?}", library.file).contains(&path),
                "{directory}: {library:?}"
            );
        }
    }
}

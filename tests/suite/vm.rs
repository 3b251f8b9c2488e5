//! Devices of real drivers, in a virtual machine (`make test-vm`): containers use them, on
//! Debian's kernels, with systemd, udev, AppArmor and the engines as users have them.

mod apparmor;
mod boot;
mod can;
mod case;
mod devices;
mod follow;
mod host;
mod hub;
mod late;
mod late_boot;
mod late_devices;
mod pci;
mod rdma;
mod selinux;
mod stick;
mod usb;

use harness::vm::{self, Architecture, Kernel, Payload, SecurityModule, Vm};

use case::{Case, Outcome};

/// The variable with the kernels and cases that are tested, separated by spaces. If it is unset or
/// empty, all are tested.
const KERNELS: &str = "BOATHOOK_VM_KERNELS";
const CASES: &str = "BOATHOOK_VM_CASES";
/// Debian's name of the machine's architecture; this machine's if unset or empty.
const ARCHITECTURE: &str = "BOATHOOK_VM_ARCH";

/// The hardware, beside what every machine has.
const HARDWARE: [&str; 5] = [
    usb::HARDWARE,
    stick::HARDWARE,
    can::HARDWARE,
    rdma::HARDWARE,
    pci::HARDWARE,
];

fn all_cases() -> Vec<Case> {
    [
        devices::CASES,
        apparmor::CASES,
        usb::CASES,
        follow::CASES,
        late::CASES,
        late_devices::CASES,
        hub::CASES,
        late_boot::CASES,
        can::CASES,
        rdma::CASES,
        pci::CASES,
        host::CASES,
    ]
    .concat()
}

#[test]
#[ignore = "takes minutes for each kernel: make test-vm"]
fn containers_use_devices_of_real_drivers() {
    let chosen = |variable: &str| std::env::var(variable).unwrap_or_default();
    let (kernels, cases) = (chosen(KERNELS), chosen(CASES));
    let architecture = match chosen(ARCHITECTURE).trim() {
        "" => Architecture::of_this_machine().expect("amd64 or arm64"),
        name => Architecture::named(name).unwrap(),
    };
    if let Some(reason) = vm::missing(architecture) {
        return skip::report(module_path!(), &reason);
    }
    let kernels = match kernels.trim() {
        "" => "5.10 6.1 6.12 newest",
        some => some,
    };
    let mut failed = Vec::new();
    for name in kernels.split_whitespace() {
        let kernel = Kernel::named(name, architecture).unwrap();
        println!("Linux {}", kernel.version().unwrap());
        let is_chosen =
            |case: &&Case| cases.is_empty() || cases.split(' ').any(|name| name == case.name);
        let all = [
            (SecurityModule::AppArmor, all_cases()),
            (SecurityModule::Selinux, selinux::CASES.to_vec()),
        ];
        for (security_module, cases) in &all {
            let chosen: Vec<&Case> = cases.iter().filter(is_chosen).collect();
            for (case, outcome) in run(&kernel, *security_module, &chosen) {
                if let Outcome::Failed(_) = outcome {
                    failed.push(format!("{name}: {case}: {outcome}"));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Boots a kernel, installs Boathook, and runs the cases. Without a case nothing is booted.
fn run<'a>(
    kernel: &Kernel,
    security_module: SecurityModule,
    cases: &[&'a Case],
) -> Vec<(&'a str, Outcome)> {
    if cases.is_empty() {
        return Vec::new();
    }
    let payload = Payload::new().unwrap();
    let start = std::time::Instant::now();
    let mut vm = Vm::boot(kernel, security_module, &HARDWARE.join(" "), &payload).unwrap();
    println!(
        "  {:>4} s  booted, {security_module:?}",
        start.elapsed().as_secs()
    );
    host::install(&mut vm).unwrap();
    println!("  {:>4} s  installed", start.elapsed().as_secs());
    cases
        .iter()
        .map(|case| {
            let outcome = case.run(&mut vm);
            println!(
                "  {:>4} s  {:16} {outcome}",
                start.elapsed().as_secs(),
                case.name
            );
            (case.name, outcome)
        })
        .collect()
}

use std::thread;
use std::time::{Duration, Instant};

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover::Device;
use device_class::host::RecordedHost;

use super::*;
use crate::host_inventory::health_programs::HealthPrograms;

/// Returns `count` devices of a class whose health check has the keys `keys`. Health programs are
/// enabled or disabled by `on`.
fn devices(count: usize, keys: &str, on: bool) -> Vec<Device> {
    let text = format!(
        "version = 1\nresource = 'x.com/x'\nrequest = {{ env = 'X' }}\n\
         discover = [{{ count = {count} }}]\n\
         [device]\nid = 'x-{{index}}'\nhealth = [{{ {keys} }}]\n"
    );
    let name = "x".to_owned().try_into().unwrap();
    let class = DeviceClass::parse(name, "x.toml".as_ref(), &text).unwrap();
    let config = format!("[class.x]\nhealth_programs = {on}\n");
    let config = Config::parse("config.toml".as_ref(), &config).unwrap();
    let class = config.with_settings(class, "x.toml".as_ref()).unwrap();
    device_class::discover::find_devices(&class, &RecordedHost::default()).devices
}

fn shell(script: &str, keys: &str) -> HealthCommand {
    let keys = format!("program = ['/bin/sh', '-c', '{script}'], {keys}");
    command(&devices(1, &keys, true)[0])
}

fn command(device: &Device) -> HealthCommand {
    HealthCommand::from_deferred_check(&device.deferred_checks[0], device)
        .expect("a program")
        .unwrap()
}

fn judged(script: &str, keys: &str) -> (Health, Duration) {
    let start = Instant::now();
    let command = shell(script, keys);
    let outcome = run_health_program(&command, Path::new("/"));
    (outcome.judge_health(&command), start.elapsed())
}

fn unhealthy(reason: &str) -> Health {
    let reason = reason.to_owned();
    Health::Unhealthy { reason }
}

#[test]
fn the_status_and_the_output_of_a_program_tell_the_health() {
    let sick = |reason: &str| unhealthy(&format!("/bin/sh {reason}"));
    let state = "key = 'State', equals = 'OK', advice = 'reset it'";
    let failed_15 = sick("failed (exit status: 15); reset it");
    let failed_1 = sick("failed (exit status: 1); reset it");
    let alarm = sick("printed `State: Alarm`; reset it");
    let no_line = sick("printed no line `State`; reset it");
    for (script, keys, wanted) in [
        ("exit 0", "", Health::Healthy),
        ("exit 15", "", sick("failed (exit status: 15)")),
        ("exit 15", "advice = 'reset it'", failed_15),
        ("kill -SEGV $$", "", sick("failed (signal: 11 (SIGSEGV))")),
        ("echo Id: 7; echo State : OK", state, Health::Healthy),
        ("echo State: Alarm", state, alarm),
        ("echo State: OK; exit 1", state, failed_1),
        ("echo nothing", state, no_line),
        ("echo ok", "equals = 'ok'", Health::Healthy),
        ("echo bad", "one_of = ['ok', 'fine']", sick("printed `bad`")),
        ("echo bad", "not_equals = 'bad'", sick("printed `bad`")),
        // The environment has only the variables that the shell itself adds.
        ("test -z \"$HOME$USER\"", "", Health::Healthy),
    ] {
        assert_eq!(judged(script, keys).0, wanted, "{script}");
    }
}

#[test]
fn a_program_that_takes_too_long_is_killed_with_its_group() {
    let directory = tempfile::tempdir().unwrap();
    let started = directory.path().join("started");
    let behind = format!("sleep 60 & echo $! >{}", started.display());
    let (verdict, elapsed) = judged(&format!("{behind}; sleep 60"), "timeout = 1");
    let late = "/bin/sh took longer than 1 seconds and was killed";
    assert_eq!(verdict, unhealthy(late));
    assert_ends(&started);
    // The program ends and leaves another process behind, which keeps the output open.
    let fine = format!("{behind}; echo fine");
    let (verdict, quick) = judged(&fine, "equals = 'fine', timeout = 20");
    assert_eq!(verdict, Health::Healthy);
    assert_ends(&started);
    assert!(elapsed < Duration::from_secs(15) && quick < Duration::from_secs(15));
}

/// Checks that the process whose id is in a file ends. A zombie counts as ended.
fn assert_ends(file: &Path) {
    let pid = std::fs::read_to_string(file).unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{}/status", pid.trim()));
    let lives = || status().is_ok_and(|status| !status.contains("\nState:\tZ"));
    let end = Instant::now() + Duration::from_secs(20);
    while lives() {
        assert!(Instant::now() < end, "process {pid} lives");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn output_without_end_is_dropped() {
    let (verdict, _) = judged("echo ok; exec cat /dev/zero", "timeout = 1");
    assert!(matches!(verdict, Health::Unhealthy { reason } if reason.contains("longer than 1")));
    // The program prints more than a pipe can hold, and then ends.
    let script = "echo State: OK; head -c 9000000 /dev/zero";
    let (verdict, _) = judged(script, "key = 'State', equals = 'OK'");
    assert_eq!(verdict, Health::Healthy);
}

#[test]
fn a_program_that_cannot_be_run_does_not_change_health() {
    let not_run = |program: &Path| {
        let keys = format!("program = ['{}']", program.display());
        match run_health_program(&command(&devices(1, &keys, true)[0]), Path::new("/")) {
            ProgramOutcome::NotStarted(reason) => reason,
            other => panic!("{other:?}"),
        }
    };
    let missing = not_run(Path::new("/nowhere/npu-smi"));
    let said = "/nowhere/npu-smi cannot be run: ";
    assert!(missing.starts_with(said), "{missing}");
    // Other users can change the program.
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("npu-smi");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&program, mode).unwrap();
    assert!(not_run(&program).contains("cannot be run"));
}

/// One run of a program that prints a table judges each device by its row.
#[test]
fn a_program_with_the_same_arguments_is_run_once_for_all_devices() {
    let directory = tempfile::tempdir().unwrap();
    let count = directory.path().join("count");
    let script = format!("echo x >> {}; echo 0 OK; echo 1 Alarm", count.display());
    let keys = format!(
        "program = ['/bin/sh', '-c', '{script}'], regex = '(?m)^{{index}} (.*)', equals = 'OK'"
    );
    let look = || devices(3, &keys, true);
    let (found, _) = settled(&mut HealthPrograms::default(), look, Instant::now());
    let health: Vec<String> = found.iter().map(|one| one.health.to_string()).collect();
    let no_row = "unhealthy: /bin/sh printed no match of `(?m)^2 (.*)`";
    let alarm = "unhealthy: /bin/sh printed `Alarm`";
    assert_eq!(health, ["healthy", alarm, no_row]);
    assert_eq!(std::fs::read_to_string(&count).unwrap().lines().count(), 1);
}

/// The devices with the health that the running program gives them at its end, and warnings.
fn settled(
    programs: &mut HealthPrograms,
    look: impl Fn() -> Vec<Device>,
    now: Instant,
) -> (Vec<Device>, Vec<String>) {
    programs.update_health(&mut look(), Path::new("/"), now, None);
    let deadline = Instant::now() + Duration::from_secs(20);
    while programs.is_running(now) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    let mut found = look();
    let warnings = programs.update_health(&mut found, Path::new("/"), now, None);
    (found, warnings.into_iter().collect())
}

#[test]
fn a_device_recovers_and_a_program_rests_between_its_runs() {
    let directory = tempfile::tempdir().unwrap();
    let [state, count] = ["sick", "count"].map(|name| directory.path().join(name));
    let script = format!(
        "echo x >> {}; test ! -e {}",
        count.display(),
        state.display()
    );
    let keys = format!("program = ['/bin/sh', '-c', '{script}']");
    let runs = || std::fs::read_to_string(&count).unwrap().lines().count();
    let mut programs = HealthPrograms::default();
    let start = Instant::now();
    let mut is_healthy = |seconds| {
        let now = start + Duration::from_secs(seconds);
        let (found, warnings) = settled(&mut programs, || devices(1, &keys, true), now);
        assert_eq!(warnings, [""; 0]);
        found[0].health.is_healthy()
    };
    assert!(is_healthy(0));
    std::fs::write(&state, "").unwrap();
    // The program is not due again yet.
    assert!(is_healthy(59));
    assert_eq!(runs(), 1);
    assert!(!is_healthy(61));
    std::fs::remove_file(&state).unwrap();
    assert!(!is_healthy(120));
    assert!(is_healthy(122));
    assert_eq!(runs(), 3);
}

#[test]
fn a_program_that_is_missing_is_a_warning_and_switched_off_it_is_not_run() {
    let keys = "program = ['/nowhere/npu-smi']";
    let look = || devices(1, keys, true);
    let (found, warnings) = settled(&mut HealthPrograms::default(), look, Instant::now());
    assert!(found[0].health.is_healthy());
    assert!(warnings[0].contains("/nowhere/npu-smi"), "{warnings:?}");
    assert!(devices(1, keys, false)[0].deferred_checks.is_empty());
}

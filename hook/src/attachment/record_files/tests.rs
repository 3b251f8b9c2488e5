use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::*;

fn record(id: &str, pid: u32) -> AttachmentRecord {
    let pid = i32::try_from(pid).unwrap();
    AttachmentRecord {
        id: id.to_owned(),
        pid,
        start_time: crate::container::read_start_time(pid).unwrap_or(1),
        has_all_rules: true,
        ..AttachmentRecord::default()
    }
}

#[test]
fn records_of_ended_containers_and_files_of_killed_processes_are_removed() {
    let top = tempfile::tempdir().unwrap();
    let directory = top.path().join("run/boathook").join(RECORD_DIR_NAME);
    fs::create_dir_all(&directory).unwrap();
    write_record(&directory, &record("runs", std::process::id())).unwrap();
    write_record(&directory, &record("ended", 0x3fff_ffff)).unwrap();
    let files = [".runs.lock", ".ended.lock", ".killed.lock", ".boathook-1"];
    for file in files {
        fs::write(directory.join(file), "").unwrap();
    }
    fs::write(directory.join("damaged"), "{").unwrap();
    fs::write(directory.join(".damaged.lock"), "").unwrap();
    let held_lock = ContainerLock::try_acquire(&directory, "held").unwrap();
    prune_records(top.path());
    let mut remaining_names: Vec<_> = list_entries(&directory)
        .map(|entry| entry.file_name())
        .collect();
    remaining_names.sort();
    let mut expected = vec![
        ".damaged.lock",
        ".held.lock",
        ".runs.lock",
        "damaged",
        "runs",
    ];
    assert_eq!(remaining_names, expected);
    drop(held_lock);
    prune_records(top.path());
    let mut remaining_names: Vec<_> = list_entries(&directory)
        .map(|entry| entry.file_name())
        .collect();
    remaining_names.sort();
    expected.retain(|name| *name != ".held.lock");
    assert_eq!(remaining_names, expected);
    assert_eq!(
        read_records(top.path()),
        [record("runs", std::process::id())]
    );
    assert!(find_record(top.path(), "damaged").is_err());
    assert_eq!(find_record(top.path(), "none").unwrap(), None);
}

/// Creates a host's root with a record of this process, and locks the record.
fn host_with_record() -> (tempfile::TempDir, AttachmentRecord, LockedRecord) {
    let top = tempfile::tempdir().unwrap();
    fs::create_dir(top.path().join("run")).unwrap();
    let own_record = record("runs", std::process::id());
    let locked_container = LockedRecord::open(top.path(), "runs", Duration::ZERO).unwrap();
    locked_container.save(&own_record).unwrap();
    (top, own_record, locked_container)
}

/// Calls `repeat` while another thread calls `concurrent_work` 300 times.
fn race(repeat: impl Fn(), concurrent_work: impl Fn(u32) + Sync) {
    thread::scope(|scope| {
        let concurrent_work = scope.spawn(|| (0..300).for_each(&concurrent_work));
        while !concurrent_work.is_finished() {
            repeat();
        }
    });
}

#[test]
fn a_record_that_is_written_without_the_containers_lock_is_not_pruned() {
    let (top, own_record, locked_container) = host_with_record();
    // The lock is released, and `detach` has not noticed it.
    drop(locked_container);
    let detach = |inode: u32| {
        let change = |record: &mut AttachmentRecord| record.cgroup_inode = inode.into();
        update_record_without_lock(top.path(), &own_record, change).unwrap();
        let found_record = find_record(top.path(), "runs").unwrap().unwrap();
        assert_eq!(found_record.cgroup_inode, u64::from(inode));
    };
    race(|| prune_records(top.path()), detach);
}

#[test]
fn a_detach_without_the_lock_is_not_overwritten() {
    let (top, own_record, locked_container) = host_with_record();
    let changes = AtomicU64::new(0);
    let change_container = || {
        let read_record = locked_container.read().unwrap();
        let mut record = read_record.clone().unwrap();
        record.cgroup_inode += 1;
        if locked_container
            .save_if_unchanged(read_record.as_ref(), &record)
            .unwrap()
        {
            changes.fetch_add(1, Ordering::Relaxed);
        }
    };
    let detach = |count: u32| {
        let mut previous_count = 0_u32;
        let change = |record: &mut AttachmentRecord| {
            previous_count = record
                .bundle_dir
                .to_str()
                .unwrap()
                .parse()
                .unwrap_or_default();
            record.bundle_dir = PathBuf::from((previous_count + 1).to_string());
        };
        update_record_without_lock(top.path(), &own_record, change).unwrap();
        assert_eq!(previous_count, count, "an earlier detach was overwritten");
    };
    race(change_container, detach);
    let record = locked_container.read().unwrap().unwrap();
    assert_eq!(record.cgroup_inode, changes.load(Ordering::Relaxed));
    // Another start of the container has its own record.
    let earlier_record = AttachmentRecord {
        start_time: 1,
        ..own_record
    };
    update_record_without_lock(top.path(), &earlier_record, |_| panic!("another start")).unwrap();
}

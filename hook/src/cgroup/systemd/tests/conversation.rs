//! Conversations with a scripted systemd, and a byte-by-byte test of the messages.

use std::path::Path;

use super::fake_systemd::{Answer, GUID, done, list_property, reply, serve, text_property};
use crate::cgroup::rule::DeviceKind;
use crate::cgroup::systemd::message::{MessageWriter, MethodCall};
use crate::cgroup::systemd::reply::{MAX_MESSAGE_LEN, Message, parse_length};
use crate::cgroup::systemd::*;

fn device(kind: DeviceKind, major: u32, minor: u32, access: &str) -> DeviceRule {
    DeviceRule::new(kind, major, minor, Access::parse(access).unwrap())
}

fn scope() -> Unit {
    Unit::from_path(Path::new("/system.slice/docker-1.scope")).unwrap()
}

fn host(dir: &Path) -> SystemdPaths {
    SystemdPaths {
        sockets: SystemdSockets {
            private_socket_path: dir.join("private"),
            system_bus_path: dir.join("bus"),
        },
        dev_dir: "/dev".into(),
    }
}

/// Allows null, which every `/dev` has, with a systemd that gives these answers.
fn allow_null(answers: Vec<Answer>) -> (Result<UnitOutcome, SystemdError>, Vec<Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(&dir.path().join("private"), GUID, answers);
    let mut systemd = SystemdClient::new(host(dir.path()));
    let report = systemd.allow(&scope(), &[device(DeviceKind::Character, 1, 3, "rw")]);
    drop(systemd);
    (report.map(|report| report.outcome), server.join().unwrap())
}

/// The expected bytes are those that sd-bus writes for the same call on a little-endian
/// machine.
#[test]
#[cfg(target_endian = "little")]
fn writes_calls_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let answers = vec![
        text_property("strict"),
        list_property(&[]),
        text_property("252"),
        done(),
        done(),
    ];
    let server = serve(&dir.path().join("private"), GUID, answers);
    let rules = [
        device(DeviceKind::Character, 10, 183, "rw"),
        device(DeviceKind::Block, 8, 0, "r"),
    ];
    let mut systemd = SystemdClient::new(SystemdPaths {
        dev_dir: dir.path().join("dev"),
        ..host(dir.path())
    });
    systemd.allow(&scope(), &rules).unwrap();
    let calls = server.join().unwrap();

    let get_policy = b"l\x01\x00\x015\0\0\0\x01\0\0\0\xa8\0\0\0\
        \x01\x01o\x00\x31\0\0\0/org/freedesktop/systemd1/unit/docker_2d1_2escope\0\0\0\0\0\0\0\
        \x03\x01s\x00\x03\0\0\0Get\0\0\0\0\0\
        \x02\x01s\x00\x1f\0\0\0org.freedesktop.DBus.Properties\0\
        \x06\x01s\x00\x18\0\0\0org.freedesktop.systemd1\0\0\0\0\0\0\0\0\
        \x08\x01g\x00\x02ss\0\
        \x1e\0\0\0org.freedesktop.systemd1.Scope\0\0\x0c\0\0\0DevicePolicy\0";
    assert_eq!(calls[0], get_policy);
    let set = b"l\x01\x00\x01z\0\0\0\x04\0\0\0\xad\0\0\0\
        \x01\x01o\x00\x19\0\0\0/org/freedesktop/systemd1\0\0\0\0\0\0\0\
        \x03\x01s\x00\x11\0\0\0SetUnitProperties\0\0\0\0\0\0\0\
        \x02\x01s\x00 \0\0\0org.freedesktop.systemd1.Manager\0\0\0\0\0\0\0\0\
        \x06\x01s\x00\x18\0\0\0org.freedesktop.systemd1\0\0\0\0\0\0\0\0\
        \x08\x01g\x00\x07sba(sv)\0\0\0\0\
        \x0e\0\0\0docker-1.scope\0\0\x01\0\0\0Z\0\0\0\0\0\0\0\
        \x0b\0\0\0DeviceAllow\0\x05a(ss)\0\0:\0\0\0\0\0\0\0\
        \x10\0\0\0/dev/char/10:183\0\0\0\0\x02\0\0\0rw\0\0\
        \x0e\0\0\0/dev/block/8:0\0\0\x01\0\0\0r\0";
    assert_eq!(calls[3], set);
}

#[test]
fn greets_a_bus() {
    let hello = MethodCall {
        destination: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        member: "Hello",
        signature: "",
        body: MessageWriter::default(),
    };
    let expected = b"\x01\0\0\0m\0\0\0\
        \x01\x01o\x00\x15\0\0\0/org/freedesktop/DBus\0\0\0\
        \x03\x01s\x00\x05\0\0\0Hello\0\0\0\
        \x02\x01s\x00\x14\0\0\0org.freedesktop.DBus\0\0\0\0\
        \x06\x01s\x00\x14\0\0\0org.freedesktop.DBus\0\0\0\0";
    if cfg!(target_endian = "little") {
        assert_eq!(&hello.to_message(1)[8..], expected);
    }

    // systemd's own socket rejects the client, so the client connects to the bus next.
    let dir = tempfile::tempdir().unwrap();
    let private = serve(
        &dir.path().join("private"),
        b"REJECTED EXTERNAL\r\n",
        vec![],
    );
    let mut name = MessageWriter::default();
    name.write_string(":1.7");
    let answers = vec![
        Answer::Return("s", name),
        text_property("auto"),
        list_property(&[]),
        text_property("252"),
    ];
    let connection = serve(&dir.path().join("bus"), GUID, answers);
    let mut systemd = SystemdClient::new(host(dir.path()));
    let report = systemd
        .allow(&scope(), &[device(DeviceKind::Character, 1, 3, "rw")])
        .unwrap();
    assert_eq!(report.outcome, UnitOutcome::Unrestricted);
    private.join().unwrap();
    assert_eq!(connection.join().unwrap()[0], hello.to_message(1));
}

#[test]
fn sets_what_is_missing_and_only_where_there_is_a_list() {
    use UnitOutcome::{Added, AlreadyAllowed, Unrestricted};
    for (policy, list, calls, outcome) in [
        ("auto", &[][..], 3, Unrestricted),
        ("auto", &[("/dev/fuse", "rw")], 5, Added { entry_count: 1 }),
        ("closed", &[], 5, Added { entry_count: 1 }),
        ("strict", &[("/dev/char/1:3", "rwm")], 3, AlreadyAllowed),
        (
            "strict",
            &[("/dev/char/1:3", "m")],
            5,
            Added { entry_count: 1 },
        ),
        (
            "strict",
            &[("char-*", "m"), ("/dev/block/1:3", "rw")],
            5,
            Added { entry_count: 1 },
        ),
    ] {
        let (policy, list) = (text_property(policy), list_property(list));
        let answers = vec![policy, list, text_property("252"), done(), done()];
        let (result, made) = allow_null(answers);
        assert_eq!(result.unwrap(), outcome);
        assert_eq!(made.len(), calls, "{outcome:?}");
    }
}

#[test]
fn keeps_letters_that_a_unit_had() {
    let policy = DevicePolicy {
        policy: "strict".into(),
        allow_entries: vec![("/dev/char/1:3".into(), "rm".into())],
    };
    let entries = compute_missing_entries(&policy, &[device(DeviceKind::Character, 1, 3, "rw")]);
    assert_eq!(entries, [("/dev/char/1:3".into(), "rwm".into())]);
}

#[test]
fn an_old_systemd_gets_links_where_they_can_be_made() {
    for (version, links) in [
        ("239", 1),
        ("v219", 1),
        ("systemd 240", 0),
        ("257~rc1", 0),
        ("?", 0),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let answers = vec![
            text_property("strict"),
            list_property(&[]),
            text_property(version),
            done(),
            done(),
        ];
        let server = serve(&dir.path().join("private"), GUID, answers);
        // A /dev without links, and without nodes to which a link could lead.
        let mut systemd = SystemdClient::new(SystemdPaths {
            dev_dir: dir.path().join("dev"),
            ..host(dir.path())
        });
        let report = systemd
            .allow(&scope(), &[device(DeviceKind::Character, 1, 3, "rw")])
            .unwrap();
        assert_eq!(report.links.len(), links, "{version}: {report}");
        assert_eq!(report.outcome, UnitOutcome::Added { entry_count: 1 });
        server.join().unwrap();
    }
}

#[test]
fn no_systemd_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let mut systemd = SystemdClient::new(host(dir.path()));
    let report = systemd.allow(&scope(), &[device(DeviceKind::Character, 1, 3, "r")]);
    assert_eq!(report.unwrap().outcome, UnitOutcome::NoSystemd);
}

#[test]
fn some_refusals_are_answers() {
    use UnitOutcome::{NoPermission, NoSystemd, UnknownUnit};
    for (name, outcome) in [
        ("org.freedesktop.systemd1.NoSuchUnit", UnknownUnit),
        ("org.freedesktop.DBus.Error.AccessDenied", NoPermission),
        ("org.freedesktop.DBus.Error.ServiceUnknown", NoSystemd),
    ] {
        let (result, _) = allow_null(vec![Answer::Error(name, "no")]);
        assert_eq!(result.unwrap(), outcome);
    }
}

#[test]
fn other_refusals_are_errors_with_systemds_words() {
    let name = "org.freedesktop.DBus.Error.InvalidArgs";
    let (result, _) = allow_null(vec![Answer::Error(name, "Invalid unit name")]);
    let error = result.unwrap_err();
    assert_eq!(error.unit, scope());
    assert_eq!(
        error.source.to_string(),
        format!("systemd refused: Invalid unit name ({name})")
    );
}

#[test]
fn strangers_messages_are_let_pass() {
    let mut bytes = reply(4, 0, None, "", MessageWriter::default());
    let mut value = MessageWriter::default();
    value.write_signature("s");
    value.write_string("auto");
    bytes.extend(reply(2, 99, None, "", MessageWriter::default()));
    bytes.extend(reply(2, 1, None, "v", value));
    let (result, _) = allow_null(vec![
        Answer::Bytes(bytes),
        list_property(&[]),
        text_property("252"),
    ]);
    assert_eq!(result.unwrap(), UnitOutcome::Unrestricted);
}

#[test]
fn bad_answers_are_errors() {
    let garbage = |bytes: &[u8]| vec![Answer::Bytes(bytes.to_vec())];
    let mut too_long = reply(2, 1, None, "", MessageWriter::default());
    too_long[4..8].copy_from_slice(&(MAX_MESSAGE_LEN as u32).to_ne_bytes());
    let mut huge_fields = reply(2, 1, None, "", MessageWriter::default());
    huge_fields[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
    let mut cut = reply(2, 1, None, "v", MessageWriter::default());
    cut.truncate(20);
    let other_type = vec![list_property(&[]), list_property(&[]), text_property("252")];
    let no_result = vec![done(), done(), done()];
    let closed = "systemd closed the connection";
    let malformed = "malformed reply from systemd";
    for (what, answers, expected) in [
        ("the end", vec![], closed),
        ("the end within a message", garbage(&cut), closed),
        ("no message", garbage(&[b'x'; 64]), malformed),
        ("zeros", garbage(&[0; 64]), malformed),
        ("a message that is too long", garbage(&too_long), malformed),
        ("fields that are too long", garbage(&huge_fields), malformed),
        ("another type", other_type, malformed),
        ("no result", no_result, malformed),
        ("silence", vec![Answer::Silence], "systemd does not answer"),
    ] {
        let (result, _) = allow_null(answers);
        assert_eq!(result.unwrap_err().source.to_string(), expected, "{what}");
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 16..200)) {
        let _ = parse_length(bytes[..16].try_into().unwrap());
        let _ = Message::parse(&bytes);
    }

    #[test]
    fn any_damage_is_read_or_refused(at in 0usize..80, byte: u8) {
        let mut body = MessageWriter::default();
        body.write_signature("s");
        body.write_string("strict");
        let mut message = reply(3, 1, Some("org.example.Error"), "v", body);
        if let Some(damaged) = message.get_mut(at) {
            *damaged = byte;
        }
        let _ = Message::parse(&message);
    }
}

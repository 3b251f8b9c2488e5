//! Tables of inputs and expected texts.

use std::path::PathBuf;

use super::*;

const OURS: &str = "/opt/boathook/lib";

fn show(bytes: Option<Vec<u8>>) -> Option<String> {
    bytes.map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn loaders_are_known_by_their_interpreters_names() {
    for (names, want) in [
        ("", ""),
        ("ld-linux-x86-64.so.2, libc.so.6", "glibc"),
        ("ld-linux-aarch64.so.1", "glibc"),
        ("ld-linux.so.2, ld-linux-x86-64.so.2", "glibc"),
        ("ld-linux-armhf.so.3", "glibc"),
        ("ld64.so.2", "glibc"),
        ("ld-musl-x86_64.so.1, libc.musl-x86_64.so.1", "x86_64"),
        ("ld-musl-mips-sf.so.1", "mips-sf"),
        (
            "ld-musl-x86_64.so.1, ld-musl-aarch64.so.1, ld-linux-x86-64.so.2",
            "glibc, aarch64, x86_64",
        ),
        ("ld-linux-x86-64.so.2, ld-linux-x86-64.so.2", "glibc"),
        // These names are not those of loaders, or must not become part of a path.
        ("ld-linux-x86-64.so, ld-linux-x86-64.so.2.bak", ""),
        ("ld-linux-x86-64.so., ld-linuxx.so.2", ""),
        ("xld-linux.so.2, ld-2.31.so", ""),
        ("ld-musl-.so.1, ld-musl-../x.so.1", ""),
        ("ld-musl-a b.so.1, ld-musl-x86_64", ""),
    ] {
        let names: Vec<&str> = names.split(", ").filter(|name| !name.is_empty()).collect();
        let found = find_loaders(&names).into_iter().map(|loader| match loader {
            Loader::Glibc => "glibc".to_owned(),
            Loader::Musl { arch } => arch,
        });
        let found: Vec<String> = found.collect();
        assert_eq!(found.join(", "), want, "{names:?}");
    }
}

#[test]
fn a_directory_must_be_expressible() {
    for path in [
        "/opt/boathook/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/opt/gerät",
        "/",
    ] {
        assert_eq!(LibraryDir::new(path).unwrap().as_bytes(), path.as_bytes());
    }
    for path in ["", "lib", "./lib"] {
        assert_eq!(
            LibraryDir::new(path),
            Err(LibraryDirError::RelativePath(PathBuf::from(path)))
        );
    }
    for path in [
        "/a b", "/a\tb", "/a\nb", "/a\0b", "/a:b", "/a#b", "/a=libc6", "/a\x7f",
    ] {
        assert_eq!(
            LibraryDir::new(path),
            Err(LibraryDirError::SpecialCharacter(path.into()))
        );
    }
}

#[test]
fn the_drop_in_lists_our_directories() {
    assert_eq!(
        glibc::generate_drop_in(&[directory(OURS), directory("/opt/boathook/lib32")]),
        b"# Libraries of the devices that boathook gave to this container.\n\
          /opt/boathook/lib\n\
          /opt/boathook/lib32\n"
    );
}

#[test]
fn ld_so_conf_reads_our_drop_in_first() {
    for unchanged in [
        "include /etc/ld.so.conf.d/*.conf\n",
        "include /etc/ld.so.conf.d/*.conf",
        "include ld.so.conf.d/*.conf\n",
        "include /etc/ld.so.conf.d/*\n/opt/lib\n",
        "include /etc/ld.so.conf.d/*.conf /etc/other/*.conf\n",
        "include\t  /etc/ld.so.conf.d/*.conf # all of them\n",
        "\n# A comment\n  \t# another\nhwcap 1 nosegneg\n  include ld.so.conf.d/*.conf\n/opt/lib\n",
        "include /etc/ld.so.conf.d/00-boathook.conf\n/opt/lib\n",
    ] {
        assert_eq!(
            glibc::update_ld_so_conf(Some(unchanged.as_bytes())),
            None,
            "{unchanged:?}"
        );
    }
    for preceded in [
        "",
        "\n",
        "# include /etc/ld.so.conf.d/*.conf\n",
        "/usr/local/lib\n",
        "/opt/lib\ninclude /etc/ld.so.conf.d/*.conf\n",
        "include /etc/other/*.conf\ninclude /etc/ld.so.conf.d/*.conf\n",
        "include /etc/other/*.conf /etc/ld.so.conf.d/*.conf\n",
        "include /etc/ld.so.conf.d/*.conf\r\n",
        "include/etc/ld.so.conf.d/*.conf\n",
        "Include /etc/ld.so.conf.d/*.conf\n",
        "include",
        "include \n",
        "/no/newline/at/the/end",
    ] {
        let want = format!("include /etc/ld.so.conf.d/00-boathook.conf\n{preceded}");
        assert_eq!(
            show(glibc::update_ld_so_conf(Some(preceded.as_bytes()))),
            Some(want)
        );
    }
    let absent = show(glibc::update_ld_so_conf(None));
    assert_eq!(
        absent.as_deref(),
        Some("include /etc/ld.so.conf.d/*.conf\n")
    );
}

#[test]
fn what_was_written_needs_no_more() {
    for existing in [
        None,
        Some(&b""[..]),
        Some(b"/opt/lib\n"),
        Some(b"\xff\0\xfe"),
    ] {
        let written = glibc::update_ld_so_conf(existing).unwrap();
        assert_eq!(
            glibc::update_ld_so_conf(Some(&written)),
            None,
            "{existing:?}"
        );
        let written = musl::update_path_file(existing, &[directory(OURS)]).unwrap();
        assert_eq!(
            musl::update_path_file(Some(&written), &[directory(OURS)]),
            None,
            "{existing:?}"
        );
    }
}

#[test]
fn musls_path_has_our_directory_first_and_once() {
    let of = |existing: Option<&str>| {
        let existing = existing.map(str::as_bytes);
        show(musl::update_path_file(existing, &[directory(OURS)]))
    };
    // A new file must repeat the built-in list.
    let absent = "/opt/boathook/lib\n/lib\n/usr/local/lib\n/usr/lib\n";
    assert_eq!(of(None).as_deref(), Some(absent));
    for preceded in [
        "/lib:/usr/lib\n",
        "/lib\n/usr/lib",
        "",
        "/opt/boathook/lib64\n",
        // The loader reads nothing after a NUL.
        "/lib\0\n/opt/boathook/lib\n",
    ] {
        let want = format!("/opt/boathook/lib\n{preceded}");
        assert_eq!(of(Some(preceded)), Some(want));
    }
    for unchanged in [
        "/opt/boathook/lib\n/lib\n",
        "/lib:/opt/boathook/lib:/usr/lib",
        "/lib\n/opt/boathook/lib",
    ] {
        assert_eq!(of(Some(unchanged)), None, "{unchanged:?}");
    }
}

#[test]
fn musls_path_takes_several_directories() {
    let both = [directory("/a"), directory("/b")];
    for (existing, want) in [
        (Some("/lib\n"), Some("/a\n/b\n/lib\n")),
        (Some("/a:/lib\n"), Some("/b\n/a:/lib\n")),
        (Some("/b:/a\n"), None),
    ] {
        let text = musl::update_path_file(existing.map(str::as_bytes), &both);
        assert_eq!(show(text).as_deref(), want, "{existing:?}");
    }
    assert_eq!(musl::update_path_file(None, &[]), None);
    assert_eq!(musl::config_file_path("x86_64"), "/etc/ld-musl-x86_64.path");
}

//! `boathook explain` prints the plan and changes nothing.

use harness::demo_host::{DemoHost, HostDirectory};
use serde_json::{Value, json};

use super::{assert_refused, boathook, bundle, bundle_of, code, config, succeeds};
use crate::said::assert_says;
use crate::tree::listing;

fn explain(host: &HostDirectory, env: &[(&str, &str)], json: bool) -> String {
    let bundle = bundle(env);
    let before = (listing(bundle.path()), listing(host.path()));
    let directory = bundle.path().to_str().unwrap();
    let mut arguments = vec!["explain", "--bundle", directory];
    arguments.extend(json.then_some("--json"));
    let ran = succeeds(host, &arguments);
    let after = (listing(bundle.path()), listing(host.path()));
    assert_eq!(before, after, "explain changed something");
    ran.stdout
}

#[test]
fn each_step_names_its_device_or_class() {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nresource = 'example.com/box'\n\
        request = { env = 'BOX_VISIBLE_DEVICES' }\ndiscover = [{ count = 2 }]\n\
        [device]\nid = 'box-{index}'\nindex = '{index}'\n\
        [[edits]]\nfiles = ['/etc/box.conf']\n";
    host.add_class("box", class).unwrap();
    host.add_file("/etc/box.conf", "settings").unwrap();
    let text = explain(&host, &[("BOX_VISIBLE_DEVICES", "box-1")], false);
    assert_says(&text, &["box: 1 of 2 devices", "/etc/box.conf"]);
    assert_says(&text, &["env BOX_VISIBLE_DEVICES=box-1"]);

    let plan = explain(&host, &[("BOX_VISIBLE_DEVICES", "1")], true);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let grant = &plan["grants"][0];
    assert_eq!(grant["devices"][0], "box-1");
    assert_eq!(grant["available"], 2);
    let authority = grant["authorized_by"].as_str().unwrap();
    assert!(
        authority.starts_with("the rules of this host"),
        "{authority}"
    );
    assert_eq!(plan["steps"][0]["action"], "file");
    assert_eq!(plan["steps"][0]["for"], "box");
}

#[test]
fn variables_are_explained_without_a_container() {
    let host = HostDirectory::new().unwrap();
    let variable = |value: &str| format!("{}={value}", DemoHost::VARIABLE);
    let ran = succeeds(&host, &["explain", "--env", &variable("1")]);
    let device = "npu-1";
    assert_says(
        &ran.stdout,
        &["dummy-npu: 1 of 64 devices", device, "authorized by"],
    );
    assert_eq!(ran.stderr, "");
    let json = succeeds(&host, &["explain", "--json", "--env", &variable("1")]).stdout;
    let plan: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(plan["grants"][0]["devices"][0], device);
    let nothing = succeeds(&host, &["explain", "--env", &variable("void")]);
    assert!(nothing.stdout.contains("no request"), "{nothing:?}");
    // A mistyped variable would be a container without devices.
    for (other, advice) in [
        ("OTHER=1", "`boathook list --all` shows the variables"),
        (
            "DUMY_VISIBLE_DEVICES=1",
            "did you mean DUMMY_VISIBLE_DEVICES?",
        ),
    ] {
        let refused = boathook(&host, &["explain", "--env", other], b"");
        let name = other.split('=').next().unwrap();
        let text = format!("no class of this host has the variable {name}; {advice}");
        assert_refused(&refused, code::REQUEST, &[&text]);
    }
    let absent = boathook(&host, &["explain", "--env", &variable("64")], b"");
    assert_refused(&absent, code::REQUEST, &["no device `64`"]);
}

/// Of the classes that have the same cards, the one that is offered is meant.
#[test]
fn a_variable_that_chooses_among_devices_leads_to_the_one_that_requests_them() {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nresource = 'cards.example/card'\n[request]\nenv = 'CARDS'\n\
         container_index_env = ['CARD_NUMBERS']\n[[discover]]\npath = '/dev/card{n:number}'\n\
         [device]\nid = 'card-{n}'\n";
    host.add_class("card", class).unwrap();
    let all = "extends = 'card'\nenabled = false\nresource = 'cards.example/all'\n\
         [request]\nenv = 'ALL_CARDS'\n";
    host.add_class("all-cards", all).unwrap();
    let refused = |advice: &str| {
        let ran = boathook(&host, &["explain", "--env", "CARD_NUMBERS=0"], b"");
        assert_refused(&ran, code::REQUEST, &[advice]);
    };
    refused("`boathook list --all` shows the variables");
    host.add_file("/dev/card0", "").unwrap();
    refused("chooses among the devices that a container has; CARDS of class card requests them");
}

/// libgbm of an image of another distribution looks for its backends in another directory.
#[test]
fn a_module_is_beside_the_libraries_of_the_image() {
    let host = HostDirectory::new().unwrap();
    let module = "/usr/lib/x86_64-linux-gnu/gbm/card_gbm.so";
    let class = format!(
        "version = 1\nresource = 'example.com/card'\nrequest = {{ env = 'CARDS' }}\n\
         discover = [{{ count = 1 }}]\ndevice = {{ id = 'card-{{index}}' }}\n\
         [[edits]]\nfiles = [{{ path = '{module}', beside_image_libraries = true }}]\n"
    );
    host.add_class("card", &class).unwrap();
    host.add_file(module, "").unwrap();
    for (directory, place) in [
        (Some("usr/lib64"), "/usr/lib64/gbm/card_gbm.so"),
        (Some("usr/lib"), "/usr/lib/gbm/card_gbm.so"),
        // The image is not mounted.
        (None, module),
    ] {
        let bundle = bundle(&[("CARDS", "all")]);
        let rootfs = bundle.path().join("rootfs");
        std::fs::create_dir_all(&rootfs).unwrap();
        if let Some(directory) = directory {
            std::fs::create_dir_all(rootfs.join(directory)).unwrap();
            std::fs::write(rootfs.join(directory).join("libc.so.6"), "").unwrap();
        }
        let arguments = ["explain", "--bundle", bundle.path().to_str().unwrap()];
        let text = succeeds(&host, &arguments).stdout;
        assert_says(&text, &[&format!("card  {place} ")]);
    }
}

#[test]
fn a_container_without_a_request_is_reported() {
    let host = HostDirectory::new().unwrap();
    for env in [
        vec![],
        vec![(DemoHost::VARIABLE, "void")],
        vec![(DemoHost::VARIABLE, "")],
    ] {
        let text = explain(&host, &env, false);
        assert!(text.contains("no request"), "{env:?}: {text}");
        let plan: Value = serde_json::from_str(&explain(&host, &env, true)).unwrap();
        assert_eq!(plan["steps"].as_array().map(Vec::len), Some(0), "{env:?}");
    }
}

/// It shows what a hook would do, also where none is called: the first mistake of new
/// users would be hidden.
#[test]
fn a_container_without_the_hook_is_reported() {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nresource = 'example.com/box'\nrequest = { env = 'BOXES' }\n\
        [[discover]]\ncount = 1\n[device]\nid = 'box'\nenv = { BOX_KEY = 'key' }\n";
    host.add_class("box", class).unwrap();
    let no_hook = "config.json has no boathook hook; `boathook doctor` shows the fix";
    let no_key = "config.json does not set BOX_KEY, and a hook cannot: use boathook-runtime or CDI, \
        or set it yourself";
    for (has_hook, env, expected) in [
        (false, "DUMMY_VISIBLE_DEVICES=0", Some(no_hook)),
        (true, "DUMMY_VISIBLE_DEVICES=0", None),
        (false, "PATH=/bin", None),
        (true, "BOXES=box", Some(no_key)),
    ] {
        let mut config = config(&[env]);
        if has_hook {
            let path = "/opt/boathook/current/bin/boathook-hook";
            config["hooks"] = json!({ "prestart": [{ "path": path }] });
        }
        let bundle = bundle_of(&config);
        let directory = bundle.path().to_str().unwrap();
        let ran = succeeds(&host, &["explain", "--bundle", directory]);
        let expected = expected.map(|it| format!("boathook: warning: {it}\n"));
        assert_eq!(ran.stderr, expected.unwrap_or_default(), "{env}");
    }
}

/// The same refusals as the hook's.
#[test]
fn what_the_hook_would_refuse_is_refused() {
    let host = HostDirectory::new().unwrap();
    let bundle = bundle(&[(DemoHost::VARIABLE, "npu-64")]);
    let directory = bundle.path().to_str().unwrap();
    let ran = boathook(&host, &["explain", "--bundle", directory], b"");
    assert_refused(&ran, code::REQUEST, &["npu-64"]);
    let ran = boathook(&host, &["explain", "--bundle", "/nowhere"], b"");
    let words = ["/nowhere/config.json", "in each container's bundle"];
    assert_refused(&ran, code::SPEC, &words);
}

/// A capability is the decision of whoever starts the container, so the plan only names it.
#[test]
fn a_capability_that_the_device_needs_is_named() {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nresource = 'example.com/box'\nrequest = { env = 'BOXES' }\n\
        needs = [{ capability = 'CAP_NET_ADMIN', needed_for = 'setting up' }]\n\
        [[discover]]\ncount = 1\n[device]\nid = 'box'\n";
    host.add_class("box", class).unwrap();
    for (bounding, state, line, warning) in [
        (
            &["CAP_CHOWN"][..],
            "lacking",
            "CAP_NET_ADMIN for setting up, which the container lacks",
            Some("add CAP_NET_ADMIN to bounding, permitted and effective"),
        ),
        (
            &["CAP_NET_ADMIN"][..],
            "available",
            "CAP_NET_ADMIN for setting up, which the container has",
            None,
        ),
    ] {
        let mut config = config(&["BOXES=box"]);
        config["process"]["capabilities"] = json!({ "bounding": bounding });
        let bundle = bundle_of(&config);
        let directory = bundle.path().to_str().unwrap();
        let bundle = ["--bundle", directory];
        let text = succeeds(&host, &[&["explain"], &bundle[..]].concat()).stdout;
        assert_says(&text, &[line]);
        let plan = succeeds(&host, &[&["explain", "--json"], &bundle[..]].concat()).stdout;
        let plan: Value = serde_json::from_str(&plan).unwrap();
        assert_eq!(plan["needs"][0]["capability"], "CAP_NET_ADMIN");
        assert_eq!(plan["needs"][0]["in_container"]["state"], state);
        let examined = boathook(&host, &[&["doctor"], &bundle[..]].concat(), b"").stdout;
        assert_eq!(
            examined.contains("capability"),
            warning.is_some(),
            "{examined}"
        );
        assert_says(&examined, warning.as_slice());
    }
    let without = succeeds(&host, &["doctor", "--env", "BOXES=box"]).stdout;
    assert_says(
        &without,
        &[
            "note",
            "programs that use box need CAP_NET_ADMIN for setting up",
        ],
    );
}

/// The loader searches the directories of LD_LIBRARY_PATH first. The hook covers files in those with
/// an absolute path, so only the others are ambiguous.
#[test]
fn an_ambiguous_library_path_is_a_warning() {
    let host = DemoHost::new().unwrap();
    let many = (0..20).map(|number| format!("/opt/{number}"));
    let many = many.collect::<Vec<_>>().join(":");
    for (value, warning) in [
        ("/usr/local/lib:/opt/lib", None),
        ("/opt/lib:", None),
        (
            "lib:/opt/lib",
            Some("LD_LIBRARY_PATH has lib: programs search there first"),
        ),
        (
            "/opt/lib:$ORIGIN/../lib",
            Some("LD_LIBRARY_PATH has $ORIGIN/../lib: programs search there first"),
        ),
        (
            many.as_str(),
            Some("LD_LIBRARY_PATH has 4 more than 16 directories"),
        ),
    ] {
        let env = [(DemoHost::VARIABLE, "1"), ("LD_LIBRARY_PATH", value)];
        let text = explain(&host, &env, false);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(warning.unwrap_or("npu-1")), "{value}: {text}");
        assert_eq!(
            text.contains("LD_LIBRARY_PATH has"),
            warning.is_some(),
            "{text}"
        );
        let plan: Value = serde_json::from_str(&explain(&host, &env, true)).unwrap();
        let warnings = plan["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), usize::from(warning.is_some()), "{plan}");
    }
}

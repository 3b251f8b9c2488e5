//! The documents, manual pages and completions of a release.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use harness::captured::Captured;

use super::{Release, printed, walk};

#[test]
fn documents_and_completions_lead_somewhere() {
    let release = Release::new();
    let top = release.unpacked();
    let mut links = 0;
    for file in walk(&top).iter().filter(|file| file.ends_with(".md")) {
        let text = fs::read_to_string(top.join(file)).unwrap();
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap();
            if target.contains("://") || target.is_empty() {
                continue;
            }
            links += 1;
            let directory = top.join(file).parent().unwrap().join(target);
            assert!(directory.exists(), "{file}: {target}");
        }
    }
    assert!(links > 50, "{links}");

    let of_bash = |program: &str| {
        let file = format!("share/bash-completion/completions/{program}");
        fs::read_to_string(top.join(file)).unwrap()
    };
    let hook = of_bash("boathook");
    assert!(!hook.contains("--deadline"));
    assert!(hook.contains("nvidia-gpu"), "{hook}");
    assert!(of_bash("boathook-init").contains("containerd"));
    for (page, key) in [
        ("boathook.toml", "trusted_pods"),
        ("boathook-class", "discover"),
    ] {
        let page = top.join(format!("share/man/man5/{page}.5"));
        match fs::read_to_string(&page) {
            Ok(text) => assert!(text.contains(key), "{text}"),
            Err(_) => skip::report("manual pages of formats", "needs go-md2man"),
        }
    }
}

/// Pages about formats have tables in the documents, which would be wider than a terminal.
#[test]
fn manual_pages_are_clean_and_fit_a_terminal() {
    let release = Release::new();
    let man = release.unpacked().join("share/man");
    let pages = walk(&man);
    assert!(pages.len() > 25, "{pages:?}");
    for page in pages.iter().filter(|page| page.starts_with("man5/")) {
        let text = fs::read_to_string(man.join(page)).unwrap();
        assert!(
            text.contains("\n.TP\n\\fB") && !text.contains("\n.TS"),
            "{page}"
        );
    }
    let mut lint = Command::new("mandoc");
    lint.args(["-T", "lint", "-W", "style"]);
    let Ok(ran) = Captured::run(lint.args(&pages).current_dir(&man)) else {
        return skip::report("manual pages: lint", "needs mandoc");
    };
    // The lines of the text are paragraphs of the documents and of the help, which nobody edits here.
    let findings = ran.stdout.lines();
    let findings = findings.filter(|line| !line.contains("input text line longer than 80 bytes"));
    assert_eq!(findings.collect::<Vec<_>>(), [""; 0]);
    for page in pages {
        assert_fits_a_terminal(&man.join(page));
    }
}

/// Lines that are wider than a terminal of 80 columns are those of examples, which a reader copies.
fn assert_fits_a_terminal(page: &Path) {
    // Letters and digits alone, because a page writes other characters in several ways.
    let plain = |line: &str| {
        let characters = line.chars().filter(char::is_ascii_alphanumeric);
        characters.collect::<String>()
    };
    let source = fs::read_to_string(page).unwrap();
    let examples = source.split("\n.nf\n").skip(1);
    let examples = examples.flat_map(|text| text.split("\n.fi").next().unwrap().lines());
    let examples: Vec<String> = examples.map(plain).collect();
    let mut render = Command::new("mandoc");
    let rendered = printed(render.args(["-T", "utf8", "-O", "width=80"]).arg(page));
    for line in rendered.lines() {
        // A bold or underlined character is preceded by another one and a backspace.
        let mut columns: Vec<char> = Vec::new();
        for character in line.chars() {
            match character {
                '\u{8}' => drop(columns.pop()),
                _ => columns.push(character),
            }
        }
        let line = String::from_iter(&columns);
        let is_example = examples.contains(&plain(&line));
        assert!(
            columns.len() <= 80 || is_example,
            "{}: {line}",
            page.display()
        );
    }
}

/// The devices are those that `boathook list` prints; here a script in its place.
#[test]
fn completions_know_the_devices_of_the_host() {
    const COMPLETE: &str = r#"
        source "$0"; COMP_LINE=$1; COMP_POINT=${#1}; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        last=${COMP_WORDS[COMP_CWORD]}
        _boathook_and_devices boathook "${last#=}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s ' "${COMPREPLY[@]}""#;
    let release = Release::new();
    let share = release.unpacked().join("share");
    let bin = release.path("stand-in");
    fs::create_dir(&bin).unwrap();
    let table = "CLASS DEVICE INDEX\nchip a:1 0\nchip a:2 1\nport tty 0\n\nno devices of x\n";
    let table = table.replace('\n', "\\n");
    let script = format!(
        "#!/bin/sh\ncase $* in *containers) echo web; echo db;; *) printf '{table}';; esac\n"
    );
    fs::write(bin.join("boathook"), script).unwrap();
    fs::set_permissions(bin.join("boathook"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let complete = |line: &str, words: &[&str]| {
        let mut bash = Command::new("bash");
        let file = share.join("bash-completion/completions/boathook");
        bash.args(["-c", COMPLETE]).arg(file).arg(line).args(words);
        printed(bash.env("PATH", &path)).trim_end().to_owned()
    };
    for (line, words, offered) in [
        (
            "boathook attach web ",
            &["boathook", "attach", "web", ""][..],
            "chip=a:1 chip=a:2 port=tty",
        ),
        (
            "boathook detach web ch",
            &["boathook", "detach", "web", "ch"],
            "chip=a:1 chip=a:2",
        ),
        // bash has split the word.
        (
            "boathook attach web chip=",
            &["boathook", "attach", "web", "chip", "="],
            "a:1 a:2",
        ),
        (
            "boathook attach web chip=a:2",
            &["boathook", "attach", "web", "chip", "=", "a", ":", "2"],
            "2",
        ),
        (
            "boathook attach web --d",
            &["boathook", "attach", "web", "--d"],
            "--dry-run",
        ),
        ("boathook doctor ", &["boathook", "doctor", ""], "web db"),
        ("boathook attach w", &["boathook", "attach", "w"], "web"),
        (
            "boathook log --container d",
            &["boathook", "log", "--container", "d"],
            "db",
        ),
        (
            "boathook list nvidia-t",
            &["boathook", "list", "nvidia-t"],
            "nvidia-tegra",
        ),
    ] {
        assert_eq!(complete(line, words), offered, "{line}");
    }
    for (file, text) in [
        (
            "zsh/site-functions/_boathook",
            "dummy-npu=3:_boathook_devices'",
        ),
        (
            "fish/vendor_completions.d/boathook.fish",
            "(__boathook_devices)",
        ),
        (
            "fish/vendor_completions.d/boathook.fish",
            "subcommand list\" -f -a \"amd-gpu",
        ),
        (
            "fish/vendor_completions.d/boathook-plugin.fish",
            "subcommand list\" -f -a \"amd-gpu",
        ),
    ] {
        let script = fs::read_to_string(share.join(file)).unwrap();
        assert!(script.contains(text), "{file}: no {text}");
    }
}

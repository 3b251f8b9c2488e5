//! Finds the directories in which Boathook is installed on a host. If /opt or /etc is read-only,
//! Boathook is installed in other directories, and a file names them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::read_optional_text;
use crate::strict_toml::{self, FileError};

/// The path of the file that names the directories of an installation. The file exists only if they
/// are not the default directories. It is in /var/lib because this directory is writable on every
/// distribution.
pub const DIRECTORIES_FILE_PATH: &str = "/var/lib/boathook.toml";

/// The directories of an installation, as absolute paths on the host, such as `/opt/boathook` and
/// `/etc/boathook`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct InstalledDirectories {
    /// The directory with the programs and the class files of Boathook, and with the records that
    /// the installer keeps. Default: `/opt/boathook`.
    #[serde(rename = "programs")]
    pub programs_dir: PathBuf,
    /// The directory with config.toml and the administrator's class files. Default:
    /// `/etc/boathook`.
    #[serde(rename = "configuration")]
    pub config_dir: PathBuf,
}

impl Default for InstalledDirectories {
    fn default() -> Self {
        Self {
            programs_dir: "/opt/boathook".into(),
            config_dir: "/etc/boathook".into(),
        }
    }
}

impl InstalledDirectories {
    /// Reads the file [`DIRECTORIES_FILE_PATH`] below `host_root`. Returns the default directories
    /// if the file does not exist, or if the user of this process has no access to the file's
    /// directory.
    ///
    /// # Errors
    /// The file cannot be read, has a mistake, or users other than root can change it.
    pub fn find(host_root: &Path) -> Result<Self, FileError> {
        let path = host_root.join(DIRECTORIES_FILE_PATH.trim_start_matches('/'));
        match read_optional_text(&path) {
            Ok(Some(text)) => Self::parse(&path, &text),
            Ok(None) => Ok(Self::default()),
            Err(error) => match fs::metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    Ok(Self::default())
                }
                _ => Err(error),
            },
        }
    }

    /// Parses the text of the file at `path`.
    ///
    /// # Errors
    /// The text is not valid TOML, or does not name all directories.
    pub fn parse(path: &Path, text: &str) -> Result<Self, FileError> {
        strict_toml::parse(path, text)
    }

    /// Returns the path of the symbolic link to the directory of the version in use. An upgrade
    /// replaces the link.
    pub fn current_link_path(&self) -> PathBuf {
        self.programs_dir.join("current")
    }

    /// Returns the path by which container engines call one of Boathook's programs. The path
    /// contains the link `current`, so that it stays the same after an upgrade.
    pub fn program_path(&self, name: &str) -> PathBuf {
        self.programs_dir.join("current/bin").join(name)
    }

    /// Returns the path by which container engines call the hook, by default
    /// `/opt/boathook/current/bin/boathook-hook`.
    pub fn hook_path(&self) -> PathBuf {
        self.program_path("boathook-hook")
    }

    /// Returns the directory with the records of the installer. A later removal of Boathook needs
    /// these records.
    pub fn state_dir(&self) -> PathBuf {
        self.programs_dir.join("state")
    }

    /// Returns the path of a copy of the configuration that was made at installation. If the
    /// configuration in use differs from the copy, an administrator has changed it.
    pub fn installed_config_path(&self) -> PathBuf {
        self.programs_dir.join("state/config.toml")
    }

    /// Returns the path of the configuration in use, by default `/etc/boathook/config.toml`.
    pub fn config_path(&self) -> PathBuf {
        self.config_dir.join("config.toml")
    }

    /// Returns the directory of the administrator's class files, by default
    /// `/etc/boathook/classes.d`.
    pub fn admin_classes_dir(&self) -> PathBuf {
        self.config_dir.join("classes.d")
    }

    /// Returns the default value of the key `classes` in config.toml: the directories of class
    /// files. A file in a later directory replaces one with the same name in an earlier directory.
    pub fn class_dirs(&self) -> [PathBuf; 3] {
        [
            self.programs_dir.join("current/classes.d"),
            "/usr/share/boathook/classes.d".into(),
            self.admin_classes_dir(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use nix::unistd::geteuid;

    use super::*;

    const HOST: &str = "BOATHOOK_TEST_HOST";

    /// Makes a host whose directory `name` has this mode, with the file if it `has_file`.
    fn host_with_mode(name: &str, mode: u32, has_file: bool) -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        fs::create_dir_all(host.path().join("var/lib")).unwrap();
        if has_file {
            let text = "programs = \"/data/boathook\"\nconfiguration = \"/etc/boathook\"\n";
            fs::write(host.path().join(&DIRECTORIES_FILE_PATH[1..]), text).unwrap();
        }
        for (name, mode) in [
            ("", 0o755),
            ("var", 0o755),
            ("var/lib", 0o755),
            (name, mode),
        ] {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(host.path().join(name), mode).unwrap();
        }
        host
    }

    /// Only a file that exists can be refused.
    #[test]
    fn directories_that_others_can_change_matter_only_with_the_file() {
        for (name, mode) in [("var", 0o775), ("var/lib", 0o777)] {
            let usual = InstalledDirectories::find(host_with_mode(name, mode, false).path());
            assert_eq!(usual.unwrap(), InstalledDirectories::default(), "{name}");
            let refused = InstalledDirectories::find(host_with_mode(name, mode, true).path());
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("others could change"), "{refused}");
        }
        if !geteuid().is_root() {
            return skip::report("owners of /var", "only root can give files away");
        }
        for has_file in [false, true] {
            let host = host_with_mode("var", 0o755, has_file);
            chown(host.path().join("var"), Some(4711), None).unwrap();
            assert_eq!(InstalledDirectories::find(host.path()).is_err(), has_file);
        }
    }

    /// The test starts itself as another user, for whom `HOST` is set.
    #[test]
    fn a_user_who_may_not_look_into_the_directory_has_the_usual_ones() {
        if let Some(host) = env::var_os(HOST) {
            let found = InstalledDirectories::find(Path::new(&host)).unwrap();
            assert_eq!(found, InstalledDirectories::default());
            return;
        }
        const SKIPPED: &str = "directories for a user";
        if !geteuid().is_root() {
            return skip::report(SKIPPED, "only root can become another user");
        }
        let host = host_with_mode("var/lib", 0o750, true);
        let name = "config::directories::tests::\
                    a_user_who_may_not_look_into_the_directory_has_the_usual_ones";
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", name]).env(HOST, host.path());
        let Ok(output) = command.uid(65534).gid(65534).current_dir("/").output() else {
            return skip::report(SKIPPED, "another user cannot execute this program");
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("1 passed"), "{output:?}");
    }

    #[test]
    fn the_directories_of_a_host_are_those_that_its_file_names() {
        let host = tempfile::tempdir().unwrap();
        let file = host.path().join(&DIRECTORIES_FILE_PATH[1..]);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let find = || InstalledDirectories::find(host.path());
        assert_eq!(find().unwrap(), InstalledDirectories::default());
        let text =
            "programs = \"/home/kubernetes/bin/boathook\"\nconfiguration = \"/data/boathook\"\n";
        fs::write(&file, text).unwrap();
        let found = find().unwrap();
        let hook = "/home/kubernetes/bin/boathook/current/bin/boathook-hook";
        assert_eq!(found.hook_path(), Path::new(hook));
        assert_eq!(found.config_path(), Path::new("/data/boathook/config.toml"));
        for mistake in ["programs = \"/a/boathook\"\n", "x = 1\n", "programs"] {
            fs::write(&file, mistake).unwrap();
            assert!(find().is_err(), "{mistake}");
        }
    }
}

//! The SELinux module of `deploy/selinux`, compiled.

use std::fs;
use std::process::Command;

use harness::binaries::source_tree;
use harness::captured::Captured;

/// What container-selinux and the base policy declare, as far as the module names it.
const BASE: &str = "(handleunknown allow) (mls false) (sid kernel) (sidorder (kernel))
(class dir (getattr search open read watch write add_name remove_name create rmdir setattr rename reparent lock))
(class file (getattr open read map write append create unlink rename setattr lock))
(class lnk_file (getattr read create unlink rename))
(class chr_file (getattr)) (class blk_file (getattr)) (class sock_file (getattr write))
(class unix_stream_socket (connectto)) (class capability (chown dac_override fowner))
(classorder (dir file lnk_file chr_file blk_file sock_file unix_stream_socket capability))
(user system_u) (role system_r) (userrole system_u system_r)
(sensitivity s0) (sensitivityorder (s0)) (category c0) (categoryorder (c0)) (sensitivitycategory s0 (c0))
(level low (s0)) (levelrange range (low low)) (userlevel system_u low) (userrange system_u range)
(typeattribute domain) (typeattribute container_domain) (typeattribute svirt_sandbox_domain)
(typeattribute mcs_constrained_type) (typeattribute container_net_domain) (typeattribute device_node)
(type kernel_t) (type container_var_lib_t) (type kubelet_var_lib_t) (type kubelet_t)
(type container_var_run_t) (type usr_t) (type etc_t) (type var_run_t) (type device_t) (type bin_t)
(roletype system_r kernel_t) (typeattributeset device_node (device_t))
(sidcontext kernel (system_u system_r kernel_t range)) (allow kernel_t usr_t (file (read)))
";

#[test]
fn the_module_compiles() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("base.cil");
    fs::write(&base, BASE).unwrap();
    let compiled = Captured::run(
        Command::new("secilc")
            .args(["--output=/dev/null", "--filecontext=/dev/null"])
            .arg(base)
            .arg(source_tree().join("deploy/selinux/boathook.cil")),
    );
    match compiled {
        Ok(ran) => drop(ran.success().unwrap()),
        Err(error) => skip::report("the SELinux module", &format!("needs secilc: {error}")),
    }
}

//! Two classes whose devices have the same id, in one container: what is done for one is not
//! done to the other.

use harness::demo_host::DemoHost;
use harness::probe::Access;
use harness::runc::Container;

use super::follow::{Follower, assert_follows, followed, may_open, with_device};
use super::{done, reads};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    the_other_is_not_taken_with_one,
    the_other_stays_when_one_is_unplugged,
);

const TWIN: &str = "/dev/twin3";
const OTHER: usize = DemoHost::UNLIKE;

/// A host whose class `twins` has a device `npu-3`, too, which is not followed.
fn with_twin() -> DemoHost {
    let host = followed();
    let class = "version = 1\nresource = 'example.com/twin'\nrequest = { env = 'TWINS' }\n\
        discover = [{ path = '/dev/twin{index:number}' }]\n\
        [device]\nid = 'npu-{index}'\nindex = '{index}'\nnodes = ['/dev/twin{index}']\n";
    host.add_class("twins", class).unwrap();
    let node = host.root().join(TWIN.trim_start_matches('/'));
    host.device(OTHER).make_node(&node).unwrap();
    host
}

fn has_twin(container: &Container<'_>) -> bool {
    container.look(TWIN).unwrap().read == Access::Granted
}

fn the_other_is_not_taken_with_one(lab: &Lab) {
    let host = with_twin();
    let bundle = with_device(&host, "npu-3").build().unwrap();
    let running = lab.start(&bundle);
    done(lab, &host, &["attach", bundle.id(), "twins=npu-3"]);
    assert!(has_twin(&running));
    done(lab, &host, &["detach", bundle.id(), "twins=npu-3"]);
    assert!(!has_twin(&running));
    assert!(!may_open(&running, &host, OTHER));
    assert_eq!(reads(&running, 3), Some(Access::Granted));
}

fn the_other_stays_when_one_is_unplugged(lab: &Lab) {
    let host = with_twin();
    let bundle = with_device(&host, "npu-3").build().unwrap();
    let running = lab.start(&bundle);
    done(lab, &host, &["attach", bundle.id(), "twins=npu-3"]);
    let _follower = Follower::start(lab, &host);
    let used = || done(lab, &host, &["list", "--used"]);
    // The table ends at the first empty line.
    let count = |text: &str| {
        let rows = text.lines().take_while(|line| !line.is_empty());
        rows.filter(|line| line.contains("npu-3 ")).count()
    };
    assert_eq!(count(&used()), 2, "{}", used());
    for _ in 0..2 {
        assert_follows(&running, &host, 3, &[None]);
        assert!(has_twin(&running));
        let used = used();
        assert_eq!(count(&used), 1, "{used}");
        assert!(used.contains("twins"), "{used}");
        assert_follows(&running, &host, 3, &[Some(3)]);
    }
    assert!(has_twin(&running));
}

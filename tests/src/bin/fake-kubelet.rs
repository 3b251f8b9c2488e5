//! The fake kubelet as a program: prints events as JSON lines on stdout,
//! and executes commands from JSON lines on stdin. Ends at `{"quit":{}}` or when stdin
//! ends.
//!
//! ```text
//! {"allocate":{"resource":"dummy.com/npu","ids":["npu-3"],"pod_uid":"…","container":"main"}}
//! {"allocate":{"resource":"dummy.com/npu","count":2}} {"register":{"refuse":"no"}}
//! {"register":{"hang":{}}}   {"register":{}} {"restart":{}}   {"stop":{}}
//! {"quit":{}}
//! ```

use std::io::{BufRead, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use harness::kubelet::{Allocation, Config, Event, EventLog, FakeKubelet, RegisterFault};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    Allocate(Allocation),
    Register(Register),
    Restart {},
    Stop {},
    Quit {},
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Register {
    refuse: Option<String>,
    hang: Option<Empty>,
}

#[derive(Deserialize)]
struct Empty {}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [option, dir] = arguments.as_slice() else {
        bail!("usage: fake-kubelet --dir DIR")
    };
    if option != "--dir" {
        bail!("usage: fake-kubelet --dir DIR");
    }
    let mut kubelet = FakeKubelet::start(Config::new(&PathBuf::from(dir)))
        .with_context(|| format!("a kubelet cannot start in {dir}"))?;
    let log = kubelet.log().clone();
    std::thread::spawn(move || print(&log));
    for line in std::io::stdin().lock().lines() {
        match serde_json::from_str(&line?) {
            Ok(Order::Quit {}) => break,
            Ok(order) => obey(&mut kubelet, order),
            Err(error) => kubelet.log().push(Event::Error {
                message: error.to_string(),
            }),
        }
    }
    Ok(())
}

fn obey(kubelet: &mut FakeKubelet, order: Order) {
    let done = match order {
        Order::Allocate(allocation) => allocate(kubelet, allocation),
        Order::Register(Register {
            refuse: Some(reason),
            ..
        }) => {
            kubelet.set_register_fault(RegisterFault::Refuse(reason));
            Ok(())
        }
        Order::Register(Register { hang, .. }) => {
            let fault = hang.map_or(RegisterFault::None, |Empty {}| RegisterFault::Hang);
            kubelet.set_register_fault(fault);
            Ok(())
        }
        Order::Restart {} => kubelet.resume().map_err(|error| error.to_string()),
        Order::Stop {} | Order::Quit {} => {
            kubelet.stop();
            Ok(())
        }
    };
    if let Err(message) = done {
        kubelet.log().push(Event::Error { message });
    }
}

fn allocate(kubelet: &FakeKubelet, allocation: Allocation) -> Result<(), String> {
    let (resource, pod_uid) = (allocation.resource.clone(), allocation.pod_uid.clone());
    let container = allocation.container.clone();
    let given = kubelet.allocate(allocation)?;
    let (ids, envs, annotations) = (given.ids, given.envs, given.annotations);
    let event = Event::Allocated {
        resource,
        ids,
        pod_uid,
        container,
        envs,
        annotations,
    };
    kubelet.log().push(event);
    Ok(())
}

fn print(log: &EventLog) {
    let mut printed = 0;
    loop {
        for event in log.next(printed) {
            printed += 1;
            let Ok(line) = serde_json::to_string(&event) else {
                continue;
            };
            if writeln!(std::io::stdout(), "{line}").is_err() {
                return;
            }
        }
    }
}

//! One run of the kubelet: a thread with its own runtime, so that its end
//! breaks every connection, as the end of a process does.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use kubelet_api::deviceplugin::registration_server::RegistrationServer;
use kubelet_api::podresources::pod_resources_lister_server::PodResourcesListerServer;
use kubelet_api::{KUBELET_SOCKET, POD_RESOURCES_SOCKET};
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::manager::{Allocated, Allocation, Manager};
use super::pod_resources::PodResourcesService;
use super::registration::{RegisterFault, Registration};
use super::{Config, Event, EventLog, watcher};

/// A running kubelet.
pub(super) struct Life {
    commands: mpsc::UnboundedSender<Command>,
    thread: JoinHandle<()>,
}

enum Command {
    Allocate(Allocation, oneshot::Sender<Result<Allocated, String>>),
    SetRegisterFault(RegisterFault),
    Disconnect(String),
    EndPod(String),
    /// Dies during a call to the plugin: so many turns of the runtime after the
    /// request was made.
    DieAllocating(Allocation, usize),
    End,
}

impl Life {
    /// Starts as the kubelet starts.
    pub(super) fn begin(config: Config, log: EventLog) -> io::Result<Self> {
        let directory = config.dir.join("device-plugins");
        fs::create_dir_all(&directory)?;
        fs::create_dir_all(config.dir.join("plugins_registry"))?;
        remove_sockets(&directory)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let socket = directory.join(KUBELET_SOCKET);
        let listener = {
            let _context = runtime.enter();
            UnixListener::bind(&socket)?
        };
        log.push(Event::Started {
            socket: socket.display().to_string(),
        });
        let resources = config.dir.join(POD_RESOURCES_SOCKET);
        fs::create_dir_all(resources.parent().unwrap_or(&config.dir))?;
        let _ = fs::remove_file(&resources);
        let resources = {
            let _context = runtime.enter();
            UnixListener::bind(&resources)?
        };
        let (commands, orders) = mpsc::unbounded_channel();
        let thread = std::thread::spawn(move || {
            live(&runtime, (listener, resources), orders, config, log.clone());
            drop(runtime);
            log.push(Event::Stopped {});
        });
        Ok(Life { commands, thread })
    }

    pub(super) fn allocate(&self, allocation: Allocation) -> Result<Allocated, String> {
        let (answer, answered) = oneshot::channel();
        let order = Command::Allocate(allocation, answer);
        let answered = match self.commands.send(order) {
            Ok(()) => answered.blocking_recv().ok(),
            Err(_) => None,
        };
        answered.unwrap_or_else(|| Err("the kubelet died".to_owned()))
    }

    pub(super) fn set_register_fault(&self, fault: RegisterFault) {
        // A kubelet that died has no faults any more.
        let _ = self.commands.send(Command::SetRegisterFault(fault));
    }

    pub(super) fn end_pod(&self, uid: &str) {
        // A kubelet that died has no pods any more.
        let _ = self.commands.send(Command::EndPod(uid.to_owned()));
    }

    pub(super) fn disconnect(&self, resource: &str) {
        // A kubelet that died has no connections any more.
        let _ = self.commands.send(Command::Disconnect(resource.to_owned()));
    }

    pub(super) fn die_allocating(self, allocation: Allocation, turns: usize) {
        let _ = self
            .commands
            .send(Command::DieAllocating(allocation, turns));
        let _ = self.thread.join();
    }

    pub(super) fn end(self) {
        let _ = self.commands.send(Command::End);
        let _ = self.thread.join();
    }
}

fn live(
    runtime: &Runtime,
    (listener, resources): (UnixListener, UnixListener),
    mut orders: mpsc::UnboundedReceiver<Command>,
    config: Config,
    log: EventLog,
) {
    runtime.block_on(async {
        let manager = Arc::new(Manager::new(&config, log));
        let death = Arc::new(Notify::new());
        let (registration, fault) =
            Registration::new(Arc::clone(&manager), config.register, Arc::clone(&death));
        let serving = Server::builder().serve_with_incoming(
            RegistrationServer::new(registration),
            UnixListenerStream::new(listener),
        );
        let listing = Server::builder().serve_with_incoming(
            PodResourcesListerServer::new(PodResourcesService(Arc::clone(&manager))),
            UnixListenerStream::new(resources),
        );
        let obeying = async {
            while let Some(order) = orders.recv().await {
                match order {
                    Command::Allocate(allocation, answer) => {
                        let _ = answer.send(manager.allocate(allocation).await);
                    }
                    Command::SetRegisterFault(wanted) => {
                        fault.send_replace(wanted);
                    }
                    Command::Disconnect(resource) => manager.disconnect(&resource, Path::new("")),
                    Command::EndPod(uid) => manager.end_pod(uid),
                    Command::DieAllocating(allocation, turns) => {
                        tokio::select! {
                            _ = manager.allocate(allocation) => {}
                            () = pass(turns) => {}
                        }
                        return;
                    }
                    Command::End => return,
                }
            }
        };
        let watching = watcher::watch(config.dir.join("plugins_registry"), &manager);
        tokio::select! {
            () = watching => {}
            _ = serving => {}
            _ = listing => {}
            () = obeying => {}
            () = death.notified() => {}
        }
    });
}

/// Lets everything else in the runtime go on so many times.
async fn pass(turns: usize) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

/// The kubelet starts with an empty directory, but for its checkpoint.
fn remove_sockets(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_socket() {
            match fs::remove_file(entry.path()) {
                // A plugin gave it its final name just then.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
        }
    }
    Ok(())
}

//! One run of the fake kubelet from its start to its end. It is a thread with its own tokio
//! runtime: when the runtime is dropped, all connections break, as at the end of a process.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use daemon::kubelet_api::deviceplugin::registration_server::RegistrationServer;
use daemon::kubelet_api::podresources::pod_resources_lister_server::PodResourcesListerServer;
use daemon::kubelet_api::{KUBELET_SOCKET_NAME, POD_RESOURCES_SOCKET_PATH};
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::manager::{Allocated, Allocation, Manager};
use super::pod_resources::PodResourcesService;
use super::registration::{RegisterFault, Registration};
use super::{Config, Event, EventLog, watcher};

/// A running fake kubelet, controlled by commands to its thread.
pub(super) struct Life {
    commands: mpsc::UnboundedSender<Command>,
    thread: JoinHandle<()>,
}

enum Command {
    Allocate(Allocation, oneshot::Sender<Result<Allocated, String>>),
    SetRegisterFault(RegisterFault),
    Disconnect(String),
    EndPod(String),
    /// Ends the kubelet during an Allocate call, this number of turns of its runtime after the call
    /// began.
    DieAllocating(Allocation, usize),
    End,
}

impl Life {
    /// Starts a kubelet: as the real one, it first removes the sockets of its device plugins.
    pub(super) fn begin(config: Config, log: EventLog) -> io::Result<Self> {
        let directory = config.dir.join("device-plugins");
        fs::create_dir_all(&directory)?;
        fs::create_dir_all(config.dir.join("plugins_registry"))?;
        remove_sockets(&directory)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let socket = directory.join(KUBELET_SOCKET_NAME);
        let listener = {
            let _context = runtime.enter();
            UnixListener::bind(&socket)?
        };
        log.push(Event::Started {
            socket: socket.display().to_string(),
        });
        let resources = config.dir.join(POD_RESOURCES_SOCKET_PATH);
        fs::create_dir_all(resources.parent().unwrap_or(&config.dir))?;
        let _ = fs::remove_file(&resources);
        let resources = {
            let _context = runtime.enter();
            UnixListener::bind(&resources)?
        };
        let (commands, received) = mpsc::unbounded_channel();
        let thread = std::thread::spawn(move || {
            run_kubelet(
                &runtime,
                (listener, resources),
                received,
                config,
                log.clone(),
            );
            drop(runtime);
            log.push(Event::Stopped {});
        });
        Ok(Life { commands, thread })
    }

    pub(super) fn allocate(&self, allocation: Allocation) -> Result<Allocated, String> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Allocate(allocation, answer);
        let answered = match self.commands.send(command) {
            Ok(()) => answered.blocking_recv().ok(),
            Err(_) => None,
        };
        answered.unwrap_or_else(|| Err("the kubelet died".to_owned()))
    }

    pub(super) fn set_register_fault(&self, fault: RegisterFault) {
        // Without a running kubelet there is no fault to set.
        let _ = self.commands.send(Command::SetRegisterFault(fault));
    }

    pub(super) fn end_pod(&self, uid: &str) {
        // Without a running kubelet there is no pod to end.
        let _ = self.commands.send(Command::EndPod(uid.to_owned()));
    }

    pub(super) fn disconnect(&self, resource: &str) {
        // Without a running kubelet there is no connection to close.
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

fn run_kubelet(
    runtime: &Runtime,
    (listener, resources): (UnixListener, UnixListener),
    mut received: mpsc::UnboundedReceiver<Command>,
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
        let executing = async {
            while let Some(command) = received.recv().await {
                match command {
                    Command::Allocate(allocation, answer) => {
                        let _ = answer.send(manager.allocate(allocation).await);
                    }
                    Command::SetRegisterFault(new_fault) => {
                        fault.send_replace(new_fault);
                    }
                    Command::Disconnect(resource) => manager.disconnect(&resource, Path::new("")),
                    Command::EndPod(uid) => manager.end_pod(uid),
                    Command::DieAllocating(allocation, turns) => {
                        tokio::select! {
                            _ = manager.allocate(allocation) => {}
                            () = yield_times(turns) => {}
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
            () = executing => {}
            () = death.notified() => {}
        }
    });
}

/// Lets the other tasks of the runtime run `turns` times.
async fn yield_times(turns: usize) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

/// Removes all sockets in `directory`, as the kubelet does when it starts. Its checkpoint remains.
fn remove_sockets(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_socket() {
            match fs::remove_file(entry.path()) {
                // The plugin renamed its socket in this moment.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
        }
    }
    Ok(())
}

//! Starts a server for each resource, and ends it when the resource is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use device_class::name::ResourceName;
use host_inventory::Notifications;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use crate::catalog::{Resource, Resources};
use crate::server::{self, Context, END_TIMEOUT};

/// The delay before a failed server is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(1);

type ServerFuture = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

pub(crate) struct Supervisor {
    serve: Box<dyn Fn(watch::Receiver<Arc<Resource>>) -> ServerFuture>,
    running: BTreeMap<ResourceName, RunningServer>,
    servers: JoinSet<anyhow::Result<()>>,
    /// The resources whose servers failed and must be restarted.
    failed: BTreeSet<ResourceName>,
}

struct RunningServer {
    /// The channel with the current value of the resource. Dropping this sender ends the server.
    resource: watch::Sender<Arc<Resource>>,
    task: Id,
}

impl Supervisor {
    /// Creates a supervisor without servers. `socket_changes` notifies of changes in the kubelet's
    /// directory.
    pub(crate) fn new(context: Context, socket_changes: Notifications) -> Self {
        let serve = move |resource| -> ServerFuture {
            Box::pin(server::serve(
                resource,
                context.clone(),
                socket_changes.clone(),
            ))
        };
        Supervisor::with_server(serve)
    }

    fn with_server(
        serve: impl Fn(watch::Receiver<Arc<Resource>>) -> ServerFuture + 'static,
    ) -> Self {
        Supervisor {
            serve: Box::new(serve),
            running: BTreeMap::new(),
            servers: JoinSet::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Serves the resources of `inventory` until its sender is dropped.
    pub(crate) async fn run(&mut self, mut inventory: watch::Receiver<Resources>) {
        loop {
            let wanted = inventory.borrow_and_update().clone();
            self.adjust_servers(&wanted);
            tokio::select! {
                changed = inventory.changed() => if changed.is_err() { return },
                Some(ended) = self.servers.join_next_with_id() => self.handle_end(ended),
            }
        }
    }

    /// Ends all servers, including their streams and sockets.
    pub(crate) async fn stop(&mut self) {
        self.running.clear();
        let all = async { while self.servers.join_next().await.is_some() {} };
        if tokio::time::timeout(END_TIMEOUT, all).await.is_err() {
            // On a very busy machine the time may not suffice. Dropping a server's task removes
            // its socket too.
            self.servers.shutdown().await;
        }
    }

    fn adjust_servers(&mut self, wanted: &Resources) {
        self.running.retain(|name, _| {
            let stays = wanted.contains_key(name);
            if !stays {
                tracing::info!(resource = %name, "no devices left, unregistering");
            }
            stays
        });
        for (name, resource) in wanted {
            match self.running.get(name) {
                Some(running) => {
                    running.resource.send_if_modified(|known| {
                        let changed = known != resource;
                        *known = Arc::clone(resource);
                        changed
                    });
                }
                None => self.start_server(name.clone(), Arc::clone(resource)),
            }
        }
    }

    fn start_server(&mut self, name: ResourceName, resource: Arc<Resource>) {
        let devices = resource.devices().len();
        tracing::info!(resource = %name, class = %resource.properties.class, devices, "serving");
        let (resource, receiver) = watch::channel(resource);
        let server = (self.serve)(receiver);
        let wait = if self.failed.remove(&name) {
            RESTART_DELAY
        } else {
            Duration::ZERO
        };
        let server = async move {
            tokio::time::sleep(wait).await;
            server.await
        };
        let task = self.servers.spawn(server).id();
        self.running.insert(name, RunningServer { resource, task });
    }

    /// Handles the end of a server. A server with an entry in `running` has failed, and the next
    /// `adjust_servers` restarts it. A server that was ended on purpose has no entry any more.
    fn handle_end(&mut self, ended: Result<(Id, anyhow::Result<()>), JoinError>) {
        let (task, reason) = match ended {
            Ok((task, Ok(()))) => (task, "it ended unexpectedly".to_owned()),
            Ok((task, Err(error))) => (task, format!("{error:#}")),
            Err(error) => (error.id(), error.to_string()),
        };
        let failed = self
            .running
            .iter()
            .find(|(_, running)| running.task == task);
        if let Some(name) = failed.map(|(name, _)| name.clone()) {
            tracing::error!(resource = %name, "server failed, restarting it: {reason}");
            self.running.remove(&name);
            self.failed.insert(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::catalog::fixture::{device, resource};

    #[tokio::test]
    async fn a_server_that_fails_in_any_way_is_restarted() {
        let starts = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&starts);
        let serve = move |resource: watch::Receiver<Arc<Resource>>| -> ServerFuture {
            let start = count.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                let _resource = resource;
                match start {
                    0 => Err(anyhow::anyhow!("its half ended")),
                    // As in a build for tests, where a panic is one task's end.
                    1 => panic!("a fault of ours"),
                    2 => Ok(()),
                    _ => std::future::pending().await,
                }
            })
        };
        let mut supervisor = Supervisor::with_server(serve);
        let npus = Arc::new(resource(vec![device("a")]));
        let (_inventory, receiver) = watch::channel(Resources::from([(npus.name.clone(), npus)]));
        let last = async {
            while starts.load(Ordering::Relaxed) < 4 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = supervisor.run(receiver) => panic!("it should run on"),
            () = tokio::time::sleep(60 * RESTART_DELAY) => panic!("it was not restarted"),
            () = last => {}
        }
    }
}

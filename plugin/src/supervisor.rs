//! Runs one gRPC server for each resource: starts the server when the resource appears, restarts it
//! after a failure, and ends it when the resource has no devices left.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use daemon::host_inventory::Notifications;
use device_class::name::ResourceName;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use crate::catalog::{Resource, Resources};
use crate::server::{self, SERVER_END_TIMEOUT, ServerContext};

/// The delay before a failed server is started again. It prevents a server that always fails from
/// starting more than once a second.
const RESTART_DELAY: Duration = Duration::from_secs(1);

type ServerFuture = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

pub(crate) struct Supervisor {
    serve_fn: Box<dyn Fn(watch::Receiver<Arc<Resource>>) -> ServerFuture>,
    running_servers: BTreeMap<ResourceName, RunningServer>,
    server_tasks: JoinSet<anyhow::Result<()>>,
    /// The resources whose servers have failed and must be started again.
    failed_resources: BTreeSet<ResourceName>,
}

struct RunningServer {
    /// Sends the current value of the resource to its server. Dropping the sender ends the server.
    resource_sender: watch::Sender<Arc<Resource>>,
    task_id: Id,
}

impl Supervisor {
    /// Creates a supervisor without servers. `socket_notifications` reports changes in the
    /// directories of the kubelet's and the plugin's sockets.
    pub(crate) fn new(context: ServerContext, socket_notifications: Notifications) -> Self {
        let serve = move |resource| -> ServerFuture {
            Box::pin(server::serve(
                resource,
                context.clone(),
                socket_notifications.clone(),
            ))
        };
        Supervisor::with_server(serve)
    }

    fn with_server(
        serve: impl Fn(watch::Receiver<Arc<Resource>>) -> ServerFuture + 'static,
    ) -> Self {
        Supervisor {
            serve_fn: Box::new(serve),
            running_servers: BTreeMap::new(),
            server_tasks: JoinSet::new(),
            failed_resources: BTreeSet::new(),
        }
    }

    /// Keeps one server running for each of the current resources, until the sender of `resources`
    /// is dropped.
    pub(crate) async fn run(&mut self, mut resources: watch::Receiver<Resources>) {
        loop {
            let current_resources = resources.borrow_and_update().clone();
            self.adjust_servers(&current_resources);
            tokio::select! {
                changed = resources.changed() => if changed.is_err() { return },
                Some(result) = self.server_tasks.join_next_with_id() => self.handle_server_end(result),
            }
        }
    }

    /// Ends all servers with their streams and sockets. Cancels the servers that have not ended
    /// within [`SERVER_END_TIMEOUT`].
    pub(crate) async fn stop(&mut self) {
        self.running_servers.clear();
        let servers_end = async { while self.server_tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(SERVER_END_TIMEOUT, servers_end)
            .await
            .is_err()
        {
            // On a very busy machine, servers may need more time than the limit. Cancelling a
            // server's task also removes its socket.
            self.server_tasks.shutdown().await;
        }
    }

    fn adjust_servers(&mut self, resources: &Resources) {
        self.running_servers.retain(|name, _| {
            let is_still_advertised = resources.contains_key(name);
            if !is_still_advertised {
                tracing::info!(resource = %name, "no devices left, unregistering");
            }
            is_still_advertised
        });
        for (name, resource) in resources {
            match self.running_servers.get(name) {
                Some(server) => {
                    server.resource_sender.send_if_modified(|current_value| {
                        let is_changed = current_value != resource;
                        *current_value = Arc::clone(resource);
                        is_changed
                    });
                }
                None => self.start_server(name.clone(), Arc::clone(resource)),
            }
        }
    }

    fn start_server(&mut self, name: ResourceName, resource: Arc<Resource>) {
        let devices = resource.devices().len();
        tracing::info!(resource = %name, class = %resource.properties.class, devices, "serving");
        let (resource_sender, receiver) = watch::channel(resource);
        let server = (self.serve_fn)(receiver);
        let delay = if self.failed_resources.remove(&name) {
            RESTART_DELAY
        } else {
            Duration::ZERO
        };
        let server = async move {
            tokio::time::sleep(delay).await;
            server.await
        };
        let task_id = self.server_tasks.spawn(server).id();
        self.running_servers.insert(
            name,
            RunningServer {
                resource_sender,
                task_id,
            },
        );
    }

    /// Handles the end of a server's task. If the server still has an entry in `running_servers`,
    /// it has failed, and the next call of `adjust_servers` starts it again. Otherwise the
    /// supervisor has ended it.
    fn handle_server_end(&mut self, result: Result<(Id, anyhow::Result<()>), JoinError>) {
        let (task_id, reason) = match result {
            Ok((task_id, Ok(()))) => (task_id, "it ended unexpectedly".to_owned()),
            Ok((task_id, Err(error))) => (task_id, format!("{error:#}")),
            Err(error) => (error.id(), error.to_string()),
        };
        let failed_server = self
            .running_servers
            .iter()
            .find(|(_, server)| server.task_id == task_id);
        if let Some(name) = failed_server.map(|(name, _)| name.clone()) {
            tracing::error!(resource = %name, "server failed, restarting it: {reason}");
            self.running_servers.remove(&name);
            self.failed_resources.insert(name);
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

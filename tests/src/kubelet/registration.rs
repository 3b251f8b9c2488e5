//! The Registration service, which device plugins call at kubelet.sock.

use std::sync::Arc;
use std::time::Duration;

use daemon::kubelet_api::DEVICE_PLUGIN_API_VERSION;
use daemon::kubelet_api::deviceplugin::registration_server;
use daemon::kubelet_api::deviceplugin::{Empty, RegisterRequest};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tonic::{Request, Response, Status};

use super::manager::Manager;

/// The way in which the kubelet's call Register fails.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RegisterFault {
    #[default]
    None,
    /// Register fails with this reason.
    Refuse(String),
    /// Register never answers.
    Hang,
    /// The kubelet connects to the plugin at once, but Register answers after this time.
    AnswerLate(Duration),
    /// Register answers at once, but the kubelet connects to the plugin after this time.
    DialLate(Duration),
    /// The kubelet ends when Register is called.
    Die,
    /// The kubelet ends after it has connected to the plugin and before Register answers.
    DieDialled,
}

pub(super) struct Registration {
    manager: Arc<Manager>,
    fault: watch::Receiver<RegisterFault>,
    /// Notified to end the kubelet.
    death: Arc<Notify>,
}

impl Registration {
    pub(super) fn new(
        manager: Arc<Manager>,
        fault: RegisterFault,
        death: Arc<Notify>,
    ) -> (Self, watch::Sender<RegisterFault>) {
        let (sender, fault) = watch::channel(fault);
        let registration = Registration {
            manager,
            fault,
            death,
        };
        (registration, sender)
    }

    async fn dial(&self, request: &RegisterRequest) -> Result<(), String> {
        if request.version != DEVICE_PLUGIN_API_VERSION {
            return Err(format!(
                "requested API version {:?} is not supported",
                request.version
            ));
        }
        let socket = self.manager.socket(&request.endpoint);
        self.manager.connect(&request.resource_name, &socket).await
    }

    async fn answer(&self, request: &RegisterRequest) -> Result<(), String> {
        let fault = self.fault.borrow().clone();
        match fault {
            RegisterFault::None => self.dial(request).await,
            RegisterFault::Refuse(reason) => Err(reason),
            RegisterFault::Hang => {
                self.manager.log_unanswered(&request.resource_name);
                std::future::pending().await
            }
            RegisterFault::AnswerLate(delay) => {
                self.dial(request).await?;
                sleep(delay).await;
                Ok(())
            }
            RegisterFault::DialLate(delay) => {
                let (manager, request) = (Arc::clone(&self.manager), request.clone());
                tokio::spawn(async move {
                    sleep(delay).await;
                    let resource = &request.resource_name;
                    let socket = manager.socket(&request.endpoint);
                    if let Err(reason) = manager.connect(resource, &socket).await {
                        manager.log_refusal(resource, &reason);
                    }
                });
                Ok(())
            }
            RegisterFault::Die => self.die().await,
            RegisterFault::DieDialled => {
                self.dial(request).await?;
                self.die().await
            }
        }
    }

    async fn die(&self) -> Result<(), String> {
        self.death.notify_one();
        std::future::pending().await
    }
}

#[tonic::async_trait]
impl registration_server::Registration for Registration {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        if let Err(reason) = self.answer(&request).await {
            self.manager.log_refusal(&request.resource_name, &reason);
            return Err(Status::unknown(reason));
        }
        Ok(Response::new(Empty {}))
    }
}

//! The service at kubelet.sock.

use std::sync::Arc;

use plugin::api::VERSION;
use plugin::api::deviceplugin::registration_server;
use plugin::api::deviceplugin::{Empty, RegisterRequest};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use super::manager::Manager;

/// What can be wrong with Register.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RegisterFault {
    /// Nothing.
    #[default]
    None,
    /// It says no, with this reason.
    Refuse(String),
    /// It never answers.
    Hang,
}

pub(super) struct Registration {
    manager: Arc<Manager>,
    fault: watch::Receiver<RegisterFault>,
}

impl Registration {
    pub(super) fn new(
        manager: Arc<Manager>,
        fault: RegisterFault,
    ) -> (Self, watch::Sender<RegisterFault>) {
        let (sender, fault) = watch::channel(fault);
        (Registration { manager, fault }, sender)
    }
}

#[tonic::async_trait]
impl registration_server::Registration for Registration {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        let fault = self.fault.borrow().clone();
        let answer = match fault {
            RegisterFault::Hang => std::future::pending().await,
            RegisterFault::Refuse(reason) => Err(reason),
            RegisterFault::None if request.version != VERSION => Err(format!(
                "requested API version {:?} is not supported",
                request.version
            )),
            RegisterFault::None => {
                let socket = self.manager.socket(&request.endpoint);
                self.manager.connect(&request.resource_name, &socket).await
            }
        };
        if let Err(reason) = answer {
            self.manager.refused(&request.resource_name, &reason);
            return Err(Status::unknown(reason));
        }
        Ok(Response::new(Empty {}))
    }
}

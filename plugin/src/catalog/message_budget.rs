//! Limits the size of a ListAndWatch message. A message beyond gRPC's limit would break the
//! stream.

use prost::encoding::message::encoded_len;

use super::resource::AdvertisedDevice;
use daemon::kubelet_api::MAX_MESSAGE_BYTES;

/// The number of the field `devices` in the protobuf message `ListAndWatchResponse`. The encoded
/// message contains this number before each device.
const DEVICES_TAG: u32 = 1;

/// The number of bytes that a ListAndWatch message can still hold.
#[derive(Debug)]
pub(super) struct MessageBudget(usize);

impl MessageBudget {
    pub(super) fn new() -> Self {
        MessageBudget(MAX_MESSAGE_BYTES)
    }

    /// Reserves the bytes of one more device, and returns whether the device fits. The size is that
    /// of an entry for an unhealthy device. This entry is longer, and any device may become
    /// unhealthy later.
    pub(super) fn reserve(&mut self, device: &AdvertisedDevice) -> bool {
        let needed_bytes = encoded_len(DEVICES_TAG, &device.to_largest_message());
        let remaining_bytes = self.0.checked_sub(needed_bytes);
        self.0 = remaining_bytes.unwrap_or(self.0);
        remaining_bytes.is_some()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::catalog::fixture::{device, resource};

    #[test]
    fn as_many_devices_fit_as_the_kubelet_accepts_even_if_all_are_unhealthy() {
        let mut budget = MessageBudget::new();
        let id = |n: usize| device(&format!("{n:0>63}"));
        let fitting: Vec<_> = (0..100_000)
            .map(id)
            .take_while(|d| budget.reserve(d))
            .collect();
        let count = fitting.len();
        let ill = fitting.into_iter().map(|device| AdvertisedDevice {
            health: crate::catalog::fixture::unhealthy_device("x", "cold").health,
            ..device
        });
        let size = resource(ill.collect()).to_list_message().encoded_len();
        assert!(
            size <= MAX_MESSAGE_BYTES && size + 100 > MAX_MESSAGE_BYTES,
            "{size}"
        );
        assert!(count > 50_000, "{count}");
    }
}

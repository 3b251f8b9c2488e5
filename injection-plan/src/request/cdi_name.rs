//! Splits the CDI names in requests into their kind and the name of the device.

use device_class::class::ClassSpec;
use device_class::name::is_reserved_name;

use super::list::DeviceListItem;

/// The kind in a CDI name. In `vendor.com/class=name`, it is `vendor.com/class`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CdiKind<'a> {
    /// The kind stands for the whole class, because all devices of the class have it.
    AnyResource,
    /// The kind is the name of a resource, which only some devices of the class have.
    Resource(&'a str),
}

/// Splits a CDI name into its kind and the name of the device. If the item is not a CDI name of
/// this class, returns `None` and the whole text of the item.
pub(super) fn split_cdi_kind<'a>(
    item: &'a DeviceListItem,
    class: &ClassSpec,
) -> (Option<CdiKind<'a>>, &'a str) {
    let text = item.text.as_str();
    let Some((kind, name)) = text.split_once('=').filter(|_| !item.is_quoted) else {
        return (None, text);
    };
    let has_one_resource = class.resource.attributes().next().is_none();
    // The words `none` and `void` select no device, so a kind before them stands for the whole
    // class.
    let means_no_device = is_reserved_name(name) && !name.eq_ignore_ascii_case("all");
    if class
        .request
        .kinds
        .iter()
        .any(|known_kind| known_kind == kind)
    {
        (Some(CdiKind::AnyResource), name)
    } else if !class.may_offer(kind) {
        (None, text)
    } else if has_one_resource || means_no_device {
        (Some(CdiKind::AnyResource), name)
    } else {
        (Some(CdiKind::Resource(kind)), name)
    }
}

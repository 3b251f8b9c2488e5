//! Adds advice to the errors of requests: the name or the form that the user probably meant.

use device_class::name::{IndexRange, excerpt};

use super::error::RefusedRequest;
use super::list::DeviceListItem;
use super::names::RequestNames;
use super::{RequestError, RequestSource};

impl RequestNames<'_> {
    /// Adds advice to the error of an item that selects no device: the device with a similar name,
    /// or the form in which the user should write the item. An error without advice is returned
    /// unchanged.
    pub(super) fn add_advice(
        &self,
        item: &DeviceListItem,
        mut error: RequestError,
    ) -> RequestError {
        if let Some(path) = &item.container_path
            && let Some(name) = item.text.strip_suffix('?')
        {
            let path = path.display();
            return RequestError::MisplacedMark {
                item: item.to_text(),
                corrected_item: format!("{name}:{path}?"),
            };
        }
        let is_unknown = matches!(
            error,
            RequestError::UnknownDevice { .. }
                | RequestError::UnknownPath { .. }
                | RequestError::MalformedItem(_)
        );
        // If the class has no device on this host, no other form of the item would select one. The
        // error says already that the host has none.
        let has_devices = !self.devices().is_empty();
        if let Some(error) = self
            .advise_about_unsupported_form(item)
            .filter(|_| is_unknown && has_devices)
        {
            return error;
        }
        let (name, text) = match &mut error {
            RequestError::UnknownDevice {
                name,
                known_devices,
                ..
            } => (name, known_devices),
            RequestError::UnknownPath { path, reason, .. } => (path, reason),
            _ => return error,
        };
        let short_name = name.rsplit(['/', '=']).next().unwrap_or_default();
        if let Some(part_ids) = self.find_part_ids(short_name) {
            let part_ids = excerpt(&part_ids);
            *text = format!(
                "{text}; {short_name} is divided, and a container can get its parts: {part_ids}"
            );
            return error;
        }
        if let Some(similar_device) = self.find_probable_device(short_name)
            && !self.is_only_device(&similar_device)
        {
            *text = format!("{text}; {similar_device}");
        }
        error
    }

    /// Returns the ids of the parts of a device that containers can get in parts only, if `name` is
    /// the id, an alias or the index of such a device.
    fn find_part_ids(&self, name: &str) -> Option<String> {
        let mut divided_devices = self.parts_only_devices().iter();
        let divided_device = divided_devices.find(|device| {
            let mut aliases = device.aliases.iter();
            device.id.as_str() == name
                || device.index.as_deref() == Some(name)
                || aliases.any(|alias| alias == name)
        })?;
        let parts = self.devices().iter();
        let parts = parts.filter(|part| part.part_of.as_ref() == Some(&divided_device.id));
        let part_ids: Vec<String> = parts.map(|part| part.id.to_string()).collect();
        (!part_ids.is_empty()).then(|| part_ids.join(", "))
    }
}

impl RefusedRequest {
    pub(crate) fn new(source: &RequestSource, error: RequestError) -> Self {
        let mut requested_by = source.to_string();
        if let RequestSource::Env { name, value } = source
            && let Some(value) = strip_outer_quotes(value)
        {
            let value = excerpt(value);
            requested_by += &format!(
                " (the quotes are part of the value: write - '{name}={value}' in a list of compose, \
                 and {name}={value} in a file for --env-file)"
            );
        }
        RefusedRequest {
            requested_by,
            error,
        }
    }
}

/// Returns the text between the quotes that enclose all of a value, as in `"all"`. A shell and YAML
/// remove such quotes, but compose's list form `- "NAME"="VALUE"` and files of variables keep them.
fn strip_outer_quotes(value: &str) -> Option<&str> {
    let value = value.trim();
    let mut enclosed_values = ['"', '\''].into_iter().filter_map(|quote| {
        let value = value.strip_prefix(quote)?.strip_suffix(quote)?;
        // In a request, double quotes can be necessary: without them, a name with a comma would be
        // two items, and a name such as 1-2 would be a range. The user is not advised to remove
        // such quotes.
        let may_be_name =
            quote == '"' && (value.contains(',') || IndexRange::parse(value).is_some());
        (!value.contains(quote) && !may_be_name).then_some(value)
    });
    enclosed_values.next()
}
